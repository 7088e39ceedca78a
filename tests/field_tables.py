"""Field tables as a peer may send them: strategies that make the bytes themselves, and so lean on
no encoder of ours."""

import struct

from hypothesis import strategies as st

from redrive.amqp.field_table import EMPTY, Table
from redrive.amqp.properties import Properties
from redrive.topology import headers

QUEUE = "ucenter@user"

FIXED_SIZES = {
    "t": 1,
    "b": 1,
    "B": 1,
    "s": 2,
    "U": 2,
    "u": 2,
    "I": 4,
    "i": 4,
    "l": 8,
    "L": 8,
    "f": 4,
    "d": 8,
    "D": 5,
    "T": 8,
    "V": 0,
}
ALL_TAGS = frozenset("SAFx") | frozenset(FIXED_SIZES)


def long_value(tag: str, payload: bytes) -> bytes:
    """A value whose length stands in front of it."""
    return tag.encode() + struct.pack(">I", len(payload)) + payload


def field(name: bytes, value: bytes) -> bytes:
    """One field of a table: a short name, then the value with its tag."""
    return bytes((len(name),)) + name + value


def field_of(name: str, value: bytes) -> bytes:
    """`field` of a name that is a text."""
    return field(name.encode(), value)


def _fixed(tag: str) -> st.SearchStrategy[bytes]:
    size = FIXED_SIZES[tag]
    return st.binary(min_size=size, max_size=size).map(lambda payload: tag.encode() + payload)


_known_texts = st.sampled_from(
    [
        QUEUE,
        f"{QUEUE}@retry",
        f"{QUEUE}@failed",
        "rejected",
        "expired",
        "delivery_limit",
        "maxlen",
        "master",
        "user.create",
        "",
        "***",
    ]
).map(str.encode)
_known_names = st.sampled_from(
    [
        headers.X_DEATH,
        headers.DELIVERY_COUNT,
        headers.ORIG_ROUTING_KEY,
        headers.RETRIES,
        headers.FAILURE_ID,
        headers.ERROR_TRACEBACK,
        headers.FIRST_FAILED_AT,
        headers.ORIG_EXCHANGE,
        headers.COUNT,
        "CC",
        "BCC",
        "x-acquired-count",
        "x-first-death-queue",
        "x-last-death-reason",
        "x-opt-rabbitmq-delivery-time",
        "tenant",
        "count",
        "reason",
        "queue",
        "time",
        "exchange",
        "routing-keys",
    ]
).map(str.encode)

names = st.one_of(_known_names, st.binary(max_size=12), st.binary(min_size=255, max_size=255))

_texts = st.one_of(_known_texts, st.binary(max_size=20))
_scalars = st.one_of(
    *(_fixed(tag) for tag in sorted(FIXED_SIZES)),
    _texts.map(lambda payload: long_value("S", payload)),
    st.binary(max_size=20).map(lambda payload: long_value("x", payload)),
)


def _nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    array = st.lists(inner, max_size=4).map(lambda values: long_value("A", b"".join(values)))
    table = st.lists(st.builds(field, names, inner), max_size=4).map(
        lambda fields: long_value("F", b"".join(fields))
    )
    # Of the right length and with nothing readable in it: the broker does not look inside either.
    broken = st.builds(long_value, st.sampled_from("AF"), st.binary(min_size=1, max_size=12))
    return st.one_of(array, table, broken)


values = st.recursive(_scalars, _nested, max_leaves=12)
"""Any value that a peer can send: every tag, nested, some of it unreadable inside."""

fields = st.builds(field, names, values)

table_bytes = st.lists(fields, max_size=8).map(b"".join)
"""A whole table without the length in front: any names, twice the same among them, any values."""

tables = table_bytes.map(Table.parse)

_count = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"l" + struct.pack(">q", number)),
    st.integers(0, 9).map(lambda number: b"l" + struct.pack(">q", number)),
)
_death_fields: dict[str, st.SearchStrategy[bytes]] = {
    "queue": st.one_of(
        st.sampled_from(
            [long_value("S", name.encode()) for name in (QUEUE, f"{QUEUE}@retry", "other")]
        ),
        values,
    ),
    "reason": st.one_of(
        st.sampled_from(
            [long_value("S", name) for name in (b"rejected", b"expired", b"delivery_limit")]
        ),
        values,
    ),
    "count": st.one_of(_count, values),
    "exchange": st.one_of(st.just(long_value("S", b"master")), values),
    "routing-keys": st.one_of(st.just(long_value("A", long_value("S", b"user.create"))), values),
    "time": st.one_of(st.just(b"T" + struct.pack(">Q", 1_700_000_000)), values),
}


@st.composite
def _death_entry(draw: st.DrawFn) -> bytes:
    chosen = draw(st.lists(st.sampled_from(sorted(_death_fields)), max_size=7))
    return long_value(
        "F", b"".join(field(name.encode(), draw(_death_fields[name])) for name in chosen)
    )


_x_death = st.one_of(
    st.lists(st.one_of(_death_entry(), values), max_size=4).map(
        lambda entries: long_value("A", b"".join(entries))
    ),
    values,
)


@st.composite
def hostile_tables(draw: st.DrawFn) -> Table:
    """Headers that try to look like ours and like the broker's."""
    pieces = draw(st.lists(fields, max_size=3))
    for name in draw(st.lists(_known_names, max_size=6)):
        pieces.append(field(name, draw(st.one_of(_count, values))))
    for _ in range(draw(st.integers(0, 2))):
        pieces.append(field(b"x-death", draw(_x_death)))
    return Table.parse(b"".join(draw(st.permutations(pieces))))


_short = st.one_of(
    st.none(), st.binary(max_size=255).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
)
_octet = st.one_of(st.none(), st.integers(0, 255))

properties = st.builds(
    Properties,
    content_type=_short,
    content_encoding=_short,
    headers=st.one_of(st.just(EMPTY), tables),
    delivery_mode=_octet,
    priority=_octet,
    correlation_id=_short,
    reply_to=_short,
    expiration=_short,
    message_id=_short,
    timestamp=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    type=_short,
    user_id=_short,
    app_id=_short,
    cluster_id=_short,
)
"""Any properties that a message can have."""
