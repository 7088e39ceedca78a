"""An `x-death` that fills a frame costs a worker no more than one that a broker wrote, and travels
all the same."""

import sys
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    FAMILY,
    SUBSCRIPTION,
    death,
    deaths,
    decided,
    failed,
    first_delivery,
    returned,
)
from field_tables import QUEUE, field_of, long_value
from redrive.amqp.field_table import FieldValue, Table, encode_value
from redrive.amqp.properties import Properties
from redrive.pubsub.verdict import Decider
from redrive.topology import headers, rewrite
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.decision import Raised, RetryByRepublish
from redrive.topology.fast_requeue import BulkRequeue
from redrive.topology.headers import Delivery

FRAME = 131_000
RETRY = f"{QUEUE}@retry"
OLD, NEW = BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5)
ENOUGH = 60
"""As many times the calls within Python that an ordinary message takes, some hundreds, one with a
list takes at most; an item of a list takes one or more, and a frame has room for 130,000."""


def full(item: bytes) -> bytes:
    """A list of so many of these items as a frame has room for."""
    return long_value("A", item * (FRAME // len(item)))


A_DEATH = encode_value(death(QUEUE, "rejected", 1))
ORDINARY = Properties(headers=Table([("x-death", long_value("A", A_DEATH))])).encode()
FORGED = {
    "voids": full(b"V"),
    "decimals": full(b"D\1\0\0\0\1"),
    "texts": full(long_value("S", b"")),
    "empty tables": full(long_value("F", b"")),
    "deaths": full(A_DEATH),
    "a death of many fields": long_value("A", long_value("F", field_of("", b"V") * (FRAME // 2))),
    "a death of a long queue": long_value("A", long_value("F", field_of("queue", full(b"V")))),
    "a death of many keys": long_value(
        "A", long_value("F", field_of("routing-keys", full(long_value("S", b""))))
    ),
}


def calls_made(act: Callable[[], object]) -> int:
    """How many functions are called while `act` runs, C's among them."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def settle(
    delivered: Callable[[Properties], Delivery], properties: bytes, version: BrokerVersion
) -> None:
    """All that a worker does with a message whose handler fails."""
    judge = Decider(SUBSCRIPTION, version, CIRCUMSTANCES.frame_max)
    delivery = delivered(Properties.parse(properties))
    judge.arrival(delivery)
    judge.failure(delivery, ValueError("no"))


def as_published(properties: Properties) -> Delivery:
    return Delivery(QUEUE, "master", "user.create", properties, b"{}")


def as_returned(properties: Properties) -> Delivery:
    return Delivery(QUEUE, "", QUEUE, properties, b"{}", redelivered=True)


@pytest.mark.parametrize(
    "name",
    [
        "x-death",
        "x-orig-routing-key",
        "redrive-retries",
        "redrive-count",
        "redrive-job",
        "x-delivery-count",
    ],
)
@pytest.mark.parametrize("forged", FORGED)
def test_a_header_that_fills_a_frame_is_not_read_item_by_item(name: str, forged: str) -> None:
    properties = Properties(headers=Table([(name, FORGED[forged])])).encode()
    usual = calls_made(lambda: settle(as_returned, ORDINARY, OLD))
    for delivered, version in product([as_published, as_returned], [OLD, NEW]):
        made = calls_made(lambda d=delivered, v=version: settle(d, properties, v))  # type: ignore[misc]
        assert made < ENOUGH * usual


@pytest.mark.parametrize("forged", FORGED)
def test_an_x_death_is_read_once_whatever_is_asked_of_a_delivery(
    monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    read: list[bytes | None] = []
    deaths_in = headers.deaths_in

    def note(raw: bytes | None) -> headers.Deaths:
        read.append(raw)
        return deaths_in(raw)

    monkeypatch.setattr(headers, "deaths_in", note)

    settle(as_returned, Properties(headers=Table([("x-death", FORGED[forged])])).encode(), OLD)

    assert read == [FORGED[forged]]


def test_an_ordinary_message_has_no_x_death_read_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headers, "deaths_in", lambda raw: pytest.fail("it was read"))
    assert first_delivery(deaths(death(QUEUE, "rejected", 1))).queue == QUEUE


@pytest.mark.parametrize("forged", FORGED)
def test_a_long_x_death_travels_byte_for_byte(forged: str) -> None:
    received = Table([("x-death", FORGED[forged])])
    for publish in (
        rewrite.restore(failed(received), FAMILY, frame_max=0),
        rewrite.relocate_failed(failed(received), "elsewhere", frame_max=0),
        rewrite.republish(returned(received), FAMILY, retries=1, counts_on=True, frame_max=0),
    ):
        assert dict(publish.properties.headers.raw_fields())["x-death"] == FORGED[forged]


@pytest.mark.parametrize("forged", FORGED)
def test_a_long_x_death_is_none_that_a_broker_goes_on_counting_in(forged: str) -> None:
    delivery = first_delivery(Table([("x-death", FORGED[forged])]))
    assert isinstance(decided(delivery, SUBSCRIPTION, Raised(ERROR), OLD), RetryByRepublish)


@given(st.integers(0, headers.MOST_DEATHS - 2), st.integers(1, 9))
def test_deaths_in_a_hundred_places_are_counted_to_the_last_one(others: int, count: int) -> None:
    elsewhere = [death(f"queue-{number}", "expired", 1) for number in range(others)]
    received = returned(
        deaths(*elsewhere, death(RETRY, "expired", count), death(QUEUE, "rejected", count))
    )
    assert headers.death_count(received.deaths, QUEUE) == count
    assert received.deaths.are_well_formed
    assert received.original_routing_key == "user.create"


def test_a_death_with_many_copies_keeps_its_first_key() -> None:
    keys: list[FieldValue] = [f"key.{number}" for number in range(1000)]
    assert (
        returned(deaths(death(QUEUE, "rejected", 1) | {"routing-keys": keys})).original_routing_key
        == "key.0"
    )


def test_a_bulk_requeue_reads_no_list_where_a_count_should_be() -> None:
    received = Properties(
        headers=Table(
            [
                ("redrive-count", FORGED["voids"]),
                ("x-orig-routing-key", encode_value("user.create")),
            ]
        )
    ).encode()
    bulk = BulkRequeue("job-1", 0)
    usual = calls_made(lambda: bulk.requeue(ORDINARY))
    assert calls_made(lambda: bulk.requeue(received)) < ENOUGH * usual
    ordinary = bulk.requeue(received)
    assert ordinary is not None
    assert ordinary.redrives == 0
