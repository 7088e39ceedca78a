"""Options that change requeued messages: `--edit`, `--patch`, `--transform`."""

import base64
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.output import Printer
from redrive.errors import ConfigurationError
from redrive.failures.message.edit import as_before, laid_out
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import plain_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.store.filter import OpenFilter

Messages = list[FailedMessage]
Read = Callable[[Iterable[FailedMessage]], Messages]

_MOST_EDITED = 50

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """Options that change the bodies of any number of messages."""

    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch",
            metavar="FILE",
            help="Change JSON bodies by a JSON patch (RFC 6902) or merge patch (RFC 7386).",
            show_default=False,
        ),
    ] = None
    transform: Annotated[
        str | None,
        typer.Option(
            "--transform",
            metavar="MODULE:FUNCTION",
            help="Change bodies by a function of yours: it gets a FailedMessage and returns the "
            "new body.",
            show_default=False,
        ),
    ] = None

    @property
    def patch_text(self) -> str | None:
        """Content of the patch file; None without a patch."""
        try:
            return None if self.patch is None else self.patch.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the patch {str(self.patch)!r} can't be read: {error}", "Check the file."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOptions(BodyOptions):
    """Options that change requeued messages, by hand too."""

    edit: Annotated[bool, typer.Option("--edit", help="Change bodies in $EDITOR.")] = False


def changing(
    order: Order,
    change: EditOptions,
    look: Callable[[Read], Messages],
    found: Messages | None,
) -> tuple[Order, Messages | None]:
    """Return the order with the body changes that these options ask for, and the messages that it
    matches if they have been read. An editor shows them, and one look at the failed queue is enough
    to know what would be sent."""
    if sum((change.patch is not None, change.transform is not None, change.edit)) > 1:
        raise ConfigurationError(
            "--edit, --patch and --transform exclude each other", "Give one of them."
        )
    if change.patch is not None:
        return replace(order, patch=change.patch_text), found
    if change.transform is not None:
        # As in `redrive run`: the module may be in the current directory.
        sys.path.insert(0, os.getcwd())
        return replace(order, function=change.transform), found
    if not change.edit:
        return order, found
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "there is no terminal for an editor", "Give --patch or --transform."
        )
    chosen = _first_of(order, found) if found is not None else look(partial(_first_of, order))
    # If no message was chosen, the caller still has to report how many were read.
    return (_edited(order, chosen), chosen) if chosen else (order, found)


def tell(printer: Printer, plan: Plan) -> None:
    """Print the changes as diffs."""
    bodies = "1 body" if plan.changed == 1 else f"{plan.changed:,} bodies"
    printer.say(f"\n{bodies} of {plan.count:,} would be changed:", "bold")
    for change in plan.changes:
        for line in change:
            printer.say(f"  {line}", _STYLES.get(line[:1], ""))
    if plan.changed > len(plan.changes):
        printer.say(f"  … and {plan.changed - len(plan.changes):,} more.")


def _first_of(order: Order, messages: Iterable[FailedMessage]) -> Messages:
    """Return the messages that match an order, up to its limit or to one more than may be
    edited."""
    with OpenFilter(order.filter) as open_filter:
        return list(islice(open_filter.of(messages), order.limit or _MOST_EDITED + 1))


def _edited(order: Order, chosen: Messages) -> Order:
    if len(chosen) > _MOST_EDITED:
        raise ConfigurationError(
            f"more than {_MOST_EDITED} messages to edit by hand",
            "Choose fewer, or give --patch or --transform.",
        )
    edits: dict[str, str] = {}
    # Its mode is 0700, and it is deleted with all the files that editors leave behind.
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        for number, message in enumerate(chosen, 1):
            if message.digest not in edits:
                edits[message.digest] = base64.b64encode(
                    _edited_body(message, Path(folder, f"message-{number}.json"))
                ).decode()
    return replace(order, edits=edits, filter=replace(order.filter, digests=frozenset(edits)))


def _edited_body(message: FailedMessage, path: Path) -> bytes:
    """Return a body as edited in a new file at `path`. The file's name must contain nothing from
    the message, which is untrusted."""
    body = plain_of(message)
    shown = laid_out(body)
    with path.open("xb") as file:
        file.write(shown or body)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except OSError as error:
        raise ConfigurationError(
            f"the editor {editor!r} can't be started: {error.strerror}", "Set EDITOR."
        ) from error
    if done.returncode:
        raise ConfigurationError(
            f"the editor {editor!r} ended with {done.returncode}", "Nothing was requeued."
        )
    try:
        edited = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"the editor {editor!r} left no file: {error.strerror}", "Nothing was requeued."
        ) from error
    edited = edited if shown is None else as_before(body, edited)
    return message.body if edited == body else edited
