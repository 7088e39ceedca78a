"""What a process of the torture run did, line by line, whatever becomes of the process."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

What = Literal["sending", "confirmed", "begun", "failed", "handled", "requeueing"]
_WHATS = get_args(What)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message.

    Args:
        at: when, in nanoseconds of the clock that all processes of a machine share.
        what: what happened.
        id: the message.
        first: of `sending` how often its handler is to fail; else the retries before this attempt.
        second: of `sending` the milliseconds that it is to wait; else how often it was requeued.
    """

    at: int
    what: What
    id: str
    first: int = 0
    second: int = 0

    @property
    def line(self) -> str:
        """It as a line of a journal."""
        return f"{self.at} {self.what} {self.id} {self.first} {self.second}\n"

    @classmethod
    def of_line(cls, line: str) -> "Event":
        """What a line of a journal says.

        Raises:
            ValueError: it is no such line.
        """
        at, what, id_, first, second = line.split()
        if what not in _WHATS:
            raise ValueError(f"{what!r} is nothing that happens to a message")
        return cls(int(at), cast("What", what), id_, int(first), int(second))


class EventJournal:
    """A file that several lives of one process write to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: What, id_: str, first: int = 0, second: int = 0) -> None:
        """Writes one line at once: a kill can't take it back."""
        self.note_all(what, [(id_, first, second)])

    def note_all(self, what: What, messages: Iterable[tuple[str, int, int]]) -> None:
        """Writes a line for each message, all of them at once."""
        at = time.monotonic_ns()
        lines = "".join(Event(at, what, *message).line for message in messages)
        if lines:
            os.write(self._file, lines.encode())


class JournalReader:
    """Reads what was added to the journals of a folder since it read last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_events(self) -> Iterator[Event]:
        """Yields what is new, each journal's in its order; a line that is not whole yet comes the
        next time."""
        for path in sorted(self._folder.glob("*.journal")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            yield from map(Event.of_line, whole.decode().splitlines())
