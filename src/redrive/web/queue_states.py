"""What is known of each queue of failed messages, and as of when."""

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.errors import RedriveError
from redrive.failures.queue.depth_watch import Reading
from redrive.failures.queue.failure_feed import FeedState
from redrive.failures.queue.follower import Follower
from redrive.failures.queue.pauses import paused
from redrive.failures.store.look import Look
from redrive.number_text import moment_in_words
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ConsumerReports, ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.topology.control import Control
from redrive.topology.flow import QueueCount, total_of
from redrive.topology.names import FAILED_SUFFIX, failed_queue, retry_queue
from redrive.web.console_settings import ConsoleSettings
from redrive.web.look_cache import LookCache, RunningLook
from redrive.web.page_request import QueuePlace

_FRESH = 2.0
"""Seconds for which an answer of the management API is reused; it is up to five seconds old
already."""


_CONTROLS_FRESH = 10.0


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What the management API counts in a queue of failed messages and its related queues.

    Args:
        place: its place in pages.
        queue: the queue's own name.
        failed: how many messages it has; None if not counted.
        main: how many messages are in the main queue; None for a dead-letter queue.
        retry: how many are waiting for their next attempt; None for a dead-letter queue.
        consumers: how many consumers the main queue or dead-letter queue has; None if unknown.
        moving: how many the broker is moving between its queues or holds back; None if not counted.
        down: what is down, according to the main queue's workers.
        hosts: where its consumers connect from.
    """

    place: QueuePlace
    queue: str
    failed: int | None
    main: int | None = None
    retry: int | None = None
    consumers: int | None = None
    moving: int | None = 0
    down: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is known of a queue, each fact with the time that it is as of.

    Args:
        place: the queue.
        look: the look that the page shows, at its `as_of`; None if there is none.
        outdated: when the last look was, if it can't answer any more.
        under_way: the look that was requested last, at its `begun_at`.
        reading: the depth, at its `at`; None if it was not read over AMQP.
        depth: how many messages the queue has; None if unknown.
        differs_since: since when it has not had the number that the page shows.
        away_since: since when the broker is unreachable; None while it is reachable.
        away_because: the last error from the broker.
        feed: the state of the feed of failures.
    """

    place: QueuePlace
    look: Look | None
    outdated: datetime | None
    under_way: RunningLook | None
    reading: Reading | None
    depth: int | None
    differs_since: datetime | None
    away_since: datetime | None
    away_because: str
    feed: FeedState

    @property
    def difference(self) -> int | None:
        """How many messages the queue has more than the page shows; None if unknown."""
        return None if self.depth is None or self.look is None else self.depth - self.look.total

    @property
    def is_looking(self) -> bool:
        """Whether the page should be reloaded when a running look ends."""
        return self.under_way is not None and self.under_way.is_still_to_be_seen(self.look)

    @property
    def is_missing(self) -> bool:
        """Whether the broker says that there is no such queue."""
        return self.reading is not None and self.reading.depth is None and not self.reading.problem

    @property
    def now(self) -> str:
        """The queue's current state compared with the page, and what to do, in a sentence."""
        reading = self.reading
        if self.away_since is not None:
            return (
                f"The broker has been unreachable since {moment_in_words(self.away_since)}: "
                f"{self.away_because}. This page may be out of date; it updates once the broker is "
                "back."
            )
        if self.is_missing:
            return (
                "There is no such queue at this broker: check its name. redrive declare creates "
                "the queues of a subscription."
            )
        if reading is not None and reading.problem:
            return f"The queue's current size is unknown: {reading.problem}."
        if reading is not None and reading.depth is not None and reading.depth.consumers:
            return "The queue is being scanned, so its current size is unknown."
        if self.depth is None:
            return "The queue's current size is unknown."
        if self.difference is None:
            return (
                f"The queue has {self.depth:,} now."
                if self.depth
                else "The queue is empty: there is nothing to scan."
            )
        if not self.difference:
            return "The queue has the same number now."
        which = "more" if self.difference > 0 else "fewer"
        return (
            f"The queue has {self.depth:,} now, {abs(self.difference):,} {which} than shown here, "
            f"since {moment_in_words(self.differs_since)}."
        )


class QueueStates:
    """The state of a virtual host's queues of failed messages: their counts from the management
    API, their depths and new failures over AMQP, and what holds their subscriptions."""

    def __init__(self, settings: ConsoleSettings, looks: LookCache) -> None:
        self._settings = settings
        self._looks = looks
        self._follower = Follower(
            settings.url, settings.family, keeps_bodies=not settings.hide_bodies
        )
        self._lock = threading.Lock()
        self._counts: list[QueueCounts] = []
        self._counted_at = float("-inf")
        self.listed_at: datetime | None = None
        """When the management API has last listed the queues."""
        self._controls: Mapping[str, Control] = {}
        self._controls_at = float("-inf")
        self._differs: dict[QueuePlace, datetime] = {}

    def state(
        self, place: QueuePlace, look: Look | None, counts: QueueCounts | None = None
    ) -> QueueState:
        """Return what is known of a queue whose page shows a look; start to follow it."""
        if not place.literal:
            self._follower.want(place.name)
        self._follower.start()
        reading = self._follower.reading(place.name if place.literal else failed_queue(place.name))
        depth = None if reading is None else reading.all
        if depth is None and (reading is None or reading.depth is not None):
            # The management API can be slow: it is used only if AMQP has not reported the depth.
            counts = counts or self._count(place)
            depth = None if counts is None else counts.failed
        differs = depth is not None and look is not None and depth != look.total
        return QueueState(
            place,
            look,
            self._looks.seen_at.get(place) if look is None else None,
            self._looks.look_under_way(place),
            reading,
            depth,
            self._since(place, differs=differs),
            self._follower.away_since,
            self._follower.away_because,
            self._follower.feed,
        )

    def _since(self, place: QueuePlace, *, differs: bool) -> datetime | None:
        with self._lock:
            if not differs:
                self._differs.pop(place, None)
                return None
            return self._differs.setdefault(place, datetime.now(UTC))

    def counts(self) -> list[QueueCounts]:
        """Return the counts of the queues, the fullest first; read again every two seconds at
        most."""
        with self._lock:
            if time.monotonic() - self._counted_at > _FRESH:
                self._counts = self._asked()
                self._counted_at, self.listed_at = time.monotonic(), datetime.now(UTC)
            return self._counts

    def close(self) -> None:
        """Stop following."""
        self._follower.close()

    def control_of(self, place: QueuePlace) -> Control | None:
        """Return who has paused the subscription of a queue; None if nobody has, or the user may
        not know."""
        return None if place.literal else self.controls().get(place.name)

    def controls(self) -> dict[str, Control]:
        """Return what is paused, by queue; read again every ten seconds at most."""
        with self._lock:
            if time.monotonic() - self._controls_at > _CONTROLS_FRESH:
                self._controls_at = time.monotonic()
                settings = self._settings
                try:
                    self._controls = paused(settings.url, settings.family)
                except RedriveError:
                    self._controls = {}
            now = datetime.now(UTC)
            return {queue: one for queue, one in self._controls.items() if one.holds(now)}

    def forget_controls(self) -> None:
        """Read anew what is paused, because this console has changed it."""
        with self._lock:
            self._controls_at = float("-inf")

    def _count(self, place: QueuePlace) -> QueueCounts | None:
        with contextlib.suppress(RedriveError):
            return next((one for one in self.counts() if one.place == place), None)
        return None

    def _asked(self) -> list[QueueCounts]:
        url = BrokerURL.parse(self._settings.url)
        with ManagementAPI(url, self._settings.management_url) as management:
            counts = management.counts()
            reports = _reports(management)
            others = dead_letter_survey.over_management(management)
        ours = [
            _of_subscription(name.removesuffix(FAILED_SUFFIX), counts, reports)
            for name in counts
            if name.endswith(FAILED_SUFFIX) and name != FAILED_SUFFIX
        ]
        foreign = [
            QueueCounts(
                QueuePlace(one.queue.name, literal=True),
                one.queue.name,
                one.messages,
                consumers=one.consumers,
            )
            for one in others
        ]
        return sorted((*ours, *foreign), key=lambda line: (-(line.failed or 0), line.place.name))


def _reports(management: ManagementAPI) -> Mapping[str, ConsumerReports]:
    """Return what consumers report; nothing if the broker does not list them."""
    try:
        return management.reports()
    except RedriveError:
        return {}


def _of_subscription(
    main: str, counts: dict[str, QueueCount], reports: Mapping[str, ConsumerReports]
) -> QueueCounts:
    failed, own, retry = (
        counts.get(name) for name in (f"{main}{FAILED_SUFFIX}", main, retry_queue(main))
    )
    return QueueCounts(
        QueuePlace(main),
        f"{main}{FAILED_SUFFIX}",
        _all_of(failed),
        _all_of(own),
        _all_of(retry),
        None if own is None else own.consumers,
        total_of(
            moving
            for count in (failed, own, retry)
            if count is not None
            for moving in (count.dead_lettering, count.held_back)
        ),
        *(tuple(sorted(some)) for some in reports.get(main, ConsumerReports())[1:]),
    )


def _all_of(count: QueueCount | None) -> int | None:
    if count is None:
        return None
    return total_of((count.ready, count.held, count.dead_lettering))
