"""The current contents of a virtual host's queues."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.errors import RedriveError
from redrive.failures.queue.pauses import paused
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ConsumerReports, ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.topology.control import Control
from redrive.topology.flow import QueueCount, total_of
from redrive.topology.names import FAILED_SUFFIX, retry_queue
from redrive.web.console_settings import ConsoleSettings
from redrive.web.page_request import QueuePlace

_FRESH = 2.0
"""Seconds for which an answer of the management API is reused; it is up to five seconds old
already."""


_CONTROLS_FRESH = 10.0


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue of failed messages, with its related queues.

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


class QueueStates:
    """The state of a virtual host's queues of failed messages, from the management API."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._lines: list[QueueState] = []
        self._asked_at = float("-inf")
        self._controls: Mapping[str, Control] = {}
        self._controls_at = float("-inf")

    def lines(self) -> list[QueueState]:
        """Return the queues, the fullest first; read again every two seconds at most."""
        with self._lock:
            if time.monotonic() - self._asked_at > _FRESH:
                self._lines = self._asked()
                self._asked_at = time.monotonic()
            return self._lines

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

    def line(self, place: QueuePlace) -> QueueState | None:
        """Return the state of a queue; None if unknown."""
        try:
            lines = self.lines()
        except RedriveError:
            return None
        return next((one for one in lines if one.place == place), None)

    def _asked(self) -> list[QueueState]:
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
            QueueState(
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
) -> QueueState:
    failed, own, retry = (
        counts.get(name) for name in (f"{main}{FAILED_SUFFIX}", main, retry_queue(main))
    )
    return QueueState(
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
