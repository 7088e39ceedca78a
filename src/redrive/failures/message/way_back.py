"""Where a failed message is sent to be tried again.

The framework's notes count first, then the broker's. Nothing is guessed: if neither tells, the
message stays where it is.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.topology import headers
from redrive.topology.headers import Delivery
from redrive.topology.names import queue_of_failed_kind

_FAILED = ("rejected", "delivery_limit")
"""Reasons for a death that are caused by a consumer: the message failed in the queue of that death.
Other deaths happen in queues that a message only waits in."""
_NAMED_AFTER = {
    "masstransit": ("_error", "_skipped"),
    "dramatiq": (".XQ",),
    "sneakers": ("-error",),
}
"""Suffixes that frameworks add to a queue's name for its failed messages. Source: MassTransit
8.5.8, KebabCaseEndpointNameFormatter and the default error transport; dramatiq 2.0, xq_name;
sneakers, maxretry.rb."""


class WayBack(NamedTuple):
    """An exchange and a routing key to publish a message with.

    Args:
        exchange: the exchange; empty for the default exchange, which routes to one queue.
        routing_key: the routing key.
    """

    exchange: str
    routing_key: str

    @property
    def queue(self) -> str | None:
        """The one queue that gets the message; None if an exchange decides, which may copy it to
        others."""
        return None if self.exchange else self.routing_key

    def __str__(self) -> str:
        if not self.exchange:
            return self.routing_key
        return f"exchange {self.exchange} with {self.routing_key or 'an empty key'}"


def way_back_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """Return the way to the queue that a message failed in, else its first way; None if unknown."""
    if not delivery.dead_letter_queue:
        return WayBack("", delivery.queue)
    origin = origin_of(delivery, notes)
    return _published(notes) if origin is None else WayBack("", origin)


def first_way_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """Return the way by which a message was first published; None if unknown.

    Every queue bound there gets the message again.
    """
    published = _published(notes)
    if published is not None:
        return published
    death = headers.earliest_death(delivery.deaths, delivery.queue)
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else None
    if isinstance(exchange, str) and isinstance(key, str):
        return WayBack(exchange, key)
    return None


def origin_of(delivery: Delivery, notes: FailureNotes) -> str | None:
    """Return the queue in which a message of a dead-letter queue failed.

    Returns None if nothing tells, or if it is the dead-letter queue itself.
    """
    place = delivery.dead_letter_queue
    for queue in (notes.queue, _named_after(place, notes.dialect), _died_in(delivery, notes)):
        if queue and queue != place:
            return queue
    return None


def _published(notes: FailureNotes) -> WayBack | None:
    if notes.exchange is None or notes.routing_key is None:
        return None
    return WayBack(notes.exchange, notes.routing_key)


def _named_after(place: str, dialect: str) -> str | None:
    if dialect == "redrive":
        return queue_of_failed_kind(place)
    for suffix in _NAMED_AFTER.get(dialect, ()):
        if place.endswith(suffix):
            return place.removesuffix(suffix)
    return None


def _died_in(delivery: Delivery, notes: FailureNotes) -> str | None:
    """Return the queue of the last death caused by a consumer, else of the last death."""
    deaths = [
        death
        for death in delivery.deaths.entries
        if death.get("queue") != delivery.dead_letter_queue
    ]
    published = _published(notes)
    if published is not None:
        # A framework that publishes failed messages itself keeps the deaths from the message's
        # earlier life.
        deaths = [death for death in deaths if published in _ways_into(death)]
    failed = (death for death in deaths if death.get("reason") in _FAILED)
    death = next(failed, deaths[0] if deaths else {})
    return headers.text(death.get("queue"))


def _ways_into(death: Mapping[str, FieldValue]) -> Iterator[WayBack]:
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    if isinstance(exchange, str) and isinstance(keys, list):
        yield from (WayBack(exchange, key) for key in keys if isinstance(key, str))
