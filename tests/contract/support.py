"""What the tests of both suites say things with: a service, handlers that remember, and waiting
with a deadline."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from contract.shells import BLOCKING, SHELLS, Handles, KeepsFailed, Publishes, Shell, Subscribes
from effort import nightly
from redrive import (
    ConfigurationError,
    ExchangeFamily,
    FailedMessage,
    FailedQueue,
    Message,
    RedriveError,
    RetryPolicy,
)
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.headers import Delivery
from redrive.topology.model import QueueType
from waiting import DEADLINE, wait_for_count, wait_until

"""What should come within a second may take this long on a machine that does many things at once;
then it counts as never."""
SOON = timedelta(milliseconds=50)
"""A retry delay that a test can wait for."""

_WHAT_IS_DECLARED = {
    "routing_keys",
    "retry",
    "queue_type",
    "retry_via",
    "exchange",
    "tags",
    "where",
    "ordered",
    "order_by",
    "when_given_up",
    "max_failed",
}

both_types = pytest.mark.parametrize("queue_type", ["quorum", "classic"])
both_shells = pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.name)


def mostly(shell: Shell) -> pytest.MarkDecorator:
    """Run a test with one shell, and in a nightly run with the other one, too: where both have the
    same engine, and what is tried takes long."""
    others = [other for other in SHELLS if other is not shell]
    rest = [nightly(other, why="the other shell", id=other.name) for other in others]
    return pytest.mark.parametrize("shell", [pytest.param(shell, id=shell.name), *rest])


class Attempt(NamedTuple):
    """One run of a handler."""

    message_id: str
    retries: int
    routing_key: str
    body: bytes
    headers: Mapping[str, FieldValue]
    thread: str


class Recorder:
    """A handler that notes each attempt, and then does as it is told."""

    def __init__(self, act: Callable[[Message], object] = lambda _: None) -> None:
        self._act = act
        self._lock = threading.Lock()
        self._attempts: list[Attempt] = []
        self._handled: list[str] = []

    def __call__(self, message: Message) -> None:
        attempt = Attempt(
            message.message_id or "",
            message.retries,
            message.routing_key,
            message.body,
            message.headers,
            threading.current_thread().name,
        )
        with self._lock:
            self._attempts.append(attempt)
        self._act(message)
        with self._lock:
            self._handled.append(attempt.message_id)

    @property
    def attempts(self) -> list[Attempt]:
        """Each run that was begun."""
        with self._lock:
            return list(self._attempts)

    @property
    def tried(self) -> Counter[str]:
        """How often each message was tried, by its id."""
        return Counter(attempt.message_id for attempt in self.attempts)

    @property
    def handled(self) -> Counter[str]:
        """How often each message was handled to the end, by its id."""
        with self._lock:
            return Counter(self._handled)

    @property
    def order(self) -> list[str]:
        """The ids of what was handled, in its order."""
        with self._lock:
            return list(self._handled)

    def wait_for_handled(self, ids: Iterable[str], seconds: float = DEADLINE) -> None:
        """Waits until each of these was handled at least once: for as long as they become more, and
        then so many seconds."""
        wanted = set(ids)
        wait_for_count(
            lambda: len(wanted & self.handled.keys()), len(wanted), "messages are handled", seconds
        )

    def wait_for_attempts(self, count: int, seconds: float = DEADLINE) -> None:
        """Waits until so many runs were begun, as `wait_for_handled` does."""
        wait_for_count(lambda: len(self.attempts), count, "attempts are begun", seconds)


class OutOfStock(Exception):
    """What a handler of these tests fails with."""


def always_fails(message: Message) -> None:
    """A handler that never succeeds."""
    raise OutOfStock(f"no more socks for {message.message_id}")


def fails_first(times: int) -> Handles:
    """A handler that fails at its first `times` attempts with a message."""

    def handle(message: Message) -> None:
        if message.retries < times:
            raise OutOfStock("not yet")

    return handle


def retrying(max_retries: int = 3, delay: timedelta = SOON, max_crashes: int = 5) -> RetryPolicy:
    """A retry budget with a delay that a test can wait for."""
    return RetryPolicy(max_retries=max_retries, delay=delay, max_crashes=max_crashes)


@dataclass(frozen=True)
class Service:
    """A service with one subscription."""

    url: str
    shell: Shell = BLOCKING
    queue: str = "shop@orders"
    queue_type: QueueType = "quorum"
    routing_keys: tuple[str, ...] = ("order.*",)
    retry: RetryPolicy = field(default_factory=retrying)

    def subscriber(self, handler: Handles, **options: Any) -> AbstractContextManager[Subscribes]:
        """Declares the subscription, and runs it for as long as the block."""
        self.declare(
            **{name: value for name, value in options.items() if name in _WHAT_IS_DECLARED}
        )
        return self.shell.subscriber(
            handler, options.pop("url", self.url), self.queue, **self._subscription(options)
        )

    def declare(self, **options: Any) -> None:
        """Declares the subscription."""
        if options.pop("order_by", None) is not None:
            options["ordered"] = True
        self.shell.declare(options.pop("url", self.url), self.queue, **self._subscription(options))

    def publisher(self, **options: Any) -> AbstractContextManager[Publishes]:
        """An open publisher."""
        return self.shell.publisher(options.pop("url", self.url), **options)

    def publish(
        self,
        body: object = "socks",
        routing_key: str = "order.paid",
        *,
        exchange: str | ExchangeFamily = "master",
        **options: Any,
    ) -> str:
        """Publishes one message that must get into a queue; returns its id."""
        with self.publisher(exchange=exchange) as publisher:
            return publisher.publish(body, routing_key, mandatory=True, **options)

    def publish_softly(self) -> str:
        """Publishes one message, whether or not somebody listens already; returns its id."""
        with self.publisher() as publisher:
            return publisher.publish("socks", "order.paid")

    def publish_numbered(self, count: int, routing_key: str = "order.paid") -> list[str]:
        """Publishes the numbers from 0 on, one at a time, and returns the ids in their order."""
        with self.publisher() as publisher:
            return [
                publisher.publish(str(number), routing_key, mandatory=True)
                for number in range(count)
            ]

    @property
    def failed_queue(self) -> KeepsFailed:
        """The subscription's failed queue."""
        return self.shell.failed_queue(self.url, self.queue)

    def failed(self) -> list[FailedMessage]:
        """What is in the failed queue, the oldest first."""
        return list(self.failed_queue.browse())

    def failed_ids(self) -> list[str]:
        """The ids of what is in the failed queue, the oldest first."""
        return [message.message_id or "" for message in self.failed()]

    def wait_for_failed(self, count: int = 1, seconds: float = DEADLINE) -> list[FailedMessage]:
        """Waits until so many messages are in the failed queue, and returns them."""
        wait_until(
            lambda: self.failed_queue.depth() >= count,
            f"{count} messages are in the failed queue",
            seconds,
        )
        found = self.failed()
        assert len(found) == count
        return found

    def fail(self, count: int) -> list[str]:
        """Publishes numbered messages and has them all set aside without a retry; returns their ids
        in the failed queue's order."""
        retry = retrying(0, self.retry.delay)
        self.declare()
        with self.publisher() as publisher:
            report = publisher.publish_many(
                ((str(number), "order.paid") for number in range(count)), mandatory=True
            )
        assert report.confirmed == count
        with self.subscriber(always_fails, retry=retry, prefetch=200):
            self.wait_for_failed(count, DEADLINE + count / 50)
        return self.failed_ids()

    def set_aside(self, count: int) -> list[str]:
        """Puts numbered messages into the failed queue as if they had failed, which takes much
        longer; returns their ids in its order."""
        self.declare()
        return self.set_aside_declared(count)

    def set_aside_declared(
        self, count: int, headers: Mapping[str, FieldValue] | None = None
    ) -> list[str]:
        """The same, for a subscription that was declared in its own way, and with more headers."""
        return self._restored((str(number), headers or {}) for number in range(count))

    def set_aside_each(self, headers: Iterable[Mapping[str, FieldValue]]) -> None:
        """The same, with headers of its own for each message, whose id is 0."""
        self._restored(("0", own) for own in headers)

    def _restored(self, messages: Iterable[tuple[str, Mapping[str, FieldValue]]]) -> list[str]:
        deliveries = [self._set_aside(id_, headers) for id_, headers in messages]
        report = FailedQueue(self.url, self.queue).restore(iter(deliveries))
        assert report.confirmed == len(deliveries)
        return [str(delivery.properties.message_id) for delivery in deliveries]

    def _set_aside(self, message_id: str, headers: Mapping[str, FieldValue]) -> Delivery:
        # With other headers it is another failure.
        own = {
            "redrive-failure-id": f"{message_id}{'-'.join(map(str, headers.values()))}",
            "x-orig-routing-key": "order.paid",
        }
        properties = Properties(
            headers=Table.of({**own, **headers}), delivery_mode=2, message_id=message_id
        )
        return Delivery(self.queue, "master.failed", self.queue, properties, b"{}")

    def _subscription(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "routing_keys": self.routing_keys,
            "retry": self.retry,
            "queue_type": self.queue_type,
            **options,
        }


def assert_it_helps(error: RedriveError, *found: str, secret: str = "guest:guest") -> None:
    """An error that a person can act on: one or two lines that say what was found and what to do,
    and no password."""
    text = str(error)
    assert 1 <= len(text.splitlines()) <= 2, text
    for words in found:
        assert words in text
    assert secret not in text
    assert secret not in repr(error)


def holds_back(service: Service) -> bool:
    """Whether this broker itself holds failed messages back; else it is asserted that it is told
    apart."""
    with declaring(Connector(service.url, "tests")) as declarer:
        version = declarer.version
    if version.holds_failed_messages_back:
        return True
    with pytest.raises(ConfigurationError) as refused:
        service.declare(retry_via="broker")
    assert_it_helps(refused.value, "needs RabbitMQ 4.3 or newer", str(version))
    return False
