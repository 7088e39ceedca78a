"""An engine between a link, workers and a wire that a test plays."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import GiveUp
from redrive.pubsub.engine import Engine
from redrive.pubsub.isolation import Isolation
from redrive.pubsub.lifecycle import Listener
from redrive.pubsub.order_key import ReadKey
from redrive.pubsub.own_publisher import Moves
from redrive.pubsub.verdict import Verdict
from redrive.pubsub.work import MAX_HUNG, ConsumeOptions, LossCounter, WorkItem
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import Settlement
from redrive.topology.model import Subscription
from redrive.topology.outage import Outage
from redrive.topology.policy import RetryPolicy
from unit.pubsub.fake_wire import VERSION, FakeChannel, FakeLink, FakeWire, FakeWorkers

ORDERS = Subscription("orders", ["order.*"], retry=RetryPolicy(max_retries=3))
DELAYED = Subscription(
    "orders", ["order.*"], retry=RetryPolicy(max_retries=3, backoff=[timedelta(seconds=5)] * 3)
)
ORDERED = Subscription("orders", ["order.*"], ordered=True)
HELD_BACK = Subscription("orders", ["order.*"], retry_via="broker")
BROADCAST = Subscription("orders@1", ["order.*"], broadcast=True)
FAILURE = ValueError("no such order")
GIVE_UP = GiveUp("no such customer")
GRACE = 30.0
NO_PROPERTIES = b"\0\0"


class _NotingEngine(Engine):
    """An engine that notes each settlement that was carried out."""

    def __init__(self, notes: list[Settlement], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._notes = notes

    def _done(self, item: WorkItem, verdict: Verdict) -> None:
        self._notes.append(verdict.settlement)
        super()._done(item, verdict)


class RunningEngine:
    """One run of a subscriber that was begun, and what came of it.

    Args:
        subscription: what is consumed.
        prefetch: unsettled deliveries that the broker may send.
        concurrency: as many handlers as run at a time.
        declare: declares the topology; None where nothing may be declared.
        where: says of a message whether it is handled.
        order_by: says by which key a message is ordered.
        isolation: what other engines of the same process are in; None for no others.
        outages: errors that mean that something is down.
        rate: the most messages that begin per second.
    """

    def __init__(
        self,
        subscription: Subscription = ORDERS,
        *,
        prefetch: int = 5,
        concurrency: int = 5,
        handler_timeout: float | None = None,
        max_hung: int = MAX_HUNG,
        declare: Callable[[int, bool], object] | None = None,
        where: Callable[..., bool] | None = None,
        order_by: ReadKey | None = None,
        isolation: Isolation | None = None,
        outages: tuple[Outage, ...] = (),
        rate: float | None = None,
    ) -> None:
        self.isolation = isolation or Isolation()
        self.notes: list[Settlement] = []
        self.told: list[Settlement] = []
        self.dropped = LossCounter()
        self.ends = 0
        self.engine = _NotingEngine(
            self.notes,
            subscription,
            ConsumeOptions(
                concurrency,
                prefetch,
                where=where,
                order_by=order_by,
                handler_timeout=handler_timeout,
                max_hung=max_hung,
                grace=GRACE,
                outages=outages,
                rate=rate,
                clock=lambda: self.link.now,
            ),
            declare=declare,
            dropped=self.dropped,
            ended=self._ended,
            note=lambda _, settlement: self.told.append(settlement),
            isolation=self.isolation,
        )
        self.workers = FakeWorkers()
        self.link = FakeLink(self.engine)
        self.moves_links: list[FakeLink] = []
        self.engine.use(self.link, self.workers, Moves(self._moves_link, self._moves_closed))
        self.engine.start()

    def _moves_link(self, listener: Listener) -> FakeLink:
        self.moves_links.append(FakeLink(listener))
        return self.moves_links[-1]

    def _moves_closed(self, done: Callable[[], object]) -> None:
        done()

    def _ended(self) -> None:
        self.ends += 1

    def connect(self, version: BrokerVersion = VERSION) -> FakeWire:
        """A connection to a broker of this version, on which everything is answered."""
        wire = self.link.connect(FakeWire(version))
        wire.answer_all()
        return wire

    def run(self) -> None:
        """Runs what was to run on the connection's thread, and answers what is asked meanwhile."""
        self.link.run()
        if self.link.wire is not None:
            self.link.wire.answer_all()

    @property
    def consuming(self) -> FakeChannel:
        """The channel that consumes."""
        assert self.link.wire is not None
        return next(channel for channel in self.link.wire.channels if channel.priorities)

    @property
    def publishing(self) -> FakeChannel:
        """The channel that publishes; what its broker says is heard at once."""
        moves = self.moves_links[-1]
        wire = moves.wire or moves.connect(FakeWire(acted=self.link.run))
        while moves.calls or wire.asked:
            moves.run()
            wire.answer_all()
        return wire.channels[-1]

    @property
    def has_published(self) -> bool:
        """Whether it has opened a connection to publish on."""
        return bool(self.moves_links)

    def deliver(self, body: bytes = b"{}", *, crashes: int = 0) -> None:
        """Has the queue deliver a message, which has gone back to it so often, and answers what is
        asked then."""
        assert self.link.wire is not None
        self.consuming.deliver(
            body,
            properties=properties(x_delivery_count=crashes, x_acquired_count=crashes)
            if crashes
            else NO_PROPERTIES,
            redelivered=crashes > 0,
        )
        self.link.wire.answer_all()

    def begin(self) -> WorkItem:
        """Begins the item that waits longest; its handler runs."""
        item = self.workers.waiting.popleft()
        verdict = self.engine.arrived(item)
        if verdict is not None:
            self.engine.settle(item, verdict)
        elif item.delivery is not None:
            self.engine.message_of(item.delivery, item)
        return item

    def end(self, item: WorkItem, error: BaseException | None = None) -> None:
        """A handler returns, or raises."""
        self.engine.settle(item, self.engine.attempted(item, error))
        self.link.run()

    def handle(self, error: BaseException | None = None) -> WorkItem:
        """Runs a handler whole."""
        item = self.begin()
        self.end(item, error)
        return item

    def hang(self) -> WorkItem:
        """Begins the item that waits longest, whose handler takes too long and still runs."""
        item = self.begin()
        self.workers.overdue.append((item, "a stack"))
        self.link.sleep(1)
        self.run()
        return item

    def end_late(self, item: WorkItem) -> None:
        """A handler that hung has ended."""
        self.end(item)
        self.engine.ended_late()
        self.run()

    def stop(self) -> None:
        """Begins to stop."""
        self.engine.stop()
        self.link.run()


def properties(**headers: object) -> bytes:
    """The bytes of a message's properties; `_` stands for `-` in a header's name."""
    table = Table.of({name.replace("_", "-"): value for name, value in headers.items()})  # type: ignore[misc]
    return Properties(headers=table).encode()
