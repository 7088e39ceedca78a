"""Where a failed message is sent to be tried again.

What a framework says of it counts first, then what the broker has noted. What neither says is never
guessed: such a message is left where it is.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from redrive.amqp.field_table import FieldValue
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.topology import headers
from redrive.topology.headers import Delivery

_FAILED = ("rejected", "delivery_limit")
"""Reasons of a death that are a consumer's doing: its queue is the one that a message failed in.
Others happen in queues that it only waits in."""
_NAMED_AFTER = {
    "masstransit": ("_error", "_skipped"),
    "dramatiq": (".XQ",),
    "sneakers": ("-error",),
}
"""What a framework adds to a queue's name for its failed messages. Source: MassTransit 8.5.8,
KebabCaseEndpointNameFormatter and the default error transport; dramatiq 2.0, xq_name; sneakers,
maxretry.rb."""


class WayBack(NamedTuple):
    """Where to a message is published.

    Args:
        exchange: the exchange; empty for the default one, through which one queue gets it.
        routing_key: with which key.
    """

    exchange: str
    routing_key: str

    @property
    def queue(self) -> str | None:
        """The one queue that gets it; None where an exchange chooses, and others may get a copy."""
        return None if self.exchange else self.routing_key

    def __str__(self) -> str:
        if not self.exchange:
            return self.routing_key
        return f"exchange {self.exchange} with {self.routing_key or 'an empty key'}"


def way_back_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """The way to the queue that a message failed in, or else the one that it was first published
    by; None where nothing says so."""
    if not delivery.dead_letter_queue:
        return WayBack("", delivery.queue)
    origin = origin_of(delivery, notes)
    return _published(notes) if origin is None else WayBack("", origin)


def first_way_of(delivery: Delivery, notes: FailureNotes) -> WayBack | None:
    """The way by which a message was first published: everything that is bound there gets it again;
    None where nothing says so."""
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
    """The queue that a message of a dead-letter queue failed in; None where nothing says so, or it
    is that queue itself."""
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
    for suffix in _NAMED_AFTER.get(dialect, ()):
        if place.endswith(suffix):
            return place.removesuffix(suffix)
    return None


def _died_in(delivery: Delivery, notes: FailureNotes) -> str | None:
    """The queue that the message died in last by a consumer's doing, else the last one of all."""
    deaths = [
        death
        for death in delivery.deaths.entries
        if death.get("queue") != delivery.dead_letter_queue
    ]
    published = _published(notes)
    if published is not None:
        # A framework that publishes a failed message itself keeps the deaths of its former life.
        deaths = [death for death in deaths if published in _ways_into(death)]
    failed = (death for death in deaths if death.get("reason") in _FAILED)
    death = next(failed, deaths[0] if deaths else {})
    return headers.text(death.get("queue"))


def _ways_into(death: Mapping[str, FieldValue]) -> Iterator[WayBack]:
    exchange, keys = death.get("exchange"), death.get("routing-keys")
    if isinstance(exchange, str) and isinstance(keys, list):
        yield from (WayBack(exchange, key) for key in keys if isinstance(key, str))
