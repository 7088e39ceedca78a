"""Which lines of some code have run, for code that has to be run to its last line."""

import linecache
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction


class LineTrace:
    """Waits for each line of some code to run, on any thread that begins after `start`."""

    def __init__(self) -> None:
        self._to_come: dict[str, set[int]] = {}

    def start(self) -> None:
        """Trace this thread, and all that begin from now on."""
        sys.settrace(self._called)
        threading.settrace(self._called)

    def add(self, code: CodeType) -> None:
        """Expect each line of this code, and of the functions in it, to run."""
        self._to_come[code.co_filename] = set(_lines_of(code))

    def never_run(self) -> list[str]:
        """The lines that no thread has come to."""
        return [
            f"{label}, line {number}: {linecache.getline(label, number).strip()}"
            for label, lines in self._to_come.items()
            for number in sorted(lines)
        ]

    def _called(self, frame: FrameType, event: str, _: object) -> "TraceFunction | None":
        to_come = self._to_come.get(frame.f_code.co_filename)
        if to_come is None:
            return None
        to_come.discard(frame.f_lineno)
        return self._called


def _lines_of(code: CodeType) -> Iterator[int]:
    """The lines of code that do something."""
    yield from (number for _, _, number in code.co_lines() if number)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)
