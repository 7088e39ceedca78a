import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_tables import field_of, long_value
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.message.dialects.typed_json import UnreadableValue, fields_of


def typed(kind: int, value: object) -> dict[str, object]:
    return {"Type": kind, "Value": value}


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        (1, None, b"V"),
        (2, True, b"t\1"),
        (3, 255, b"B\xff"),
        (4, -1, b"b\xff"),
        (5, -2, b"s" + struct.pack(">h", -2)),
        (6, 7, b"I" + struct.pack(">i", 7)),
        (7, 2**32 - 1, b"i\xff\xff\xff\xff"),
        (8, 2**40, b"l" + struct.pack(">q", 2**40)),
        (9, 0.5, b"f" + struct.pack(">f", 0.5)),
        (10, 2, b"d" + struct.pack(">d", 2)),
        (11, 1.25, b"D\2" + struct.pack(">i", 125)),
        (12, 1755859207, b"T" + struct.pack(">Q", 1755859207)),
        (13, "größer", long_value("S", "größer".encode())),
        (14, "YWNtZQ==", long_value("S", b"acme")),
        (15, [typed(1, None), typed(3, 1)], long_value("A", b"VB\1")),
        (16, {"a": typed(1, None)}, long_value("F", field_of("a", b"V"))),
        (17, "AAE=", long_value("x", b"\0\1")),
    ],
)
def test_a_value_is_of_the_type_that_its_client_writes(
    kind: int, value: object, raw: bytes
) -> None:
    assert list(fields_of({"name": typed(kind, value)})) == [("name", raw)]


@pytest.mark.parametrize(
    "header",
    [
        "text",
        {},
        typed(0, 1),
        typed(18, 1),
        typed(3, 256),
        typed(6, 2**31),
        typed(6, "7"),
        typed(9, 1e300),
        typed(14, "a"),
        typed(14, "größer"),
        typed(15, {}),
        typed(16, {"a" * 256: typed(1, None)}),
        typed(16, {"\ud800": typed(1, None)}),
        {"Type": [1], "Value": None},
        {"Type": "1", "Value": None},
    ],
)
def test_what_its_client_does_not_write_is_unreadable(header: object) -> None:
    with pytest.raises(UnreadableValue):
        list(fields_of({"name": header}))


def test_what_is_nested_too_deep_is_unreadable() -> None:
    header = typed(1, None)
    for _ in range(100):
        header = typed(15, [header])
    with pytest.raises(UnreadableValue):
        list(fields_of({"name": header}))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Type", "Value", "a", "\udc80"]), inner, max_size=3)
        | st.builds(typed, st.integers(0, 20), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), _json, max_size=4))
def test_any_json_is_either_encoded_or_refused(headers: Mapping[str, object]) -> None:
    try:
        table = Table(fields_of(headers))
    except (UnreadableValue, ConfigurationError):
        return
    assert Table.parse(table.encode()).keys() == headers.keys()
