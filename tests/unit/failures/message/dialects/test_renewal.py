from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from field_tables import field, hostile_tables, long_value, names, tables
from framework_messages import message
from redrive.amqp.field_table import Table
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers, of_table, with_json

EDIT = HeaderEdit(frozenset({"gone"}), ("spent-",), {"count": 0})


@given(st.one_of(tables, hostile_tables()))
def test_an_edit_that_finds_nothing_leaves_every_byte(table: Table) -> None:
    assert HeaderEdit(frozenset({"no such"}))(table).encode() == table.encode()


@given(st.one_of(tables, hostile_tables()))
def test_what_an_edit_does_not_name_stays_as_the_bytes_that_came(table: Table) -> None:
    edited = EDIT(table)
    assert [one for one in edited.raw_fields() if one[0] != "count"] == [
        (name, raw)
        for name, raw in table.raw_fields()
        if name not in ("gone", "count") and not name.startswith("spent-")
    ]
    assert ("count" in edited) == ("count" in table)


def test_a_value_is_set_only_where_there_is_one() -> None:
    renew = of_headers(EDIT)
    before = message({"gone": 1, "spent-time": 2, "count": 3, "kept": 4})
    assert renew(before).properties.headers.to_dict() == {"kept": 4, "count": 0}
    assert renew(message({"kept": 4})).properties.headers.to_dict() == {"kept": 4}


@given(names, tables)
def test_a_table_in_a_header_keeps_the_types_of_what_stays(name: bytes, table: Table) -> None:
    inner = field(b"gone", b"V") + table.encode()
    raw = field(name, long_value("F", inner))
    delivery = message()
    delivery = replace(delivery, properties=delivery.properties._replace(headers=Table.parse(raw)))
    renew = of_table(name.decode("utf-8", "surrogateescape"), HeaderEdit(frozenset({"gone"})))
    expected = Table.parse(inner).without("gone".__eq__).encode()
    assert renew(delivery).properties.headers.encode() == field(name, long_value("F", expected))


def test_a_header_that_is_no_table_is_left_alone() -> None:
    delivery = message({"rascal": "text"})
    assert of_table("rascal", EDIT)(delivery) is delivery


def test_a_value_that_is_nested_too_deep_leaves_the_body() -> None:
    value: dict[str, object] = {}
    for _ in range(100_000):
        value = {"a": value}
    delivery = message()
    assert with_json(delivery, value) is delivery
