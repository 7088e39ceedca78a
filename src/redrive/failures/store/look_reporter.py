"""Progress reports of a look."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from redrive.pubsub.reports import LookProgress, LookStage

logger = logging.getLogger("redrive")

OnLook = Callable[[LookProgress], None]

_EVERY = 0.1
_WORTH_A_WORD = 2.0
"""Seconds of waiting after which the log names the holder, if there is no progress callback."""


class LookReporter:
    """Reports the progress of one look, about ten times a second and at each new stage."""

    def __init__(
        self, queue: str, on_progress: OnLook | None, note: OnLook = lambda _: None
    ) -> None:
        self._queue = queue
        self._on_progress = on_progress
        self._note = note
        self._now = LookProgress(LookStage.WAITING)
        self._count = 0
        self._told_at = 0.0
        self._began = time.monotonic()
        self._said = False

    def waiting(self, holder: str) -> None:
        """Report that somebody else holds messages of the queue."""
        if (
            self._on_progress is None
            and not self._said
            and time.monotonic() - self._began > _WORTH_A_WORD
        ):
            self._said = True
            logger.warning("waiting: %s is reading %s", holder or "somebody else", self._queue)
        self._tell(LookProgress(LookStage.WAITING, holder=holder))

    def begin(
        self, total: int, wanted: int, missing: int | None, returns: int | None = None
    ) -> None:
        """Report that the look begins."""
        self._miss(missing)
        self._tell(
            LookProgress(LookStage.LOOKING, total, wanted, missing=missing, returns=returns),
            always=True,
        )

    def looked_at(self, count: int) -> None:
        """Report how many messages were read so far."""
        self._count = count
        if time.monotonic() - self._told_at >= _EVERY:
            self._tell(replace(self._now, looked_at=count, held=count))

    def returning(self, held: int) -> None:
        """Report how many messages are still to be returned to the queue."""
        self._tell(replace(self._now, stage=LookStage.RETURNING, looked_at=self._count, held=held))

    def end(self, looked_at: int, missing: int | None) -> None:
        """Report that all messages are back in the queue, and how many could not be seen."""
        if missing != self._now.missing:
            self._miss(missing)
        self._tell(
            replace(self._now, stage=LookStage.ENDED, looked_at=looked_at, held=0, missing=missing),
            always=True,
        )

    def _miss(self, missing: int | None) -> None:
        if missing != 0 and self._on_progress is None:
            many = "an unknown number of" if missing is None else f"{missing:,}"
            logger.warning(
                "somebody else is reading %s: %s messages are missing from this answer",
                self._queue,
                many,
            )

    def _tell(self, progress: LookProgress, *, always: bool = False) -> None:
        now = time.monotonic()
        always = always or progress.stage is not self._now.stage
        self._now = progress
        if always:
            self._note(progress)
        if self._on_progress is not None and (always or now - self._told_at >= _EVERY):
            self._told_at = now
            self._on_progress(progress)
