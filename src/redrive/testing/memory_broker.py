"""An in-process model of RabbitMQ for testing handlers, without a server, and with controllable
time."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.pubsub.message import Message
from redrive.testing.address import Address
from redrive.testing.memory.loopback import Loopback
from redrive.testing.memory.virtual_host import VirtualHost
from redrive.topology import names
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.durations import Duration, duration_of
from redrive.topology.headers import Delivery


class Clock:
    """A clock in seconds since 1970."""

    def __init__(self, *, stands_still: bool) -> None:
        self.stands_still = stands_still
        self._began = time.time()
        self._at = time.monotonic()
        self._turned = self._began

    def now(self) -> float:
        """Return the current time."""
        return self._turned if self.stands_still else self._began + time.monotonic() - self._at

    def turn_to(self, moment: float) -> None:
        """Set the time to this moment; it never goes back."""
        self._turned = max(self._turned, moment)


_MEASURED = {"3.10": "3.10.8", "4.0": "4.0.5", "4.3": "4.3.6"}
"""The versions whose behaviour is modelled."""
_TIMEOUT = 60.0


class _BrokerModel:
    """The broker as seen by its connections."""

    def __init__(self, version: str, login: tuple[str, str]) -> None:
        self.version = version
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self._login = login

    def lets_in(self, username: str, password: str) -> bool:
        """Return whether this user may log in."""
        return (username, password) == self._login


class MemoryBroker:
    """An in-memory broker for tests: it starts at once, forgets everything when closed, and its
    time stands still until it is turned.

        with MemoryBroker() as broker, Publisher(broker.url) as publisher:
            publisher.publish({"id": 121}, "order.create")
            broker.turn(timedelta(seconds=30))

    Any AMQP 0-9-1 client can connect to its `url`: redrive's blocking and asyncio classes,
    `FailedQueue`, plain pika. All of redrive's code runs as it does with RabbitMQ; only RabbitMQ
    itself is replaced by a model, which redrive's contract tests compare to the real one. It has
    exchanges of all four kinds, classic and quorum queues, dead-lettering with `x-death`, TTLs,
    delivery limits, the delayed retry of 4.3, confirms and returns, consumer priorities and single
    active consumers, and streams that forget nothing.

    It has no users and permissions besides `guest`, no policies, no TLS, no management
    API, no cluster, no memory alarm, no message priorities and no consumer timeout; nothing is
    written to disk. redrive's own waiting times are not affected by turning: the hold of an ordered
    queue, the delay before it reconnects, `handler_timeout`, `grace`. Unlike on RabbitMQ, a message
    that can't be dead-lettered waits without holding up those behind it.

    Args:
        version: the RabbitMQ version to model: `4.3`, `4.0` or `3.10`.
        real_time: whether time passes by itself, in which case it can't be turned.

    Raises:
        ConfigurationError: the version is not modelled.
    """

    def __init__(self, version: str = "4.3", *, real_time: bool = False) -> None:
        known = _MEASURED.get(version, version)
        if known not in _MEASURED.values():
            raise ConfigurationError(
                f"the in-memory broker does not model RabbitMQ {version!r}",
                f"Give one of {', '.join(_MEASURED)}.",
            )
        self._version = known
        self._clock = Clock(stands_still=not real_time)
        model = _BrokerModel(known, ("guest", "guest"))
        self._hosts = model.virtual_hosts
        self._add_host("/")
        self._loopback = Loopback(model, self._run, self._seconds_until_due)
        self._changed = threading.Condition(self._loopback.lock)
        self._address = Address("127.0.0.1", self._loopback.port)

    # --- address ----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host `/`."""
        return self._address.url

    @property
    def version(self) -> str:
        """The modelled version, such as `4.3.6`."""
        return self._version

    def create_virtual_host(self, name: str) -> str:
        """Create a virtual host unless it exists, and return its AMQP URL."""
        with self._loopback.changing():
            if name not in self._hosts:
                self._add_host(name)
        return self._address.on(name).url

    def close(self) -> None:
        """Drop all connections and forget everything. A second call does nothing."""
        self._loopback.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MemoryBroker {self._address.label} version={self._version}>"

    # --- time -------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The broker's current time in UTC."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    def turn(self, by: Duration, *, timeout: float = _TIMEOUT) -> None:
        """Let this much time pass. Everything that becomes due happens in order, and each time the
        handlers run until they are idle.

        Args:
            by: how much time.
            timeout: seconds that all handlers may take together, each time.

        Raises:
            ConfigurationError: the broker runs in real time, or this is called on a running event
                loop, which it would block: use `turn_async` there.
            BrokerUnavailable: handlers did not become idle.
        """
        _refuse_in_a_loop("turn")
        self._turn(by, timeout)

    async def turn_async(self, by: Duration, *, timeout: float = _TIMEOUT) -> None:
        """Do the same as `turn`, for handlers on this event loop."""
        await asyncio.to_thread(self._turn, by, timeout)

    def until_idle(self, *, timeout: float = _TIMEOUT) -> None:
        """Wait until no consumer has an unsettled message.

        Raises:
            ConfigurationError: this is called on a running event loop, which it would block: use
                `until_idle_async` there.
            BrokerUnavailable: it took longer than `timeout` seconds.
        """
        _refuse_in_a_loop("until_idle")
        self._wait_until_idle(timeout)

    async def until_idle_async(self, *, timeout: float = _TIMEOUT) -> None:
        """Do the same as `until_idle`, for handlers on this event loop."""
        await asyncio.to_thread(self._wait_until_idle, timeout)

    def until_consumed(
        self, queue: str, *, virtual_host: str = "/", timeout: float = _TIMEOUT
    ) -> None:
        """Wait until a queue has a consumer, that is, until a started subscriber is ready. On an
        event loop, `async with subscriber` does the same.

        Raises:
            BrokerUnavailable: the queue had no consumer within `timeout` seconds.
        """
        host = self._host(virtual_host)

        def is_consumed() -> bool:
            found = host.queues.get(queue)
            return found is not None and bool(found.consumers)

        self._wait(is_consumed, lambda: f"nobody consumes queue {queue!r}", timeout)

    # --- inspection -------------------------------------------------------------------------------

    def messages(self, queue: str, *, virtual_host: str = "/") -> list[Message]:
        """Return the messages of a queue that no consumer has, in delivery order. This changes
        nothing.

        Raises:
            ConfigurationError: there is no such queue.
        """
        with self._loopback.lock:
            found = self._host(virtual_host).queues.get(queue)
            if found is None:
                raise ConfigurationError(
                    f"the in-memory broker has no queue {queue!r}",
                    f"It has {', '.join(sorted(self._host(virtual_host).queues)) or 'none'}.",
                )
            main = queue.removesuffix(names.failed_queue("")).removesuffix(names.retry_queue(""))
            return [
                Message(
                    Delivery(
                        main,
                        copy.content.exchange,
                        copy.content.routing_key,
                        copy.content.properties,
                        copy.content.body,
                        copy.is_redelivered,
                    )
                )
                for copy in found.contents()
            ]

    def drop_connections(self) -> None:
        """Drop all connections without closing them, as a crash would; unsettled messages are
        delivered again."""
        self._loopback.drop_clients()

    # --- internal ---------------------------------------------------------------------------------

    def _add_host(self, name: str) -> None:
        self._hosts[name] = VirtualHost(name, BrokerVersion.parse(self._version), self._clock.now)

    def _host(self, name: str) -> VirtualHost:
        if name not in self._hosts:
            raise ConfigurationError(
                f"the in-memory broker has no virtual host {name!r}", "Create it first."
            )
        return self._hosts[name]

    def _run(self) -> None:
        for host in self._hosts.values():
            host.run()
        self._changed.notify_all()

    def _seconds_until_due(self) -> float | None:
        if self._clock.stands_still:
            return None
        due = self._next_due()
        return None if due is None else due - self._clock.now()

    def _next_due(self) -> float | None:
        moments = [
            moment for host in self._hosts.values() if (moment := host.next_due()) is not None
        ]
        return min(moments, default=None)

    def _turn(self, by: Duration, timeout: float) -> None:
        if not self._clock.stands_still:
            raise ConfigurationError(
                "this broker runs in real time", "Create it without real_time=True."
            )
        end = self._clock.now() + duration_of(by, "the time to turn by").total_seconds()
        while True:
            self._wait_until_idle(timeout)
            with self._loopback.changing():
                due = self._next_due()
                if due is None or due > end:
                    self._clock.turn_to(end)
                    break
                self._clock.turn_to(due)
        self._wait_until_idle(timeout)

    def _wait_until_idle(self, timeout: float) -> None:
        def is_idle() -> bool:
            return all(host.is_idle for host in self._hosts.values())

        self._wait(is_idle, self._what_is_unsettled, timeout)

    def _what_is_unsettled(self) -> str:
        open_ones = [
            f"{queue.unsettled or len(queue)} of queue {queue.name!r}"
            for host in self._hosts.values()
            for queue in host.queues.values()
            if not queue.is_idle
        ]
        return f"messages are not settled: {', '.join(open_ones)}"

    def _wait(
        self, condition: Callable[[], bool], what_is_missing: Callable[[], str], timeout: float
    ) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise BrokerUnavailable(
                    self._address.label,
                    f"{what_is_missing()}, for {timeout:g} s",
                    "Check what the handler waits for, and that a subscriber was started.",
                )


def _refuse_in_a_loop(what: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{what} would block this event loop, so that no handler runs",
        f"Await {what}_async instead.",
    )
