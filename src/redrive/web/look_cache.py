"""The failed queues as earlier looks found them, and the looks that people request.

A page is answered from the index of looks alone; it never touches a queue. A look happens only on
request.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar, cast

from redrive.errors import RedriveError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.message.groups import Groups
from redrive.failures.queue.message_source import answer_of
from redrive.failures.store.look import CachePolicy, Look
from redrive.failures.store.masked_messages import masked_look
from redrive.pubsub.reports import LookProgress, LookStage
from redrive.web.console_settings import ConsoleSettings
from redrive.web.look_questions import LookQuestion
from redrive.web.page_request import QueuePlace
from redrive.web.questions import Questions, QuestionTask, answered

T = TypeVar("T")

_EVER = timedelta(days=36500)
_LONGEST_PAGE = timedelta(seconds=10)
"""How long after a look's end a page that was started before it may be rendered. Not forever, as
the messages that a look found may be gone again."""


@dataclass(slots=True)
class RunningLook:
    """A look at a queue that somebody requested.

    Args:
        place: the queue.
        progress: its progress.
        problem: why it failed, or why its result was not kept; empty otherwise.
        begun_at: when it was requested.
        ended_at: when it ended; None before that.
    """

    place: QueuePlace
    progress: LookProgress = field(default_factory=lambda: LookProgress(LookStage.WAITING))
    problem: str = ""
    begun_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None

    def is_still_to_be_seen(self, shown: Look | None) -> bool:
        """Return whether a page with an earlier look, or none, should be reloaded for this one: it
        is running, or it ended while the page was rendered."""
        if self.ended_at is None:
            return True
        return (
            not self.problem
            and datetime.now(UTC) - self.ended_at < _LONGEST_PAGE
            and (shown is None or shown.as_of is None or shown.as_of < self.begun_at)
        )

    def end(self) -> None:
        """Record that it has ended."""
        self.ended_at = datetime.now(UTC)

    def note(self, progress: LookProgress) -> None:
        """Record its progress."""
        self.progress = progress

    def note_problem(self, problem: str) -> None:
        """Record a problem."""
        self.problem = problem


class LookCache:
    """The failed queues of a broker, as earlier looks found them."""

    def __init__(
        self,
        settings: ConsoleSettings,
        check: Callable[[QueuePlace], object],
        questions: Questions,
        user: str = "",
    ) -> None:
        self._settings = settings
        self._check = check
        self.questions = questions
        self._user = user
        self._lock = threading.Lock()
        self._queues: dict[QueuePlace, FailedQueue] = {}
        self._looks: dict[QueuePlace, RunningLook] = {}
        self.last_seen: dict[QueuePlace, tuple[Groups, datetime]] = {}
        """The causes that the last look at each queue has found, and when that was: a queue keeps
        its place on the overview while its look is out of date."""
        self.seen_at: dict[QueuePlace, datetime | None] = {}
        """When the last look was that has answered for a queue."""

    def queue(self, place: QueuePlace) -> FailedQueue:
        """Return the failed queue of a page."""
        with self._lock:
            found = self._queues.get(place)
            if found is None:
                found = self._queues[place] = FailedQueue(
                    self._settings.url,
                    place.name,
                    self._settings.family,
                    connection_name=f"redrive console: {place.name}"[:100],
                    management_url=self._settings.management_url,
                    literal=place.literal,
                )
            return found

    def ask(self, place: QueuePlace, question: Callable[[Look], T]) -> tuple[T, Look]:
        """Return the answer of an earlier look, and that look; the queue is not touched."""
        self._check(place)
        mask = self._settings.mask
        kept = CachePolicy(_EVER, or_look=False, keeps_bodies=not self._settings.hide_bodies)
        answer, look = answer_of(
            self.queue(place), lambda look: question(masked_look(look, mask)), recall=kept
        )
        self.seen_at[place] = look.as_of
        return answer, look

    def answer(self, place: QueuePlace, question: LookQuestion[T]) -> tuple[T, Look]:
        """Return the answer of an earlier look, and that look without its messages; the queue is
        not touched. Filters and queries written by users run in a process with limits."""
        self._check(place)
        settings = self._settings
        task = QuestionTask(
            place,
            settings.url,
            settings.family,
            settings.management_url,
            settings.mask,
            not settings.hide_bodies,
            question,
        )
        if question.has_expression:
            answer, look = self.questions.ask(self._user, task)
        else:
            answer, look = answered(task, self.queue(place))
        self.seen_at[place] = look.as_of
        return cast("T", answer), look

    def look_under_way(self, place: QueuePlace) -> RunningLook | None:
        """Return the look that was requested last; None if there was none."""
        with self._lock:
            return self._looks.get(place)

    @property
    def is_looking(self) -> bool:
        """Whether a requested look is running."""
        with self._lock:
            return any(not look.has_ended for look in self._looks.values())

    def look_again(self, place: QueuePlace) -> RunningLook:
        """Start a look at a queue in a thread, unless one is running, and return it."""
        self._check(place)
        failed = self.queue(place)
        with self._lock:
            known = self._looks.get(place)
            if known is not None and not known.has_ended:
                return known
            look = self._looks[place] = RunningLook(place)
        threading.Thread(
            target=_look,
            args=(failed, look, not self._settings.hide_bodies),
            name=f"redrive-look-{place.name}",
            daemon=True,
        ).start()
        return look


def _read(look: Look) -> None:
    for _ in look:
        pass


def _look(failed: FailedQueue, under_way: RunningLook, keeps_bodies: bool) -> None:
    recall = CachePolicy(timedelta(0), on_notice=under_way.note_problem, keeps_bodies=keeps_bodies)
    try:
        _, look = answer_of(failed, _read, recall=recall, on_progress=under_way.note)
        if not look.is_whole and not under_way.problem:
            under_way.problem = (
                "other consumers hold messages of this queue, so not all could be read; this "
                "page still shows the previous scan"
            )
    except RedriveError as error:
        under_way.problem = str(error)
    finally:
        under_way.end()
