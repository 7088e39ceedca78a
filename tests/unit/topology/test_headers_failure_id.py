"""The identity of a failed message."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed, table
from field_tables import tables
from redrive.amqp.field_table import FieldValue, Table
from redrive.topology.headers import Delivery, failure_id, fingerprint


def test_our_failure_id_is_the_identity_of_a_failure() -> None:
    assert failure_id(failed(table(redrive_failure_id="0b6f"))) == "0b6f"


@pytest.mark.parametrize("own", ["", b"\xff", 1, None, True], ids=repr)
def test_a_failure_id_that_is_no_text_is_none(own: FieldValue) -> None:
    delivery = failed(table(redrive_failure_id=own))
    assert failure_id(delivery) == fingerprint(delivery)


def test_a_fingerprint_is_a_sha256_in_hex() -> None:
    assert len(bytes.fromhex(fingerprint(failed()))) == 32


@given(tables, st.data())
def test_a_fingerprint_is_the_same_whatever_the_order_of_the_headers(
    headers: Table, choices: st.DataObject
) -> None:
    reordered = Table(choices.draw(st.permutations(headers.raw_fields())))
    assert fingerprint(failed(reordered)) == fingerprint(
        failed(Table(headers.raw_fields()))
    ) or _has_duplicates(headers)


def _has_duplicates(headers: Table) -> bool:
    return len(headers) != len(headers.raw_fields())


@given(tables, st.integers(0, 2**31 - 1))
def test_a_fingerprint_does_not_change_with_each_delivery(headers: Table, count: int) -> None:
    again = headers.with_values(
        {"x-delivery-count": count, "x-acquired-count": count, "x-opt-time": count}
    )
    clean = headers.without(
        lambda name: name in {"x-delivery-count", "x-acquired-count", "x-opt-time"}
    )
    assert fingerprint(failed(again)) == fingerprint(failed(clean))


def test_a_fingerprint_does_not_look_at_the_redelivered_flag() -> None:
    assert fingerprint(failed()) == fingerprint(replace(failed(), redelivered=True))


DELIVERY = failed(table(tenant="a"))
OTHERS = {
    "body": replace(DELIVERY, body=b"{ }"),
    "routing key": replace(DELIVERY, routing_key="other"),
    "original routing key": failed(table(tenant="a", x_orig_routing_key="user.delete")),
    "header value": failed(table(tenant="b")),
    "header type": failed(table(tenant=b"a")),
    "header name": failed(table(tenants="a")),
    "no header": failed(),
    "message id": replace(DELIVERY, properties=DELIVERY.properties._replace(message_id="m-1")),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_messages_that_differ_have_different_fingerprints(other: Delivery) -> None:
    assert fingerprint(other) != fingerprint(DELIVERY)


def test_what_one_part_gains_and_the_next_loses_makes_another_fingerprint() -> None:
    longer = replace(failed(body=b"ab"), routing_key="c")
    assert fingerprint(longer) != fingerprint(replace(failed(body=b"a"), routing_key="bc"))
