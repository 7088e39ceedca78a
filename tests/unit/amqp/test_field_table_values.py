import decimal
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from field_tables import ALL_TAGS, field_of, long_value, values
from redrive.amqp.field_table import MAX_DEPTH, FieldValue, Table, decode_value, encode_value
from redrive.errors import ConfigurationError

READ_AS: dict[bytes, FieldValue] = {
    b"t\0": False,
    b"t\1": True,
    b"t\2": True,
    b"b\xff": -1,
    b"B\xff": 255,
    b"s\xff\xfe": -2,
    b"U\xff\xfe": -2,
    b"u\xff\xfe": 65_534,
    b"I\xff\xff\xff\xfd": -3,
    b"i\xff\xff\xff\xfd": 2**32 - 3,
    b"l" + struct.pack(">q", -(2**63)): -(2**63),
    b"L" + struct.pack(">q", -5): -5,
    b"f" + struct.pack(">f", 0.5): 0.5,
    b"d" + struct.pack(">d", 0.1): 0.1,
    b"D\2\0\0\x04\xd2": Decimal("12.34"),
    b"D\0\xff\xff\xff\xff": Decimal(-1),
    b"T" + struct.pack(">Q", 1_700_000_000): datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    b"T" + struct.pack(">Q", 2**64 - 1): 2**64 - 1,
    b"V": None,
    long_value("S", "grün".encode()): "grün",
    long_value("S", b"\xff"): b"\xff",
    long_value("x", b"text"): b"text",
    long_value("A", b"t\1V"): [True, None],
    long_value("A", b""): [],
    long_value("F", field_of("a", b"b\1") + field_of("a", b"b\2")): {"a": 1},
    long_value("A", b"t\1?what"): [True, b"?what"],
    long_value("A", b"t\1S\0\0"): [True, b"S\0\0"],
}

whole_seconds = st.datetimes(
    datetime(1970, 1, 2),
    datetime(9999, 12, 30),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))]),
).map(lambda moment: moment.replace(microsecond=0))
decimals = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    decimals,
    st.text(),
    st.binary(),
    whole_seconds,
)
names = st.text(max_size=40)
python_values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(names, inner)), max_leaves=10
)


@given(python_values)
@example(Decimal(-(2**31)))
@example(-(2**63))
def test_a_python_value_is_read_back_as_it_was(value: FieldValue) -> None:
    assert decode_value(encode_value(value)) == value


@given(python_values)
def test_a_python_value_keeps_its_type(value: FieldValue) -> None:
    assert type(decode_value(encode_value(value))) is type(value)


@given(values)
def test_no_value_that_a_peer_can_send_makes_reading_raise(raw: bytes) -> None:
    decode_value(raw)


@pytest.mark.parametrize(("raw", "value"), READ_AS.items(), ids=lambda part: repr(part)[:30])
def test_each_type_is_read_as_what_it_means(raw: bytes, value: FieldValue) -> None:
    read = decode_value(raw)
    assert (read, type(read)) == (value, type(value))


def test_the_examples_have_every_tag() -> None:
    assert {raw[:1].decode() for raw in READ_AS} == ALL_TAGS


def test_not_a_number_travels() -> None:
    value = decode_value(encode_value(math.nan))
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("number", "tag"),
    [(2**31 - 1, b"I"), (-(2**31), b"I"), (2**31, b"l"), (-(2**31) - 1, b"l"), (2**63 - 1, b"l")],
)
def test_a_whole_number_takes_the_smaller_type_that_holds_it(number: int, tag: bytes) -> None:
    assert encode_value(number)[:1] == tag


@pytest.mark.parametrize("value", [bytearray(b"ab"), memoryview(b"ab")])
def test_anything_like_bytes_is_bytes(value: bytes) -> None:
    assert encode_value(value) == long_value("x", b"ab")


def test_a_tuple_is_an_array() -> None:
    assert encode_value((1, "a")) == encode_value([1, "a"])


def test_a_time_is_cut_to_whole_seconds() -> None:
    moment = datetime(2024, 1, 1, 1, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert decode_value(encode_value(moment)) == datetime(2024, 1, 1, tzinfo=UTC)


def test_a_large_round_decimal_fits_where_its_digits_do() -> None:
    assert decode_value(encode_value(Decimal("2E+6"))) == 2_000_000


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("sNaN"),
        Decimal(2**31),
        Decimal("1E+400000"),
        Decimal("1E-256"),
        datetime(2024, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        {"a": [2**64]},
    ],
    ids=repr,
)
def test_a_value_that_amqp_cannot_carry_is_refused(value: FieldValue) -> None:
    with pytest.raises(ConfigurationError):
        encode_value(value)


@pytest.mark.parametrize("value", [{1, 2}, complex, 1j, Ellipsis, range(3)], ids=repr)
def test_a_type_that_amqp_does_not_have_is_refused_by_its_name(value: Sequence[FieldValue]) -> None:
    with pytest.raises(ConfigurationError, match=type(value).__name__):
        encode_value(value)


@pytest.mark.parametrize(
    "traps", [[], [decimal.Inexact, decimal.Rounded]], ids=["rounding", "trapping"]
)
def test_a_decimal_is_read_whatever_the_context_of_the_thread(
    traps: list[type[decimal.DecimalException]],
) -> None:
    with decimal.localcontext(decimal.Context(prec=2, traps=traps)):
        value = decode_value(b"D\2\0\0\x30\x39")
    assert value == Decimal("123.45")


def test_a_decimal_is_sent_whatever_the_context_of_the_thread() -> None:
    with decimal.localcontext(decimal.Context(prec=2, traps=[])):
        raw = encode_value(Decimal("123.45"))
    assert raw == b"D\2\0\0\x30\x39"


def _array_of_depth(depth: int) -> bytes:
    raw = b"V"
    for _ in range(depth):
        raw = long_value("A", raw)
    return raw


def _table_of_depth(depth: int) -> bytes:
    raw = b"V"
    for _ in range(depth):
        raw = long_value("F", field_of("a", raw))
    return raw


def _innermost(value: FieldValue) -> FieldValue:
    while True:
        match value:
            case [inner]:
                value = inner
            case Mapping():
                (value,) = value.values()
            case _:
                return value


@pytest.mark.parametrize("nested", [_array_of_depth, _table_of_depth])
def test_values_are_read_down_to_the_depth_that_is_set(nested: Callable[[int], bytes]) -> None:
    assert _innermost(decode_value(nested(MAX_DEPTH))) is None


@pytest.mark.parametrize("nested", [_array_of_depth, _table_of_depth])
def test_a_value_below_that_depth_is_given_as_its_bytes(nested: Callable[[int], bytes]) -> None:
    assert _innermost(decode_value(nested(MAX_DEPTH + 1))) == nested(1)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[FieldValue] = []
    endless.append(endless)
    with pytest.raises(ConfigurationError, match="nested deeper"):
        Table.of({"a": endless})
