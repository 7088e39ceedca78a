"""A message's digest: the same at each delivery, and another for whatever differs."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed, table
from failed_deliveries import failed_deliveries
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.message.failed_message import FailedMessage
from redrive.topology import digest as digests
from redrive.topology.digest import digest_of
from redrive.topology.headers import Delivery

OURS = table(redrive_failure_id="one", redrive_error_type="KeyError", tenant="acme")


def digest(headers: Table = OURS, body: bytes = b"{}", key: str = "q", **properties: object) -> str:
    return digest_of(key, Properties(headers=headers, **properties).encode(), body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        digest(body=b"[]"),
        digest(key="r"),
        digest(content_type="text/plain"),
        digest(correlation_id="17"),
        digest(type="order"),
        digest(OURS.with_values({"tenant": "evil"})),
        digest(OURS.with_values({"more": 1})),
        digest(OURS.with_values({"redrive-error-type": "Spam"})),
        digest(Table((*OURS.raw_fields(), *table(tenant="evil").raw_fields()))),
        digest(Table(OURS.raw_fields(), b"\x03bad")),
    ],
)
def test_messages_of_one_failure_id_that_differ_have_different_digests(other: str) -> None:
    assert other != digest()


def test_what_the_broker_counts_changes_no_digest() -> None:
    again = OURS.with_values(
        {
            "x-delivery-count": 3,
            "x-acquired-count": 4,
            "x-first-death-queue": "q",
            "x-opt-seen": True,
        }
    )
    assert digest(again) == digest()
    bare = Properties(content_type="text/plain")
    assert digest_of("q", bare.encode(), b"") == digest_of(
        "q", bare._replace(headers=table(x_delivery_count=1)).encode(), b""
    )


def test_the_order_of_the_headers_changes_no_digest() -> None:
    assert digest(Table(OURS.raw_fields()[::-1])) == digest()


def test_the_order_of_two_headers_of_one_name_does() -> None:
    both = (*table(a=1).raw_fields(), *table(a=2).raw_fields())
    assert digest(Table(both)) != digest(Table(both[::-1]))


@pytest.mark.parametrize("size", [0, 2046, 2047, 2048, 5000, 65_536, 70_000])
def test_a_digest_does_not_depend_on_the_pieces_in_which_it_is_computed(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    lengths = struct.pack(">4Q", 1, 2, 0, size)
    whole = hashlib.sha256(b"".join((lengths, b"q", b"\0\0", body))).hexdigest()
    assert digest_of("q", Properties().encode(), body) == whole


@given(failed_deliveries())
def test_whatever_a_peer_sends_has_the_digest_of_its_bytes(delivery: Delivery) -> None:
    raw = delivery.properties.encode()
    assert FailedMessage(delivery).digest == digest_of(delivery.routing_key, raw, delivery.body)
    copy = Delivery(
        delivery.queue,
        "elsewhere",
        delivery.routing_key,
        Properties.parse(raw),
        delivery.body,
        True,
    )
    assert FailedMessage(copy).digest == FailedMessage(delivery).digest


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_part_can_be_taken_for_another(first: bytes, second: bytes) -> None:
    assert (digest(body=first, message_id="a") == digest(body=second, message_id="a")) == (
        first == second
    )
    assert digest(EMPTY_ID, body=first) != digest(body=first)


EMPTY_ID = table(redrive_failure_id="", redrive_error_type="KeyError", tenant="acme")


def test_damaged_headers_have_a_digest() -> None:
    assert (
        FailedMessage(failed(Table((), b"\xff\x01"))).digest
        != FailedMessage(failed(Table((), b"\xff\x02"))).digest
    )


def test_names_that_there_is_no_room_to_learn_change_no_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = digest()
    monkeypatch.setattr(digests, "_MOST_NAMES", 0)
    monkeypatch.setattr(digests, "_RULES", {})
    assert digest() == before
    assert digests._RULES == {}
