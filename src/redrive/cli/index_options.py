"""The options that say whether a command may answer from what the last look has found, and what is
said and kept because of them."""

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
from redrive.failures.index import MOST_BYTES
from redrive.failures.look import CachePolicy, Keep
from redrive.topology.durations import duration_of

_KEEPING = "keeping them for the next question"
_OFF = "off"
_MEBIBYTE = 1024 * 1024
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Look at the queue itself, also where a look is young enough to answer."
    ),
]
Age = Annotated[
    str,
    typer.Option(
        "--index",
        envvar=environment.INDEX_VARIABLE,
        metavar="AGE|off",
        help="How old a look may be to answer from what it found: 15m, 2h. With off, nothing is "
        "answered from it, and nothing kept.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class IndexOptions:
    """The options that say whether a command answers from the index."""

    fresh: Fresh = False
    index: Age = "15m"
    to_do: list[Callable[[], None]] = field(default_factory=list, init=False, compare=False)
    """What is done once the command has printed its answer."""

    @property
    def most_age(self) -> timedelta | None:
        """How old a look may be that answers; None where nothing is kept either."""
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
        """Return how an earlier look may answer; None where none may, and none is kept."""
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
    """Keep what a look has found; say so if that can't be."""
    with printer.bar() as bar:
        try:
            problem = keep(
                lambda count: bar.show("keeping them for the next question", count, None)
            )
        except KeyboardInterrupt:
            problem = "interrupted"
    if problem:
        printer.note(f"Nothing was kept for the next question: {problem}.")


def answered(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command keep what a look has found once its answer is printed. It has an argument
    `index`."""

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
    """How much may be kept, as the environment says it."""
    text = os.environ.get(environment.INDEX_SIZE_VARIABLE)
    if not text:
        return MOST_BYTES
    if not text.isdecimal() or not text.isascii():
        raise ConfigurationError(
            f"{environment.INDEX_SIZE_VARIABLE} is {text!r}", "Give a whole number of MiB."
        )
    return int(text) * _MEBIBYTE
