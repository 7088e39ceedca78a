"""A subscription and its deliveries, for tests that need one and care little which."""

from datetime import UTC, datetime

from field_tables import QUEUE
from redrive.amqp.field_table import EMPTY, FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import Decision, DecisionContext, Outcome, decide
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.rewrite import ErrorReport, MoveContext

SUBSCRIPTION = Subscription(QUEUE, ["user.*"])
FAMILY = SUBSCRIPTION.exchanges
NOW = datetime(2024, 5, 17, 8, 30, 15, 250_000, tzinfo=UTC)
NOW_TEXT = "2024-05-17T08:30:15.250Z"
FAILURE_ID = "0b6f9c1e-6a9c-4a55-8c3e-2f1f8f4f5a10"
FRAME_MAX = 131_072
CIRCUMSTANCES = MoveContext(NOW, FAILURE_ID, "worker-1", FRAME_MAX)
ERROR = ErrorReport(
    "shop.PaymentError",
    "the card was refused",
    "Traceback (most recent call last):\n  …\nshop.PaymentError",
)


def decided(
    delivery: Delivery, subscription: Subscription, outcome: Outcome, broker: BrokerVersion
) -> Decision:
    """What is decided at `NOW`, with nothing left to chance."""
    return decide(delivery, subscription, outcome, broker, DecisionContext(NOW, 0.0))


def context(frame_max: int) -> MoveContext:
    """`CIRCUMSTANCES` on a connection with this frame_max."""
    return MoveContext(NOW, FAILURE_ID, "worker-1", frame_max)


def table(**values: FieldValue) -> Table:
    """The table of these values; `_` stands for `-` in a name."""
    return Table.of({name.replace("_", "-"): value for name, value in values.items()})


def first_delivery(
    headers: Table = EMPTY, *, redelivered: bool = False, body: bytes = b"{}"
) -> Delivery:
    """A message as a publisher's exchange routed it."""
    return Delivery(
        QUEUE, FAMILY.main, "user.create", Properties(headers=headers), body, redelivered
    )


def returned(headers: Table, *, redelivered: bool = False) -> Delivery:
    """A message as it comes back from its retry queue, through the default exchange."""
    return Delivery(QUEUE, "", QUEUE, Properties(headers=headers), b"{}", redelivered)


def failed(headers: Table = EMPTY, *, body: bytes = b"{}") -> Delivery:
    """A message as the failed queue delivers it."""
    return Delivery(QUEUE, FAMILY.failed, QUEUE, Properties(headers=headers), body)


def death(
    queue: str,
    reason: str,
    count: FieldValue,
    *,
    exchange: str = "master",
    routing_key: str = "user.create",
) -> dict[str, FieldValue]:
    """An entry of `x-death` as a broker writes it."""
    return {
        "count": count,
        "reason": reason,
        "queue": queue,
        "time": datetime(2024, 5, 17, 8, 0, tzinfo=UTC),
        "exchange": exchange,
        "routing-keys": [routing_key],
    }


def deaths(*entries: FieldValue) -> Table:
    """Headers with this `x-death`."""
    return Table.of({"x-death": list(entries)})
