"""The options that change what is sent back: `--edit`, `--patch`, `--python`."""

import base64
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

from redrive.cli.output import Printer
from redrive.errors import ConfigurationError
from redrive.failures.order import Order
from redrive.failures.plan import Plan
from redrive.failures.selection import Chooser
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.message import FailedMessage

_MOST_EDITED = 50
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def changing(order: Order, failed: FailedQueue, patch: Path | None, function: str | None, edit: bool) -> Order:
    """The order, with what these options say about bodies.

    Raises:
        ConfigurationError: there are several of them, or one can't be used.
    """
    if sum((patch is not None, function is not None, edit)) > 1:
        raise ConfigurationError("--edit, --patch and --python are given together", "Give one of them.")
    if patch is not None:
        try:
            return replace(order, patch=patch.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the patch {str(patch)!r} can't be read: {error}", "Check the file.") from error
    if function is not None:
        # As `redrive run` does: what is in the current directory may be named.
        sys.path.insert(0, os.getcwd())
        return replace(order, function=function)
    return _edited(order, failed) if edit else order


def tell(printer: Printer, plan: Plan) -> None:
    """What is changed, as differences."""
    bodies = "1 body" if plan.changed == 1 else f"{plan.changed:,} bodies"
    printer.say(f"\n{bodies} of {plan.count:,} would be changed:", "bold")
    for change in plan.changes:
        for line in change:
            printer.say(f"  {line}", _STYLES.get(line[:1], ""))
    if plan.changed > len(plan.changes):
        printer.say(f"  … and {plan.changed - len(plan.changes):,} more.")


def _edited(order: Order, failed: FailedQueue) -> Order:
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal for an editor", "Give --patch or --python.")
    with Chooser(order.selection) as chooser:
        chosen = list(islice(chooser.of(failed.browse()), order.limit or _MOST_EDITED + 1))
    if len(chosen) > _MOST_EDITED:
        raise ConfigurationError(f"more than {_MOST_EDITED} messages would be edited by hand", "Choose fewer, or give --patch or --python.")
    edits: dict[str, str] = {}
    # Its rights are 0700, and it goes with all that editors leave beside a file.
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        for number, message in enumerate(chosen, 1):
            if message.digest not in edits:
                edits[message.digest] = base64.b64encode(_edited_body(message, Path(folder, f"message-{number}.json"))).decode()
    digests = frozenset(edits)
    return replace(order, edits=edits, selection=replace(order.selection, digests=digests) if digests else order.selection)


def _edited_body(message: FailedMessage, path: Path) -> bytes:
    """What people make of a body in a new file of this name. Nothing of the name is the message's: that is written by strangers."""
    with path.open("xb") as file:
        file.write(message.body)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except OSError as error:
        raise ConfigurationError(f"the editor {editor!r} can't be started: {error.strerror}", "Set EDITOR.") from error
    if done.returncode:
        raise ConfigurationError(f"the editor {editor!r} ended with {done.returncode}", "Nothing was sent.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the editor {editor!r} left no file: {error.strerror}", "Nothing was sent.") from error
