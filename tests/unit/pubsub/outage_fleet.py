"""Workers of one queue, their broker, and what their handlers need, in time that a test turns.

The broker is told by what the engines write: a reject waits for its retry, a nack goes back to its
place, and what is published goes where its routing key says.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable

from redrive.amqp.frames import Received
from redrive.pubsub.work import WorkItem
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.outage import Outage
from unit.pubsub.running_engine import NO_PROPERTIES, ORDERS, RunningEngine, properties

TICK = 0.02
RETRY_DELAY = ORDERS.retry.delay.total_seconds()


class Dependency:
    """What the handlers call: up, or down for a time."""

    def __init__(self, down_from: float, down_until: float) -> None:
        self._down = (down_from, down_until)
        self.calls: list[float] = []
        """When it was called."""
        self.failed: list[float] = []

    def is_down(self, now: float) -> bool:
        return self._down[0] <= now < self._down[1]

    def call(self, now: float) -> BaseException | None:
        self.calls.append(now)
        if self.is_down(now):
            self.failed.append(now)
            return ConnectionError("refused")
        return None


class Worker:
    """A process: an engine whose handlers take one tick."""

    def __init__(self, fleet: "Fleet", outages: tuple[Outage, ...]) -> None:
        self._fleet = fleet
        self.running = RunningEngine(
            ORDERS,
            prefetch=30 * fleet.concurrency,
            concurrency=fleet.concurrency,
            outages=outages,
        )
        self._busy: list[tuple[WorkItem, BaseException | None]] = []
        self.running.connect(fleet.version).on_settled = fleet.settled

    def turn(self) -> None:
        """Lets a tick pass: handlers end, messages come, handlers begin."""
        self.running.link.sleep(TICK)
        busy, self._busy = self._busy, []
        for item, error in busy:
            self.running.end(item, error)
        self._confirm()
        self.running.run()
        self._deliver()
        self._begin()

    def _deliver(self) -> None:
        channel = self.running.consuming
        while channel.consumers and channel.is_open and len(channel.unsettled) < channel.prefetch:
            message = self._fleet.next()
            if message is None:
                return
            retries = self._fleet.attempts[message]
            channel.deliver(
                message.encode(),
                exchange="" if retries else "master",
                routing_key="orders" if retries else self._fleet.key_of(message),
                properties=properties(redrive_retries=retries) if retries else NO_PROPERTIES,
            )
            self.running.run()

    def _begin(self) -> None:
        waiting = self.running.workers.waiting
        while waiting and len(self._busy) < self._fleet.concurrency:
            if self.running.engine.skips(waiting[0]):
                waiting.popleft()
                self.running.run()
                continue
            item = self.running.begin()
            if not item.settled:
                self._busy.append((item, self._fleet.handle(item.received.body.decode())))

    def _confirm(self) -> None:
        if self.running.has_published:
            channel = self.running.publishing
            for tag, message in list(channel.unconfirmed.items()):
                self._fleet.published(message.exchange, message.routing_key, message.body.decode())
                channel.ack(tag)

    def stop(self) -> None:
        """Ends it, once what runs has ended."""
        self.running.stop()
        while not self.running.ends:
            self.turn()


class Fleet:
    """A queue that gets messages all the time, and its workers.

    Args:
        dependency: what the handlers need.
        outages: what each of the workers is told of it.
        version: the broker's.
        rate: messages that come each second.
        handle: what comes of a message, by its name; a call of the dependency by default.
    """

    def __init__(
        self,
        dependency: Dependency,
        outages: list[tuple[Outage, ...]],
        version: BrokerVersion,
        *,
        rate: float = 500,
        concurrency: int = 5,
        handle: Callable[[str, "Fleet"], BaseException | None] | None = None,
        key_of: Callable[[str], str] = lambda _: "user.create",
    ) -> None:
        self.now = 0.0
        self.dependency = dependency
        self.version = version
        self.concurrency = concurrency
        self.key_of = key_of
        self._rate = rate
        self._handle = handle
        self._published = 0
        self._queue: deque[str] = deque()
        self._waiting: list[tuple[float, str]] = []
        self.attempts: Counter[str] = Counter()
        """Attempts that count, by message."""
        self.put_back = 0
        self.set_aside: list[str] = []
        self.handled: list[float] = []
        self.workers = [Worker(self, one) for one in outages]

    def handle(self, message: str) -> BaseException | None:
        if self._handle is not None:
            return self._handle(message, self)
        return self.dependency.call(self.now)

    def next(self) -> str | None:
        return self._queue.popleft() if self._queue else None

    def settled(self, received: Received, how: str, requeue: bool) -> None:
        message = received.body.decode()
        if how == "ack":
            self.handled.append(self.now)
        elif requeue:
            self.put_back += 1
            self._queue.appendleft(message)
        else:
            self.attempts[message] += 1
            heapq.heappush(self._waiting, (self.now + RETRY_DELAY, message))

    def published(self, exchange: str, key: str, message: str) -> None:
        if exchange == "master.failed":
            self.set_aside.append(message)
        else:
            assert (exchange, key) == ("", "orders")
            self.put_back += 1
            self._queue.append(message)

    def turn(self, seconds: float) -> None:
        """Lets time pass."""
        until = self.now + seconds
        while self.now < until:
            self.now += TICK
            while self._published < self._rate * self.now:
                self._published += 1
                self._queue.append(str(self._published))
            while self._waiting and self._waiting[0][0] <= self.now:
                self._queue.append(heapq.heappop(self._waiting)[1])
            for worker in self.workers:
                worker.turn()

    def replace(self, place: int, outages: tuple[Outage, ...]) -> None:
        """Ends a worker, and begins another: a deployment."""
        self.workers[place].stop()
        self.workers[place] = Worker(self, outages)

    def rate_of(self, moments: list[float], since: float, until: float) -> float:
        """How many each second."""
        return sum(since <= moment < until for moment in moments) / (until - since)
