"""What a queue notes on a message that it dead-letters: `x-death`, as each version keeps it."""

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
    """The `x-death` that a client wrote is none that a broker that goes on counting in it can read:
    it loses the message. Source: measured on RabbitMQ 3.10.8."""


class Death(NamedTuple):
    """Where, why and when a message dies.

    Args:
        queue: the queue in which it is.
        reason: why it can't stay there.
        time: seconds since 1970.
        to_exchange: where it goes.
        to_key: with which key; None for those that it has.
        version: the broker's.
    """

    queue: str
    reason: Reason
    time: float
    to_exchange: str
    to_key: str | None
    version: BrokerVersion


def after_death(content: Content, burial: Death, carried: int) -> Content:
    """What is published to the dead-letter exchange.

    An entry of `x-death` counts the deaths in one queue for one reason; it keeps the exchange and
    the keys of the first, and the latest stands first. Source: measured on RabbitMQ 3.10.8, 4.0.5
    and 4.3.6.
    """
    properties = content.properties
    entries = _entries_so_far(content, burial.version)
    known = [entry for entry in entries if _is_of(entry, burial.queue, burial.reason)]
    others = [entry for entry in entries if not _is_of(entry, burial.queue, burial.reason)]
    entry = _counted_again(known[0]) if known else _first_entry(content, burial)
    notes = _about(burial, content, "first") if not _has_first(content, burial.version) else {}
    if burial.version >= _LAST_DEATH_IS_TOLD_FROM:
        notes |= _about(burial, content, "last")
    if carried:
        notes[headers.DELIVERY_COUNT] = carried
    table = properties.headers
    if burial.to_key is not None:
        table = table.without(_COPY_LISTS.__contains__)
    table = table.with_fields([(headers.X_DEATH, array_of([entry, *others]))])
    buried = with_headers(properties._replace(headers=table, expiration=None), notes)
    return Content(
        burial.to_exchange,
        content.routing_keys if burial.to_key is None else (burial.to_key,),
        buried,
        None,
        content.body,
        True,
        carried,
    )


def goes_in_a_circle(content: Content, queue: str) -> bool:
    """Whether a message that was dead-lettered comes back into a queue without a consumer having
    rejected it on the way: the broker drops it then.

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


def _first_entry(content: Content, burial: Death) -> Table:
    keys: list[FieldValue] = list(content.routing_keys)
    fields = [
        ("count", _long(1)),
        ("exchange", encode_value(content.exchange)),
        ("queue", encode_value(burial.queue)),
        ("reason", encode_value(burial.reason)),
        ("routing-keys", encode_value(keys)),
        ("time", encode_value(datetime.fromtimestamp(int(burial.time), UTC))),
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
    """Whether the message tells of its first death already; what a client has written of it counts
    where its `x-death` does."""
    if content.has_died:
        return True
    return version.continues_client_x_death and (
        "x-first-death-reason" in content.properties.headers
    )


def _about(burial: Death, content: Content, which: str) -> dict[str, FieldValue]:
    return {
        f"x-{which}-death-exchange": content.exchange,
        f"x-{which}-death-queue": burial.queue,
        f"x-{which}-death-reason": burial.reason,
    }
