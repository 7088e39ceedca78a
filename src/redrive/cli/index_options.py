"""Options for answering from an earlier look, and the step that keeps a look's result for later."""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

import typer

from redrive.cli import environment
from redrive.cli.output import Printer
from redrive.errors import ConfigurationError
from redrive.failures.store.index import MOST_BYTES
from redrive.failures.store.look import CachePolicy, Keep
from redrive.topology.durations import duration_of

_OFF = "off"
_MEBIBYTE = 1024 * 1024
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Look at the queue itself, even if an earlier look is recent enough to answer.",
    ),
]
Age = Annotated[
    str,
    typer.Option(
        "--index",
        envvar=environment.INDEX_VARIABLE,
        metavar="AGE|off",
        help="How old an earlier look may be for its result to be used: 15m, 2h. With off, no "
        "result is used or kept.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """Options that say whether a command may answer from the index."""

    fresh: Fresh = False
    index: Age = "15m"
    to_do: list[Callable[[], None]] = field(default_factory=list, init=False, compare=False)
    """What to do after the command has printed its answer."""

    @property
    def most_age(self) -> timedelta | None:
        """Maximum age of a look that may answer; None if nothing is kept either."""
        if self.index.strip().lower() == _OFF:
            return None
        try:
            return duration_of(self.index)
        except (ConfigurationError, OverflowError) as error:
            raise ConfigurationError(
                f"the age {self.index!r} of --index or {environment.INDEX_VARIABLE} can't be read",
                "Give a duration, such as 15m or 2h, or off.",
            ) from error

    def recall(self, printer: Printer) -> CachePolicy | None:
        """Return how an earlier look may answer; None if none may, and nothing is kept."""
        most_age = self.most_age
        if most_age is None:
            return None
        return CachePolicy(
            timedelta(0) if self.fresh else most_age,
            _most_bytes(),
            lambda problem: printer.note(f"{problem[0].upper()}{problem[1:]}."),
            lambda keep: self.to_do.append(lambda: _keep(printer, keep)),
        )


def _keep(printer: Printer, keep: Keep) -> None:
    """Keep what a look has found; print a note if that fails."""
    with printer.bar() as bar:
        try:
            problem = keep(
                lambda count: bar.show("keeping the messages for the next question", count, None)
            )
        except KeyboardInterrupt:
            problem = "interrupted"
    if problem:
        printer.note(f"Nothing was kept for the next question: {problem}.")


def answered(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that has an argument `index`, so that it keeps what a look has found after
    printing its answer."""

    @functools.wraps(command)
    def call(**given: object) -> None:
        index = given["index"]
        assert isinstance(index, IndexOptions)
        try:
            command(**given)
        finally:
            sys.stdout.flush()
            for each in index.to_do:
                each()

    return call


def _most_bytes() -> int:
    """Return how many bytes may be kept, according to the environment."""
    text = os.environ.get(environment.INDEX_SIZE_VARIABLE)
    if not text:
        return MOST_BYTES
    if not text.isdecimal() or not text.isascii():
        raise ConfigurationError(
            f"{environment.INDEX_SIZE_VARIABLE} is {text!r}", "Give a whole number of MiB."
        )
    return int(text) * _MEBIBYTE
