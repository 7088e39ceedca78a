"""The progress bar of a Spark job, over all its phases."""

import sys
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from redrive.cli.output import line


class _Speed(ProgressColumn):
    """A column with the messages per second."""

    def render(self, task: Task) -> Text:
        return line(f"{task.speed:,.0f}/s" if task.speed else "–/s")


class Bar:
    """A bar on stderr if that is a terminal; otherwise nothing. A context manager."""

    def __init__(self) -> None:
        console = Console(file=sys.stderr, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            _Speed(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._phase = ""
        self._done = 0

    def on_progress(self, phase: str, done: int, total: int) -> None:
        """Show how many messages of `total` have passed a phase."""
        if phase != self._phase or done < self._done:
            self._phase = phase
            self._progress.reset(self._task, total=total, description=phase)
        self._done = done
        if done < total:
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)
        if done >= total:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        """Remove the bar. One that was never shown is left alone: rich before 14.3 would print an
        empty line for it."""
        if self._progress.live.is_started:
            self._progress.stop()
