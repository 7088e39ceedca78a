"""The `x-death` header that a queue writes when it dead-letters a message, for each broker
version."""

import struct
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from redrive.amqp.field_table import FieldValue, Table, encode_value, items_of
from redrive.testing.memory.message_copy import Content, array_of, with_headers
from redrive.topology import headers
from redrive.topology.broker_version import BrokerVersion

Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]

_INT64 = struct.Struct(">q")
_LAST_DEATH_IS_TOLD_FROM = BrokerVersion(3, 13)
_COPY_LISTS = frozenset({"CC", "BCC"})


class NotReadable(Exception):
    """Raised if a client wrote an `x-death` that the broker can't parse but would have to update:
    such a broker loses the message. Source: measured on RabbitMQ 3.10.8."""


class Death(NamedTuple):
    """Where, why and when a message is dead-lettered.

    Args:
        queue: the queue that it is in.
        reason: why it can't stay there.
        time: seconds since 1970.
        to_exchange: the exchange that it goes to.
        to_key: the new routing key; None to keep its keys.
        version: the broker's version.
    """

    queue: str
    reason: Reason
    time: float
    to_exchange: str
    to_key: str | None
    version: BrokerVersion


def after_death(content: Content, death: Death, carried: int) -> Content:
    """Return the message to publish to the dead-letter exchange.

    An entry of `x-death` counts the deaths in one queue for one reason; it keeps the exchange and
    keys of the first one, and the latest entry comes first. Source: measured on RabbitMQ 3.10.8,
    4.0.5 and 4.3.6.
    """
    properties = content.properties
    entries = _entries_so_far(content, death.version)
    known = [entry for entry in entries if _is_of(entry, death.queue, death.reason)]
    others = [entry for entry in entries if not _is_of(entry, death.queue, death.reason)]
    entry = _counted_again(known[0]) if known else _first_entry(content, death)
    notes = _about(death, content, "first") if not _has_first(content, death.version) else {}
    if death.version >= _LAST_DEATH_IS_TOLD_FROM:
        notes |= _about(death, content, "last")
    if carried:
        notes[headers.DELIVERY_COUNT] = carried
    table = properties.headers
    if death.to_key is not None:
        table = table.without(_COPY_LISTS.__contains__)
    table = table.with_fields([(headers.X_DEATH, array_of([entry, *others]))])
    marked = with_headers(properties._replace(headers=table, expiration=None), notes)
    return Content(
        death.to_exchange,
        content.routing_keys if death.to_key is None else (death.to_key,),
        marked,
        None,
        content.body,
        True,
        carried,
    )


def goes_in_a_circle(content: Content, queue: str) -> bool:
    """Return whether a dead-lettered message returns to a queue without having been rejected by a
    consumer on the way. The broker drops it in that case.

    Source: https://www.rabbitmq.com/docs/dlx#dead-letter-loops; `detect_cycles` of RabbitMQ 3.10.
    """
    on_the_way = True
    for entry in _readable(content):
        if entry.get("reason") == "rejected":
            on_the_way = False
        if entry.get("queue") == queue:
            return on_the_way
    return False


def _entries_so_far(content: Content, version: BrokerVersion) -> list[Table]:
    if headers.X_DEATH not in content.properties.headers:
        return []
    if content.has_died:
        return _readable(content)
    if not version.continues_client_x_death:
        return []
    raw = content.properties.headers.raw_by_name()[headers.X_DEATH]
    if not headers.deaths_in(raw).are_well_formed:
        raise NotReadable
    return _readable(content)


def _readable(content: Content) -> list[Table]:
    raw = content.properties.headers.raw_by_name().get(headers.X_DEATH)
    if raw is None or (not content.has_died and not headers.deaths_in(raw).are_well_formed):
        return []
    items, _ = items_of(raw, headers.MOST_DEATHS)
    return [Table.parse(item[5:]) for item in items]


def _is_of(entry: Table, queue: str, reason: str) -> bool:
    return entry.get("queue") == queue and entry.get("reason") == reason


def _first_entry(content: Content, death: Death) -> Table:
    keys: list[FieldValue] = list(content.routing_keys)
    fields = [
        ("count", _long(1)),
        ("exchange", encode_value(content.exchange)),
        ("queue", encode_value(death.queue)),
        ("reason", encode_value(death.reason)),
        ("routing-keys", encode_value(keys)),
        ("time", encode_value(datetime.fromtimestamp(int(death.time), UTC))),
    ]
    if content.properties.expiration is not None:
        fields.insert(2, ("original-expiration", encode_value(content.properties.expiration)))
    return Table(fields)


def _counted_again(entry: Table) -> Table:
    count = headers.counted(entry.get("count")) + 1
    return Table(
        (name, _long(count) if name == "count" else raw) for name, raw in entry.raw_fields()
    )


def _long(value: int) -> bytes:
    return b"l" + _INT64.pack(value)


def _has_first(content: Content, version: BrokerVersion) -> bool:
    """Return whether the message already has the headers of its first death. Headers written by a
    client count if the broker also continues a client's `x-death`."""
    if content.has_died:
        return True
    return version.continues_client_x_death and (
        "x-first-death-reason" in content.properties.headers
    )


def _about(death: Death, content: Content, which: str) -> dict[str, FieldValue]:
    return {
        f"x-{which}-death-exchange": content.exchange,
        f"x-{which}-death-queue": death.queue,
        f"x-{which}-death-reason": death.reason,
    }
