"""Thousands of messages on their way, and what became of each when something broke."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from contract.support import Recorder, Service, fails_first
from effort import effort
from redrive import Message, RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.confirms import WINDOW
from redrive.testing import Broker

COUNT = effort(2_000, nightly=10_000)
PREFETCH = 200
MOST_DUPLICATES = PREFETCH + WINDOW
"""What the subscriber had not settled, and what the publisher had no confirm for."""

_QUIET_SECONDS = 60.0
"""Without an attempt, where AMQP says that nothing is left: it does not say what is being
dead-lettered."""
_STANDSTILL_SECONDS = 100.0
"""Without an attempt, where something is left."""
_RELEASES = 3
_fails_twice = fails_first(2)


def fails(number: int) -> bool:
    """Whether the handler fails the first two attempts of a message: every third one."""
    return number % 3 == 0


def a_third_fails_twice(message: Message) -> None:
    """The handler."""
    if fails(int(message.body)):
        _fails_twice(message)


def let_the_broker_remember(broker: Broker) -> None:
    """Restarts the broker, so that a quorum queue that was just declared outlives a kill.

    The name is on disk a moment after the declaration, or after a clean stop; a node killed before
    that begins the queue anew, without what was confirmed in it.
    Source: measured on RabbitMQ 3.10.8 and 4.3.6, "configured member … was not found on this node.
    Starting member as a new one".
    """
    broker.restart()


def release_what_is_stuck(broker: Broker, url: str) -> bool:
    """Restarts a RabbitMQ 3.10 that holds back for good what it was dead-lettering when it was
    killed, as docs/brokers.md advises; returns whether it did.

    Source: RabbitMQ 3.10.8, a third of the kills on a busy machine: 21 messages of a queue in
    `messages_dlx` of the management API, none in what AMQP reports, and nothing moves.
    """
    if not broker.version.startswith("3.10."):
        return False
    with ManagementAPI(url, broker.management_url) as management:
        stuck = sum(
            count
            for queue in management.listed("queues/{vhost}")
            if isinstance(count := queue.get("messages_dlx"), int)
        )
    if stuck:
        broker.restart()
    return stuck > 0


class Journey:
    """Publishes and handles messages; `disturb` is called once a third of them were tried.

    Args:
        service: the subscription; its URL may be that of a proxy.
        disturb: breaks something, and mends it again.
        release: asked where nothing moves any more and some are missing: whether it has set free
            what was stuck.
        count: how many messages.
        options: further ones of the subscription.
    """

    def __init__(
        self,
        service: Service,
        disturb: Callable[[], object],
        release: Callable[[], bool] = lambda: False,
        *,
        count: int = COUNT,
        **options: Any,
    ) -> None:
        self._service = service
        self._count = count
        self._recorder = Recorder(a_third_fails_twice)
        self._unconfirmed = -1
        service.declare(**options)
        publishing = threading.Thread(target=self._publish)
        with service.subscriber(self._recorder, prefetch=PREFETCH, concurrency=4, **options):
            publishing.start()
            self._recorder.wait_for_attempts(count // 3, 120)
            disturb()
            publishing.join(300)
            assert not publishing.is_alive(), "the publisher is not through"
            self._wait_until_all_or_nothing_moves()
            for _ in range(_RELEASES):
                if len(self._recorder.handled) < count and release():
                    self._wait_until_all_or_nothing_moves()

    @property
    def unconfirmed(self) -> int:
        """How many messages the publisher had to report as failed."""
        return self._unconfirmed

    @property
    def lost(self) -> set[int]:
        """The numbers that were published, and neither handled nor set aside."""
        return self.lost_at(self._service.url)

    def lost_at(self, url: str) -> set[int]:
        """The same, where the service's own address is gone."""
        handled = self._recorder.handled
        found = {
            int(attempt.body)
            for attempt in self._recorder.attempts
            if attempt.message_id in handled
        }
        return (
            set(range(self._count))
            - found
            - {int(message.body) for message in replace(self._service, url=url).failed()}
        )

    @property
    def duplicates(self) -> int:
        """How often a message was handled that had been handled before."""
        handled = self._recorder.handled
        return handled.total() - len(handled)

    def _publish(self) -> None:
        with self._service.publisher(timeout=60) as publisher:
            report = publisher.publish_many(
                ((str(number), "order.paid") for number in range(self._count)), mandatory=True
            )
        self._unconfirmed = len(report.failed)

    def _wait_until_all_or_nothing_moves(self) -> None:
        # For as long as it takes: a busy machine handles ten a second.
        attempts, moved_at = -1, time.monotonic()
        left_at = moved_at
        while len(self._recorder.handled) < self._count:
            now = time.monotonic()
            if len(self._recorder.attempts) != attempts:
                attempts, moved_at, left_at = len(self._recorder.attempts), now, now
            elif not self._is_consumed_and_empty():
                left_at = now
            if now - moved_at > _STANDSTILL_SECONDS or now - left_at > _QUIET_SECONDS:
                return
            time.sleep(0.1)

    def _is_consumed_and_empty(self) -> bool:
        """Whether nothing is left that could still come."""
        queue = self._service.queue
        with (
            contextlib.suppress(RedriveError),
            declaring(Connector(self._service.url, "journey")) as declarer,
        ):
            main, retry = declarer.depth(queue), declarer.depth(f"{queue}@retry")
            return bool(
                main and main.consumers and not main.messages and retry and not retry.messages
            )
        return False
