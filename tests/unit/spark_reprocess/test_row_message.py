"""A row of the archive as a publish: by the rules of a requeue on one machine, and by no other."""

import gzip
from dataclasses import replace

import pytest

from framework_messages import (
    CELERY,
    DRAMATIQ,
    EASYNETQ,
    MASSTRANSIT,
    RASCAL,
    SPRING,
    death,
    message,
)
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.dialects.known import renewed
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    PROPERTIES,
    ROUTING_KEY,
    bytes_of,
)
from redrive.spark_reprocess.row_message import (
    AS_BYTES,
    AS_TEXT,
    EDITED,
    SENT_BY,
    Mode,
    PreparedRow,
    Row,
    preparer,
)
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

PLACE = "orders.dlq"


def dead(delivery: Delivery) -> Delivery:
    return replace(delivery, dead_letter_queue=PLACE, queue=PLACE)


def row_of(delivery: Delivery) -> Row:
    return {
        "id": "1",
        "queue": delivery.queue,
        EXCHANGE: bytes_of(delivery.exchange),
        ROUTING_KEY: bytes_of(delivery.routing_key),
        PROPERTIES: delivery.properties.encode(),
        BODY: delivery.body,
        DEAD_LETTER_QUEUE: delivery.dead_letter_queue or None,
    }


def prepared(
    row: Row,
    direction: Direction | None = None,
    mode: Mode = Mode.REQUEUE,
    frame_max: int = 131_072,
) -> PreparedRow:
    return preparer(
        mode,
        job="job",
        frame_max=frame_max,
        exchange="master",
        exchanges=ExchangeFamily(),
        direction=direction or Direction(),
    )(row)


@pytest.mark.parametrize(
    "direction", [Direction(unchecked=True), Direction(via=True), Direction("elsewhere")]
)
@pytest.mark.parametrize(
    "delivery",
    [message(death("orders")), CELERY, DRAMATIQ, MASSTRANSIT, RASCAL, SPRING],
    ids=["x-death", "celery", "dramatiq", "masstransit", "rascal", "spring"],
)
def test_a_dead_letter_goes_the_way_and_looks_as_on_one_machine(
    delivery: Delivery, direction: Direction
) -> None:
    received = dead(delivery)
    found = FailedMessage.of_dead_letter(received)
    way = direction.route_of(found).way
    if way is None:
        with pytest.raises(ConfigurationError, match="nothing says which queue it failed in"):
            prepared(row_of(received), direction)
        return
    expected = rewrite.requeue(renewed(found.delivery), job="job", frame_max=131_072)
    assert prepared(row_of(received), direction) == PreparedRow(
        "1", *way, expected.properties.encode(), expected.body
    )


def test_what_says_no_way_back_is_refused_and_stays() -> None:
    with pytest.raises(ConfigurationError) as refused:
        prepared(row_of(dead(message())))
    assert str(refused.value).splitlines() == [
        "nothing says which queue it failed in",
        "It stays in the archive: --to names a queue.",
    ]


def test_a_dead_letter_is_restored_to_the_queue_that_it_came_from() -> None:
    received = dead(message(death("orders")))
    there = prepared(row_of(received), mode=Mode.RESTORE)
    assert (there.exchange, there.routing_key) == ("", PLACE)
    assert there.properties == received.properties.encode()


def test_a_subscriptions_message_goes_to_its_main_queue_or_to_the_one_that_is_named() -> None:
    delivery = replace(message(), queue="shop@orders")
    assert prepared(row_of(delivery))[1:3] == ("", "shop@orders")
    assert prepared(row_of(delivery), Direction("elsewhere"))[1:3] == ("", "elsewhere")


def test_a_subscriptions_message_goes_by_its_first_exchange_where_it_says_that() -> None:
    table = Table.of({headers.ORIG_EXCHANGE: "shop", headers.ORIG_ROUTING_KEY: "order.new"})
    delivery = replace(message(), queue="shop@orders")
    delivery = replace(delivery, properties=delivery.properties._replace(headers=table))
    assert prepared(row_of(delivery), Direction(via=True))[1:3] == ("shop", "order.new")


def test_rows_without_the_column_are_of_subscriptions() -> None:
    row = {**row_of(replace(message(), queue="shop@orders"))}
    del row[DEAD_LETTER_QUEUE]
    assert prepared(row)[1:3] == ("", "shop@orders")


def test_a_damaged_row_is_told_of_and_stays() -> None:
    row = {**row_of(dead(message(death("orders")))), PROPERTIES: b"\xff"}
    with pytest.raises(ConfigurationError, match="its stored form is damaged"):
        prepared(row)


def test_a_changed_body_goes_the_way_that_was_told_before() -> None:
    received = dead(EASYNETQ)
    changed = {**row_of(received), BODY: b'{"OrderId":43}'}
    given = {SENT_BY: {"exchange": b"", "routing_key": b"billing"}}
    assert prepared({**changed, **given})[1:3] == ("", "billing")
    with pytest.raises(ConfigurationError, match="nothing says which queue it failed in"):
        prepared(changed)


@pytest.mark.parametrize(
    "body", [b'{"a":1}', gzip.compress(b"{}", mtime=0)], ids=["plain", "compressed"]
)
def test_a_body_that_a_transform_has_made_is_sent_with_the_encoding_that_it_has(
    body: bytes,
) -> None:
    properties = Properties("application/json", "gzip")
    delivery = replace(message(), queue="shop@orders", properties=properties, body=body)
    way = {"exchange": b"", "routing_key": b"shop@orders"}
    sent = prepared({**row_of(delivery), SENT_BY: way})
    encoding = Properties.parse(sent.properties).content_encoding
    assert (sent.body, encoding) == (body, None if body == b'{"a":1}' else "gzip")


@pytest.mark.parametrize(
    ("edited", "body", "encoding", "content_type"),
    [
        (AS_TEXT, "ö".encode(), None, "text/plain"),
        (AS_BYTES, b'{"a":1}', None, "text/plain"),
        (AS_BYTES, gzip.compress(b"{}", mtime=0), "gzip", "text/plain; charset=latin-1"),
        (None, gzip.compress(b"{}", mtime=0), "gzip", "text/plain; charset=latin-1"),
    ],
)
def test_a_subscriptions_compressed_body_that_became_plain_loses_its_encoding(
    edited: str | None, body: bytes, encoding: str | None, content_type: str
) -> None:
    table = Table.of({headers.ORIG_ROUTING_KEY: "order.new"})
    properties = Properties("text/plain; charset=latin-1", "gzip", table)
    delivery = replace(message(), queue="shop@orders", properties=properties, body=body)
    sent = prepared({**row_of(delivery), EDITED: edited})
    found = Properties.parse(sent.properties)
    assert (sent.body, found.content_encoding, found.content_type) == (body, encoding, content_type)
