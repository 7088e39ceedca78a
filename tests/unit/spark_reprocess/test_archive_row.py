"""A message as a row of the archive: whatever a peer has sent comes out as it went in."""

import gzip

import pyarrow
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st

from field_tables import QUEUE, properties
from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.failures.message.columns import BY_NAME, row_of
from redrive.failures.queue.failed_source import FailedSource
from redrive.spark_reprocess.archive_row import MOST_OF_A_PLAIN_BODY, SCHEMA, parquet_of, table_of
from redrive.topology.headers import Delivery

_keys = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
_received = st.builds(
    lambda redelivered, exchange, key, given_properties, body: Received(
        1, redelivered, exchange, key, given_properties.encode(), body
    ),
    st.booleans(),
    _keys,
    _keys,
    properties,
    st.binary(max_size=50) | st.sampled_from([b"{}", b'{"id": 1}', b"text", b'"\\ud800"', b"NaN"]),
)


def rows_of(messages: list[Received]) -> list[dict[str, object]]:
    """The rows of the Parquet file of these messages."""
    table = pyarrow.parquet.read_table(
        pyarrow.BufferReader(parquet_of(table_of(FailedSource.of_subscription(QUEUE), messages)))
    )
    found: list[dict[str, object]] = table.to_pylist()
    return found


@given(st.lists(_received, max_size=4))
def test_every_message_survives_byte_for_byte(messages: list[Received]) -> None:
    for row, received in zip(rows_of(messages), messages, strict=True):
        assert row["properties"] == received.properties
        assert row["body_bytes"] == received.body
        assert row["delivered_exchange"] == received.exchange.encode("utf-8", "surrogateescape")
        assert row["delivered_routing_key"] == received.routing_key.encode(
            "utf-8", "surrogateescape"
        )
        assert row["redelivered"] == received.redelivered


@given(_received)
def test_the_columns_beside_it_are_those_of_the_filter_language(received: Received) -> None:
    (row,) = rows_of([received])
    delivery = Delivery(
        QUEUE,
        received.exchange,
        received.routing_key,
        Properties.parse(received.properties),
        received.body,
    )
    expected = row_of(delivery)
    assert {name: row[name] for name in expected if name in row} == {
        name: value for name, value in expected.items() if name in row
    }
    text = received.body.decode("utf-8", "replace")
    assert expected["body"] == (text if row["body_kind"] == "json" else None)
    assert expected["body_text"] == (text if row["body_kind"] in ("json", "text") else None)


def test_only_what_can_be_made_of_the_rest_is_not_stored() -> None:
    assert BY_NAME.keys() - set(SCHEMA.names) == {"queue", "body", "body_text"}


def packed(body: bytes) -> Received:
    properties = Properties("application/json", "gzip")
    return Received(1, False, "", QUEUE, properties.encode(), gzip.compress(body))


def test_what_the_handler_sees_of_a_compressed_body_is_kept_beside_it() -> None:
    (row,) = rows_of([packed(b'{"id":1}')])
    assert (row["body_kind"], row["plain_body"]) == ("json", b'{"id":1}')


def test_a_file_of_bombs_fits_in_memory() -> None:
    (row,) = rows_of([packed(bytes(MOST_OF_A_PLAIN_BODY + 1))])
    assert (row["body_kind"], row["plain_body"]) == ("binary", None)
