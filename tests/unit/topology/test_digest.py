"""A message's digest: the same at each delivery, and another for whatever differs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed, table
from failed_deliveries import failed_deliveries
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.failures.message.failed_message import FailedMessage
from redrive.topology import digest as digests
from redrive.topology.digest import digest_of, quick_digest
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


NONE = Properties()


def quick(headers: Table = OURS, body: bytes = b"{}", properties: Properties = NONE) -> bytes:
    return quick_digest("q", properties._replace(headers=headers).encode(), body)


@given(failed_deliveries(), failed_deliveries())
def test_messages_that_the_quick_digest_takes_for_one_are_one(one: Delivery, two: Delivery) -> None:
    def both(delivery: Delivery) -> tuple[bytes, str]:
        parts = delivery.routing_key, delivery.properties.encode(), delivery.body
        return quick_digest(*parts), digest_of(*parts)

    (quick_one, whole_one), (quick_two, whole_two) = both(one), both(two)
    assert quick_one != quick_two or whole_one == whole_two


@pytest.mark.parametrize("counts", [{"x-delivery-count": 3}, {"x-acquired-count": 4}])
@pytest.mark.parametrize("headers", [OURS, Table(), Table(OURS.raw_fields(), b"\x03bad")])
@pytest.mark.parametrize(
    "properties",
    [
        NONE,
        Properties(content_type="text/plain", content_encoding="gzip", type="order"),
    ],
)
def test_what_the_broker_counts_changes_no_quick_digest(
    headers: Table, counts: dict[str, FieldValue], properties: Properties
) -> None:
    again = headers.with_values(counts)
    assert quick(again, properties=properties) == quick(headers, properties=properties)
    assert quick(again, b"[]", properties) != quick(headers, b"{}", properties)


def test_a_count_that_can_not_be_read_is_a_part_of_the_message() -> None:
    (field,) = table(x_delivery_count=3).raw_fields()
    cut_off = Table((*OURS.raw_fields(), (field[0], field[1][:2])))
    assert quick(cut_off) != quick()


def test_a_message_without_properties_has_a_quick_digest() -> None:
    assert quick_digest("q", Properties().encode(), b"") != quick_digest("q", b"\0\0", b"{}")


def test_in_order_it_is_the_digest_of_ordered_headers() -> None:
    ordered = Properties(headers=Table(sorted(OURS.raw_fields()))).encode()
    mixed = Properties(headers=Table(sorted(OURS.raw_fields())[::-1])).encode()
    assert quick_digest("q", mixed, b"", in_order=True) == quick_digest("q", ordered, b"")
    assert quick_digest("q", mixed, b"") != quick_digest("q", ordered, b"")
