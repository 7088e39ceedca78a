"""The queue arguments that the in-memory model supports: parsed, validated, and compared when a
queue is declared again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from redrive.amqp.field_table import FieldValue, Table
from redrive.testing.memory.refused import PRECONDITION_FAILED, RefusedByModel
from redrive.topology.broker_version import BrokerVersion

T = TypeVar("T")

QUORUM, CLASSIC, STREAM = "quorum", "classic", "stream"
_NO_LIMIT = 2**62

_COMPARED = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delayed-retry-max",
    "x-delayed-retry-min",
    "x-delayed-retry-type",
    "x-delivery-limit",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-message-ttl",
    "x-overflow",
    "x-queue-type",
    "x-single-active-consumer",
)
_QUORUM_ONLY = ("x-dead-letter-strategy", "x-delivery-limit")
_DELAYED_RETRY = ("x-delayed-retry-max", "x-delayed-retry-min", "x-delayed-retry-type")


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """The arguments of a queue that the model supports; times in milliseconds."""

    is_quorum: bool = False
    ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    at_least_once: bool = False
    most: int | None = None
    most_bytes: int | None = None
    refuses_when_full: bool = False
    single_active_consumer: bool = False
    delivery_limit: int = _NO_LIMIT
    delays: str | None = None
    """Which messages are held back: `failed`, `returned` or `all`."""
    least_delay_ms: int = 0
    most_delay_ms: int = 0
    is_stream: bool = False

    @classmethod
    def read(cls, queue: str, table: Table, version: BrokerVersion) -> "QueueArguments":
        """Parse the arguments from a field table."""
        kind = _text(queue, table, "x-queue-type") or CLASSIC
        if kind == STREAM:
            return cls(is_stream=True)  # its limits are far away
        if kind not in (QUORUM, CLASSIC):
            raise _invalid(queue, "x-queue-type", "the in-memory broker does not support it")
        is_quorum = kind == QUORUM
        holds_back = version.holds_failed_messages_back
        if not is_quorum:
            for name in (*_QUORUM_ONLY, *(_DELAYED_RETRY if holds_back else ())):
                if name in table:
                    raise _invalid(queue, name, "of queue type rabbit_classic_queue")
        overflow = _text(queue, table, "x-overflow")
        strategy = _text(queue, table, "x-dead-letter-strategy")
        refuses = overflow in ("reject-publish", "reject-publish-dlx")
        return cls(
            is_quorum,
            _number(queue, table, "x-message-ttl"),
            _number(queue, table, "x-expires", least=1),
            _text(queue, table, "x-dead-letter-exchange"),
            _text(queue, table, "x-dead-letter-routing-key"),
            # Without reject-publish it is at-most-once. Source:
            # https://www.rabbitmq.com/docs/quorum-queues#activating-at-least-once-dead-lettering
            is_quorum and strategy == "at-least-once" and refuses,
            _number(queue, table, "x-max-length"),
            _number(queue, table, "x-max-length-bytes"),
            refuses,
            table.get("x-single-active-consumer") is True,
            _delivery_limit(table, version) if is_quorum else _NO_LIMIT,
            _held_back(table) if is_quorum and holds_back else None,
            _plain_number(table, "x-delayed-retry-min"),
            _plain_number(table, "x-delayed-retry-max"),
        )

    @property
    def counts_returns(self) -> bool:
        """Whether the queue keeps `x-delivery-count`, as quorum queues do."""
        return self.is_quorum

    def delay_of(self, returns: int, *, failed: bool) -> float | None:
        """Return for how many seconds a returned message is held back; None if it is ready at once.
        `returns` is how often it was returned.

        Source: docs/brokers.md, measured on RabbitMQ 4.3.6.
        """
        wanted = ("failed", "all") if failed else ("returned", "all")
        if self.delays not in wanted or self.least_delay_ms <= 0:
            return None
        delay = self.least_delay_ms * max(1, returns)
        return min(delay, self.most_delay_ms or delay) / 1000


def check_same(queue: str, host: str, current: Table, given: Table) -> None:
    """Check that a queue is declared with the same arguments as before."""
    for name in _COMPARED:
        found, wanted = _compared(current, name), _compared(given, name)
        if found != wanted:
            raise RefusedByModel(
                PRECONDITION_FAILED,
                f"inequivalent arg '{name}' for queue '{queue}' in vhost '{host}': received "
                f"{_told(wanted)} but current is {_told(found)}",
            )


def told(value: FieldValue) -> str:
    """Format an argument's value as in RabbitMQ's error messages."""
    return _told(value)


def _compared(table: Table, name: str) -> FieldValue:
    value = table.get(name)
    # To a broker, no type is the same as classic. Source: measured on RabbitMQ 3.10.8 and 4.0.5.
    return None if name == "x-queue-type" and value == CLASSIC else value


def _told(value: FieldValue) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"the value '{str(value).lower()}' of type 'bool'"
        case int():
            return f"the value '{value}' of type 'signedint'"
        case _:
            return f"the value '{value}' of type 'longstr'"


def _invalid(queue: str, name: str, why: str) -> RefusedByModel:
    return RefusedByModel(
        PRECONDITION_FAILED, f"invalid arg '{name}' for queue '{queue}' in vhost '/' {why}"
    )


def _number(queue: str, table: Table, name: str, *, least: int = 0) -> int | None:
    return _checked(
        queue,
        table,
        name,
        lambda value: (
            value
            if isinstance(value, int) and not isinstance(value, bool) and value >= least
            else None
        ),
    )


def _text(queue: str, table: Table, name: str) -> str | None:
    return _checked(queue, table, name, lambda value: value if isinstance(value, str) else None)


def _checked(
    queue: str, table: Table, name: str, read: Callable[[FieldValue], T | None]
) -> T | None:
    if name not in table:
        return None
    value = read(table[name])
    if value is None:
        raise _invalid(queue, name, f"{{unacceptable_value,{table[name]!r:.80}}}")
    return value


def _plain_number(table: Table, name: str) -> int:
    """Return a delay, which is not validated: an invalid one means no delay. Source:
    docs/brokers.md."""
    value = table.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _held_back(table: Table) -> str | None:
    value = table.get("x-delayed-retry-type")
    return value if value in ("failed", "returned", "all") and isinstance(value, str) else None


def _delivery_limit(table: Table, version: BrokerVersion) -> int:
    value = table.get("x-delivery-limit", version.deletes_after_deliveries)
    if not isinstance(value, int) or isinstance(value, bool):
        return _NO_LIMIT
    return _NO_LIMIT if value < 0 and version.takes_a_delivery_limit_for_none else value
