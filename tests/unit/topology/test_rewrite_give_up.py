"""What giving up writes, where there is room for all of it."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import (
    CIRCUMSTANCES,
    ERROR,
    FAILURE_ID,
    FAMILY,
    NOW_TEXT,
    death,
    deaths,
    first_delivery,
    returned,
    table,
)
from field_tables import QUEUE, hostile_tables
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import ErrorReport


def given_up(delivery: Delivery, error: ErrorReport = ERROR) -> Table:
    publish = rewrite.give_up(
        delivery,
        FAMILY,
        reason="retries-exhausted",
        error=error,
        retries=3,
        context=CIRCUMSTANCES,
    )
    return publish.properties.headers


def test_a_message_set_aside_says_everything_about_its_failure() -> None:
    assert given_up(first_delivery()).to_dict() == {
        "redrive-failure-id": FAILURE_ID,
        "redrive-error-type": "shop.PaymentError",
        "x-orig-routing-key": "user.create",
        "redrive-reason": "retries-exhausted",
        "redrive-retries": 3,
        "redrive-failed-at": NOW_TEXT,
        "redrive-first-failed-at": NOW_TEXT,
        "redrive-orig-exchange": "master",
        "redrive-host": "worker-1",
        "redrive-error-message": "the card was refused",
        "redrive-error-traceback": ERROR.traceback,
    }


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (ErrorReport("ValueError", "", "a traceback"), headers.ERROR_MESSAGE),
        (ErrorReport("ValueError", "a text", ""), headers.ERROR_TRACEBACK),
    ],
    ids=["text", "traceback"],
)
def test_what_an_error_does_not_have_leaves_no_header(error: ErrorReport, missing: str) -> None:
    everything = set(given_up(first_delivery()))
    assert set(given_up(first_delivery(), error)) == everything - {missing}


def test_a_message_set_aside_keeps_its_x_death() -> None:
    received = deaths(death(QUEUE, "rejected", 3))
    assert received.raw_fields()[0] in given_up(returned(received)).raw_fields()


@given(hostile_tables())
def test_a_message_set_aside_has_one_failure_id_whatever_it_came_with(received: Table) -> None:
    moved = given_up(first_delivery(received))
    assert [raw for name, raw in moved.raw_fields() if name == headers.FAILURE_ID] == [
        b"S\0\0\0\x24" + FAILURE_ID.encode()
    ]


def test_what_an_earlier_failure_wrote_is_replaced() -> None:
    received = table(
        redrive_reason="gave-up",
        redrive_error_traceback="old",
        redrive_error_message="old",
        redrive_failed_at="old",
    )
    moved = given_up(first_delivery(received), replace(ERROR, message="", traceback=""))
    assert (moved["redrive-reason"], moved["redrive-failed-at"]) == ("retries-exhausted", NOW_TEXT)
    assert "redrive-error-traceback" not in moved
    assert "redrive-error-message" not in moved


@pytest.mark.parametrize("name", ["redrive-tag-vip", "redrive-count", "redrive-job"])
def test_what_others_of_redrive_wrote_is_kept(name: str) -> None:
    assert given_up(returned(Table.of({name: True})))[name] is True


@pytest.mark.parametrize(
    "address",
    [
        "amqp://guest:hunter2@localhost/",
        "https://api.example.com/?token=hunter2",
        "amqps://a:hunter2@h/ and amqp://b:hunter2@h/",
    ],
)
def test_no_secret_of_an_error_is_written(address: str) -> None:
    moved = given_up(
        first_delivery(),
        ErrorReport("E", f"no answer from {address}", f"Traceback\n  connect({address!r})"),
    )
    assert b"hunter2" not in moved.encode()


def test_the_name_of_an_error_type_is_cut_to_255_characters() -> None:
    assert given_up(first_delivery(), ErrorReport("E" * 300))["redrive-error-type"] == "E" * 255


def test_the_texts_of_an_error_may_be_anything() -> None:
    moved = given_up(first_delivery(), ErrorReport("grün.E", "\ud800 \0 \u202e", "\udcff"))
    assert moved["redrive-error-type"] == "grün.E"


@given(st.text(), st.text())
def test_the_texts_of_an_error_are_written_as_texts(message: str, traceback: str) -> None:
    moved = given_up(first_delivery(), ErrorReport("E", message, traceback))
    assert isinstance(moved.get("redrive-error-message", ""), str)
    assert isinstance(moved.get("redrive-error-traceback", ""), str)


# --- when it first failed -------------------------------------------------------------------------


def first_failed_at(delivery: Delivery) -> FieldValue:
    return given_up(delivery)["redrive-first-failed-at"]


def test_a_message_first_failed_when_it_was_first_rejected() -> None:
    assert (
        first_failed_at(returned(deaths(death(QUEUE, "rejected", 3)))) == "2024-05-17T08:00:00.000Z"
    )


def test_a_message_that_failed_before_a_requeue_first_failed_then() -> None:
    rejected = deaths(death(QUEUE, "rejected", 3, exchange="", routing_key=QUEUE))
    received = rejected.with_values({"redrive-first-failed-at": "2023-01-01T00:00:00.000Z"})
    assert first_failed_at(returned(received)) == "2023-01-01T00:00:00.000Z"


def test_a_message_that_was_not_rejected_first_failed_now() -> None:
    assert first_failed_at(first_delivery()) == NOW_TEXT


def test_a_rejection_that_a_publisher_made_up_is_not_the_first_failure() -> None:
    assert first_failed_at(first_delivery(deaths(death(QUEUE, "rejected", 3)))) == NOW_TEXT


@pytest.mark.parametrize("time", [None, "2024", 2**64 - 1, True], ids=repr)
def test_a_rejection_without_a_readable_time_is_not_the_first_failure(time: FieldValue) -> None:
    entry = death(QUEUE, "rejected", 3) | {"time": None if isinstance(time, int) else time}
    assert first_failed_at(returned(deaths(entry))) == NOW_TEXT


@pytest.mark.parametrize("noted", ["", b"\xff", 1, None], ids=repr)
def test_a_first_failure_that_is_no_text_is_not_known(noted: FieldValue) -> None:
    assert first_failed_at(returned(table(redrive_first_failed_at=noted))) == NOW_TEXT


def test_the_latest_time_that_can_be_written_is_written() -> None:
    entry = death(QUEUE, "rejected", 1) | {"time": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}
    assert first_failed_at(returned(deaths(entry))) == "9999-12-31T23:59:59.000Z"


# --- where it was first published -----------------------------------------------------------------


def test_a_message_was_published_to_the_exchange_that_its_first_rejection_notes() -> None:
    assert (
        given_up(returned(deaths(death(QUEUE, "rejected", 3, exchange="shop"))))[
            "redrive-orig-exchange"
        ]
        == "shop"
    )


def test_a_message_that_was_not_rejected_was_published_to_the_exchange_it_came_through() -> None:
    assert given_up(first_delivery())["redrive-orig-exchange"] == "master"


@pytest.mark.parametrize("exchange", [None, 1, b"\xff"], ids=repr)
def test_a_rejection_without_a_readable_exchange_leaves_it_to_the_delivery(
    exchange: FieldValue,
) -> None:
    entry = death(QUEUE, "rejected", 3) | {"exchange": exchange}
    assert given_up(returned(deaths(entry)))["redrive-orig-exchange"] == ""


def test_the_properties_of_a_message_set_aside_are_those_it_came_with() -> None:
    received = Properties(content_type="application/json", delivery_mode=2, message_id="m-1")
    delivery = replace(first_delivery(), properties=received)
    publish = rewrite.give_up(
        delivery, FAMILY, reason="gave-up", error=ERROR, retries=0, context=CIRCUMSTANCES
    )
    assert publish.properties._replace(headers=received.headers) == received
