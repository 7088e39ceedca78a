"""A model of RabbitMQ in this process, for tests of handlers: no server, and time that can be
turned."""

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
    """Tells the time in seconds since 1970."""

    def __init__(self, *, stands_still: bool) -> None:
        self.stands_still = stands_still
        self._began = time.time()
        self._at = time.monotonic()
        self._turned = self._began

    def now(self) -> float:
        """The time."""
        return self._turned if self.stands_still else self._began + time.monotonic() - self._at

    def turn_to(self, moment: float) -> None:
        """Has it be this moment; time never goes back."""
        self._turned = max(self._turned, moment)


_MEASURED = {"3.10": "3.10.8", "4.0": "4.0.5", "4.3": "4.3.6"}
"""The versions whose behaviour the model has."""
_PATIENCE = 60.0


class _BrokerModel:
    """What its connections see of the broker."""

    def __init__(self, version: str, login: tuple[str, str]) -> None:
        self.version = version
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self._login = login

    def lets_in(self, username: str, password: str) -> bool:
        """Whether this user may log in."""
        return (username, password) == self._login


class MemoryBroker:
    """A broker for tests that is there at once, forgets everything at its end, and whose time
    stands still until it is turned.

        with MemoryBroker() as broker, Publisher(broker.url) as publisher:
            publisher.publish({"id": 121}, "order.create")
            broker.turn(timedelta(seconds=30))

    Whatever speaks AMQP 0-9-1 may connect to its `url`: both shells, `FailedQueue`, plain pika. All
    of redrive's code runs as it does with RabbitMQ; of RabbitMQ there is a model, which redrive's
    contract tests hold to the real one. It has exchanges of all four kinds, classic and quorum
    queues, dead-lettering with `x-death`, TTLs, delivery limits, the delayed retry of 4.3, confirms
    and returns, priorities of consumers, single active consumers.

    It has no users and rights besides `guest`, no policies, no streams, no TLS, no management API,
    no cluster, no memory alarm, no priorities of messages and no consumer timeout; nothing is on
    disk. What redrive itself waits for is not turned: the hold of an ordered queue, the time before
    it connects again, `handler_timeout`, `grace`. A message that can't be dead-lettered waits
    without holding up those behind it, as it would on RabbitMQ.

    Args:
        version: whose behaviour it has: `4.3`, `4.0` or `3.10`.
        real_time: whether time passes by itself, and can't be turned.

    Raises:
        ConfigurationError: it has no such version's behaviour.
    """

    def __init__(self, version: str = "4.3", *, real_time: bool = False) -> None:
        known = _MEASURED.get(version, version)
        if known not in _MEASURED.values():
            raise ConfigurationError(
                f"the broker in memory has no behaviour of RabbitMQ {version!r}",
                f"Give one of {', '.join(_MEASURED)}.",
            )
        self._version = known
        self._clock = Clock(stands_still=not real_time)
        premises = _BrokerModel(known, ("guest", "guest"))
        self._hosts = premises.virtual_hosts
        self._add_host("/")
        self._loopback = Loopback(premises, self._run, self._seconds_until_due)
        self._changed = threading.Condition(self._loopback.lock)
        self._address = Address("127.0.0.1", self._loopback.port)

    # --- where it is ------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The AMQP URL of the virtual host `/`."""
        return self._address.url

    @property
    def version(self) -> str:
        """The version whose behaviour it has, such as `4.3.6`."""
        return self._version

    def create_virtual_host(self, name: str) -> str:
        """Creates a virtual host, or finds it there; returns its AMQP URL."""
        with self._loopback.changing():
            if name not in self._hosts:
                self._add_host(name)
        return self._address.on(name).url

    def close(self) -> None:
        """Ends all connections, and forgets everything; the second call does nothing."""
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
        """Its time, UTC."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    def turn(self, by: Duration, *, timeout: float = _PATIENCE) -> None:
        """Lets so much time pass: what becomes due meanwhile happens in its order, and each time
        handlers run until they are idle.

        Args:
            by: how much.
            timeout: seconds that handlers may take in all, each time.

        Raises:
            ConfigurationError: its time passes by itself, or an event loop runs here, which would
                stand still: `turn_async` is for that.
            BrokerUnavailable: handlers did not become idle.
        """
        _refuse_in_a_loop("turn")
        self._turn(by, timeout)

    async def turn_async(self, by: Duration, *, timeout: float = _PATIENCE) -> None:
        """The same as `turn`, for handlers on this event loop."""
        await asyncio.to_thread(self._turn, by, timeout)

    def until_idle(self, *, timeout: float = _PATIENCE) -> None:
        """Waits until no consumer has a message that it has not settled.

        Raises:
            ConfigurationError: an event loop runs here, which would stand still:
                `until_idle_async` is for that.
            BrokerUnavailable: it took longer than `timeout` seconds.
        """
        _refuse_in_a_loop("until_idle")
        self._wait_until_idle(timeout)

    async def until_idle_async(self, *, timeout: float = _PATIENCE) -> None:
        """The same as `until_idle`, for handlers on this event loop."""
        await asyncio.to_thread(self._wait_until_idle, timeout)

    def until_consumed(
        self, queue: str, *, virtual_host: str = "/", timeout: float = _PATIENCE
    ) -> None:
        """Waits until somebody consumes a queue: a subscriber that was started is then ready. On an
        event loop, `async with subscriber` does that.

        Raises:
            BrokerUnavailable: nobody did within `timeout` seconds.
        """
        host = self._host(virtual_host)

        def is_consumed() -> bool:
            found = host.queues.get(queue)
            return found is not None and bool(found.consumers)

        self._wait(is_consumed, lambda: f"nobody consumes queue {queue!r}", timeout)

    # --- looking ----------------------------------------------------------------------------------

    def messages(self, queue: str, *, virtual_host: str = "/") -> list[Message]:
        """What is in a queue and no consumer has, in the order in which it is delivered; looking
        changes nothing.

        Raises:
            ConfigurationError: there is no such queue.
        """
        with self._loopback.lock:
            found = self._host(virtual_host).queues.get(queue)
            if found is None:
                raise ConfigurationError(
                    f"the broker in memory has no queue {queue!r}",
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
        """Ends all connections without a word, as a crash would; what was unsettled comes again."""
        self._loopback.drop_clients()

    # --- inside -----------------------------------------------------------------------------------

    def _add_host(self, name: str) -> None:
        self._hosts[name] = VirtualHost(name, BrokerVersion.parse(self._version), self._clock.now)

    def _host(self, name: str) -> VirtualHost:
        if name not in self._hosts:
            raise ConfigurationError(
                f"the broker in memory has no virtual host {name!r}", "Create it first."
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
                "this broker's time passes by itself", "Make it without real_time=True."
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
                    "See what the handler waits for; a subscriber must have been started.",
                )


def _refuse_in_a_loop(what: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"{what} would keep this event loop from running handlers",
        f"Await {what}_async instead.",
    )
