"""A terminal that a command draws on: lines that changed are written, keys are read, and it is left
as it was."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CLEAR = "\x1b[2J"


class Screen:
    """All of the terminal, while `drawing`."""

    def __init__(self, console: "Console", keyboard: int | None) -> None:
        self._console = console
        self._keyboard = keyboard
        self._size: tuple[int, int] | None = None
        self._drawn: list[str] = []

    @property
    def width(self) -> int:
        """How many columns it has."""
        return self._console.width

    @property
    def height(self) -> int:
        """How many lines it has."""
        return self._console.height

    def lines(self, what: "RenderableType") -> list[str]:
        """The lines that something takes."""
        with self._console.capture() as captured:
            self._console.print(what)
        return captured.get().splitlines()

    def draw(self, lines: Sequence[str]) -> None:
        """Has these lines, and no other, stand there. Only what is not there yet is written: the
        link may be slow."""
        size = (self.width, self.height)
        resized = size != self._size
        there = [] if resized else self._drawn
        wanted = [*lines[: size[1]], *[""] * (len(there) - len(lines))]
        written = _CLEAR if resized else ""
        for number, line in enumerate(wanted):
            if number >= len(there) or line != there[number]:
                written += f"\x1b[{number + 1};1H\x1b[2K{line}"
        self._size, self._drawn = size, wanted
        sys.stdout.write(written)
        sys.stdout.flush()

    def keys(self, seconds: float) -> bytes:
        """Waits so long, or until keys are pressed, and returns them; `q` where there is nobody to
        press any more."""
        if self._keyboard is None:
            time.sleep(seconds)
            return b""
        ready, _, _ = select.select([self._keyboard], [], [], seconds)
        return (os.read(self._keyboard, 64) or b"q") if ready else b""


@contextlib.contextmanager
def drawing() -> Iterator[Screen]:
    """The terminal, to draw on; as it was afterwards, however this ends. Ctrl-C ends it, and
    SIGTERM ends the process."""
    import termios
    import tty

    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    was = termios.tcgetattr(keyboard) if keyboard is not None else None
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        console.set_alt_screen(True)
        console.show_cursor(False)
        yield Screen(console, keyboard)
    except KeyboardInterrupt:
        pass  # Ctrl-C is a way to end it
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # asked twice, it must still tidy up
        console.show_cursor(True)
        console.set_alt_screen(False)
        if keyboard is not None and was is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, was)
        signal.signal(signal.SIGTERM, old)
