import pytest
from hypothesis import given
from hypothesis import strategies as st

from field_tables import ALL_TAGS, field, field_of, long_value, table_bytes, tables, values
from redrive.amqp.field_table import EMPTY, Table
from redrive.errors import ConfigurationError

ONE = b"I\0\0\0\1"
TWO = b"I\0\0\0\2"


@given(table_bytes)
def test_a_table_is_encoded_to_the_bytes_it_came_in(data: bytes) -> None:
    assert Table.parse(data).encode() == data


@given(table_bytes, st.data())
def test_a_truncated_table_is_encoded_to_the_bytes_it_came_in(
    data: bytes, choices: st.DataObject
) -> None:
    cut = data[: choices.draw(st.integers(0, len(data)))]
    assert Table.parse(cut).encode() == cut


@given(st.binary(max_size=200))
def test_bytes_that_are_no_table_are_encoded_as_they_came(data: bytes) -> None:
    assert Table.parse(data).encode() == data


@given(st.one_of(table_bytes, st.binary(max_size=200)))
def test_reading_a_table_never_raises(data: bytes) -> None:
    table = Table.parse(data)
    assert list(table.to_dict()) == [name for name, _ in table.items()]
    assert repr(table).startswith("Table(")


@given(values)
def test_each_value_is_one_field_whatever_its_type(value: bytes) -> None:
    assert Table.parse(field(b"a", value)).raw_fields() == (("a", value),)


@given(tables)
def test_a_table_has_as_many_names_as_it_lists(table: Table) -> None:
    assert len(table) == len(list(table)) == len(set(table))


@given(tables)
def test_each_name_that_a_table_lists_is_in_it(table: Table) -> None:
    assert all(name in table for name in table)


@given(tables)
def test_a_table_equals_the_one_parsed_from_its_bytes(table: Table) -> None:
    again = Table.parse(table.encode())
    assert (again, hash(again)) == (table, hash(table))


@given(tables, st.sets(st.sampled_from(["tenant", "CC", "x-death", "redrive-count", "\udcff"])))
def test_taking_fields_out_leaves_every_other_as_it_was(table: Table, dropped: set[str]) -> None:
    kept = table.without(dropped.__contains__)
    assert kept.raw_fields() == tuple(
        field for field in table.raw_fields() if field[0] not in dropped
    )


@given(
    tables,
    st.dictionaries(st.sampled_from(["tenant", "CC", "redrive-count", "new"]), st.integers(0, 9)),
)
def test_putting_fields_in_leaves_every_other_as_it_was(
    table: Table, added: dict[str, int]
) -> None:
    changed = table.with_values(added)
    assert changed.without(added.__contains__) == table.without(added.__contains__)
    assert {name: changed[name] for name in added} == added


@given(
    tables,
    st.sets(st.sampled_from(["tenant", "CC", "a"])),
    st.dictionaries(st.sampled_from(["tenant", "a", "ü"]), st.integers(0, 9)),
)
def test_a_changed_table_is_encoded_to_what_it_has(
    table: Table, dropped: set[str], added: dict[str, int]
) -> None:
    table.encode()
    changed = table.without(dropped.__contains__).with_values(added)
    assert (
        changed.encode()
        == Table(changed.raw_fields()).encode()
        + table.encode()[len(Table(table.raw_fields()).encode()) :]
    )


def test_fields_that_are_put_in_stand_behind_the_others_in_their_order() -> None:
    table = Table.of({"b": 1, "a": 2}).with_values({"d": 3, "b": 4})
    assert list(table.to_dict().items()) == [("a", 2), ("d", 3), ("b", 4)]


def test_putting_a_field_in_replaces_every_field_of_its_name() -> None:
    table = Table.parse(field(b"a", ONE) + field(b"b", ONE) + field(b"a", TWO))
    assert table.with_values({"a": 7}).raw_fields() == (("b", ONE), ("a", b"I\0\0\0\7"))


def test_what_cannot_be_read_stays_behind_the_fields_when_one_is_put_in() -> None:
    table = Table.parse(field(b"a", ONE) + b"\1b?")
    assert (
        table.with_values({"c": True}).encode() == field(b"a", ONE) + field(b"c", b"t\1") + b"\1b?"
    )


def test_of_a_name_that_stands_twice_the_first_counts() -> None:
    table = Table.parse(field(b"a", ONE) + field(b"a", TWO))
    assert (table["a"], table.to_dict(), len(table)) == (1, {"a": 1}, 1)


def test_a_name_that_is_not_utf8_keeps_its_bytes() -> None:
    data = field(b"\xff\xfe", ONE)
    table = Table.parse(data)
    assert table.with_values({"a": 2}).encode() == data + field(b"a", TWO)


def test_a_missing_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="a"):
        EMPTY["a"]


def test_a_table_does_not_equal_a_dict_of_the_same_values() -> None:
    assert Table.of({"a": 1}) != {"a": 1}


def test_tables_of_other_types_differ_though_their_values_are_the_same() -> None:
    assert Table.parse(field(b"a", b"b\1")) != Table.parse(field(b"a", b"I\0\0\0\1"))


def test_tables_with_other_unreadable_bytes_differ() -> None:
    assert Table.parse(b"\1a?") != Table.parse(b"\1a!")


def test_an_unknown_tag_ends_the_readable_fields_and_keeps_the_rest() -> None:
    for tag in sorted(set(map(chr, range(256))) - ALL_TAGS):
        data = (
            field(b"a", ONE)
            + field(b"b", tag.encode("latin-1") + b"\0\0\0\0\0\0\0\0")
            + field(b"c", TWO)
        )
        table = Table.parse(data)
        assert (table.to_dict(), table.encode()) == ({"a": 1}, data), tag


def test_a_scalar_is_a_text_or_the_bytes_of_what_is_none() -> None:
    table = Table.parse(field(b"a", b"S\0\0\0\1x") + field(b"b", b"S\0\0\0\1\xff"))
    assert (table.scalar("a"), table.scalar("b"), table.scalar("c")) == ("x", b"\xff", None)


def test_a_name_of_255_bytes_fits() -> None:
    assert len(Table.of({"ü" * 127 + "x": 1}).encode()) == 1 + 255 + 5


def test_a_name_of_256_bytes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="over 255 bytes"):
        Table.of({"ü" * 128: 1})


@pytest.mark.parametrize("values", [{"\ud800": 1}, {"a": "\ud800"}], ids=["name", "value"])
def test_a_text_that_utf8_cannot_carry_is_refused(values: dict[str, str | int]) -> None:
    with pytest.raises(ConfigurationError):
        Table.of(values)


def test_fields_nested_deeper_than_are_read_travel_all_the_same() -> None:
    value = ONE
    for _ in range(200):
        value = long_value("A", long_value("F", field_of("a", value)))
    data = field(b"deep", value)
    table = Table.parse(data)
    assert table["deep"] is not None
    assert table.with_values({"b": 1}).encode() == data + field(b"b", ONE)
