"""Rows of failed messages: what each column says, and that nothing a peer can send makes one
raise."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given

from deliveries import NOW, NOW_TEXT, failed, table
from failed_deliveries import failed_deliveries
from field_tables import QUEUE, field
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.message.columns import BY_NAME, COLUMNS, Row, SqlType, row_of
from redrive.topology.headers import Delivery

IN_PYTHON = {
    SqlType.TEXT: str,
    SqlType.NUMBER: int,
    SqlType.TIME: datetime,
    SqlType.JSON: str,
    SqlType.BYTES: bytes,
}


def assert_fits_its_columns(row: Row) -> None:
    """Each value has the type that its column says, and can be encoded."""
    assert list(row) == [column.name for column in COLUMNS]
    for column in COLUMNS:
        value = row[column.name]
        if value is None:
            assert column.nullable, column.name
            continue
        assert type(value) is IN_PYTHON[column.type], column.name
        if isinstance(value, str):
            value.encode()
        if isinstance(value, datetime):
            assert value.tzinfo is UTC
        if isinstance(value, int):
            assert -(2**63) <= value < 2**63


@given(failed_deliveries())
def test_whatever_a_peer_sends_becomes_a_row_of_the_right_types(delivery: Delivery) -> None:
    assert_fits_its_columns(row_of(delivery))


@given(failed_deliveries())
def test_headers_and_body_are_json_that_utf8_can_carry(delivery: Delivery) -> None:
    row = row_of(delivery)
    for name in ("headers", "body"):
        text = row[name]
        if text is not None:
            assert isinstance(text, str)
            json.dumps(json.loads(text), allow_nan=False, ensure_ascii=False).encode()


def test_every_type_of_a_column_has_a_type_in_python() -> None:
    assert set(IN_PYTHON) == set(SqlType)
    assert {column.type for column in COLUMNS} == set(SqlType)
    assert len(BY_NAME) == len(COLUMNS)


def test_our_own_failure_has_a_value_in_every_column() -> None:
    own = table(
        redrive_failure_id="f-1",
        redrive_error_type="shop.OutOfStock",
        redrive_error_message="no more socks",
        redrive_error_traceback='  File "/srv/shop/orders.py", line 3, in charge\n',
        redrive_reason="gave-up",
        redrive_retries=2,
        redrive_count=1,
        redrive_failed_at=NOW_TEXT,
        redrive_first_failed_at="2024-05-17T08:00:00Z",
        redrive_host="worker-1",
        redrive_orig_exchange="master",
        x_orig_routing_key="user.create",
        tenant="acme",
    )
    properties = Properties(
        content_type="application/json",
        headers=own,
        correlation_id="c",
        message_id="m",
        timestamp=1_700_000_000,
        type="created",
        app_id="ucenter",
    )
    row = row_of(Delivery(QUEUE, "master.failed", QUEUE, properties, b'{"country": "DE"}'))

    # It is in no queue that somebody else has made.
    assert {name for name, value in row.items() if value is None} == {"dead_letter_queue"}
    assert row["failure_id"] == "f-1"
    assert row["routing_key"] == "user.create"
    assert (row["retries"], row["redrive_count"], row["size"]) == (2, 1, 17)
    assert row["failed_at"] == NOW
    assert row["first_failed_at"] == datetime(2024, 5, 17, 8, tzinfo=UTC)
    assert row["published_at"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert json.loads(str(row["headers"]))["tenant"] == "acme"
    assert row["body"] == row["body_text"] == '{"country": "DE"}'
    assert row["body_bytes"] == b'{"country": "DE"}'


def test_a_message_of_a_foreign_publisher_has_nulls() -> None:
    row = row_of(failed())
    known = {"body", "body_text", "way_back"}
    unknown = {column.name for column in COLUMNS if column.nullable} - known
    assert {name for name, value in row.items() if value is None} == unknown


@pytest.mark.parametrize(
    ("body", "as_json", "as_text"),
    [
        (b'{"a": 1.10}', '{"a": 1.10}', '{"a": 1.10}'),
        (b"null", "null", "null"),
        (b"hello", None, "hello"),
        (b"", None, ""),
        (b"\xff", None, None),
        (b"NaN", None, "NaN"),
        (b"1e999", None, "1e999"),
        (b'"\\ud800"', None, '"\\ud800"'),
        (b"[" * 100_000, None, "[" * 100_000),
        (b"\xef\xbb\xbf{}", "{}", "{}"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_body_is_json_where_it_is_and_text_where_it_is(
    body: bytes, as_json: str | None, as_text: str | None
) -> None:
    row = row_of(failed(body=body))
    assert (row["body"], row["body_text"], row["body_bytes"]) == (as_json, as_text, body)


def test_other_bytes_than_utf8_are_escaped() -> None:
    own = b"\xfe".decode("utf-8", "surrogateescape")
    row = row_of(
        Delivery(
            QUEUE,
            "",
            own,
            Properties(message_id=own, headers=Table.parse(field(b"\xfd", b"t\1"))),
            b"",
        )
    )
    assert (row["message_id"], row["routing_key"], row["headers"]) == (
        "\\xfe",
        "\\xfe",
        '{"\\\\xfd": true}',
    )


def test_only_the_columns_that_are_asked_for_are_read() -> None:
    assert row_of(failed(body=b"{}"), [BY_NAME["size"]]) == {"size": 2}
