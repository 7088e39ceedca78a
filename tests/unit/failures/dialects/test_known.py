from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failed_deliveries import failed_deliveries
from field_tables import field, long_value, values
from framework_messages import (
    CELERY,
    DIED_AT,
    DRAMATIQ,
    EASYNETQ,
    LARAVEL,
    MASSTRANSIT,
    NESTJS,
    NSERVICEBUS,
    RASCAL,
    REBUS,
    SPRING,
    SYMFONY,
    SYMFONY_IN_PHP,
    WOLVERINE,
    WOLVERINE_BY_NACK,
    message,
)
from redrive.amqp.field_table import Table
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.known import notes_of
from redrive.failures.failed_message import FailedMessage
from redrive.topology.headers import ERROR_MESSAGE, FAILURE_ID, Delivery

_LOCKED = ("System.InvalidOperationException", "Order is locked")

NOTES = [
    (
        MASSTRANSIT,
        FailureNotes(
            "masstransit",
            error_type="System.InvalidOperationException",
            error_message="Inventory service unavailable",
            failed_at=datetime(2026, 2, 10, 14, 3, 11, 482193, tzinfo=UTC),
            retries=3,
            host="orders-7d9c6",
            queue="submit-order",
        ),
    ),
    (
        NSERVICEBUS,
        FailureNotes(
            "nservicebus",
            *_LOCKED,
            failed_at=datetime(2026, 8, 10, 9, 16, 23, 799804, tzinfo=UTC),
            host="SALES01",
            queue="Sales",
        ),
    ),
    (
        WOLVERINE,
        FailureNotes(
            "wolverine",
            *_LOCKED,
            failed_at=datetime(2026, 8, 21, 7, 10, 42, 731000, tzinfo=UTC),
            queue="orders",
        ),
    ),
    (WOLVERINE_BY_NACK, FailureNotes("wolverine", failed_at=DIED_AT, queue="orders")),
    (REBUS, FailureNotes("rebus", *_LOCKED, queue="billing")),
    (
        EASYNETQ,
        FailureNotes(
            "easynetq",
            *_LOCKED,
            failed_at=datetime(2026, 6, 16, 8, 41, 7, 512093, tzinfo=UTC),
            queue="billing",
            exchange="Acme.Orders.OrderPlaced, Acme.Orders",
            routing_key="",
        ),
    ),
    (
        SPRING,
        FailureNotes(
            "spring",
            error_type="java.lang.IllegalStateException",
            error_message="Stock service is down",
            retries=1,
            exchange="orders",
            routing_key="orders.created",
        ),
    ),
    (CELERY, FailureNotes("celery", failed_at=DIED_AT, retries=3, queue="celery")),
    (
        DRAMATIQ,
        FailureNotes(
            "dramatiq",
            error_type="RuntimeError",
            error_message="mailer is down",
            failed_at=DIED_AT,
            retries=3,
            queue="default",
        ),
    ),
    (LARAVEL, FailureNotes("laravel", failed_at=DIED_AT, retries=2, queue="default")),
    (
        SYMFONY,
        FailureNotes(
            "symfony",
            error_type="RuntimeException",
            error_message="Mailer is down",
            failed_at=datetime(2024, 10, 23, 20, 33, 14, tzinfo=UTC),
            retries=1,
            queue="messages",
        ),
    ),
    (
        SYMFONY_IN_PHP,
        FailureNotes(
            "symfony",
            error_type="App\\RuntimeException",
            error_message="Mailer is down",
            queue="messages",
        ),
    ),
    (
        RASCAL,
        FailureNotes(
            "rascal",
            error_type="ECONNREFUSED",
            error_message="connect ECONNREFUSED 127.0.0.1:5432",
            failed_at=DIED_AT,
            retries=2,
            queue="registration:user:save",
            exchange="registration",
            routing_key="user.save",
        ),
    ),
    (NESTJS, FailureNotes("nestjs", failed_at=DIED_AT, queue="orders_queue")),
]


@pytest.mark.parametrize(
    ("delivery", "expected"), NOTES, ids=lambda value: getattr(value, "dialect", "")
)
def test_a_message_is_read_in_the_words_of_its_framework(
    delivery: Delivery, expected: FailureNotes
) -> None:
    assert replace(notes_of(delivery), traceback=None) == expected


def test_what_nobody_has_left_is_unknown() -> None:
    assert notes_of(message()) == FailureNotes("unknown")


def test_what_redrive_itself_set_aside_is_read_in_no_other_words() -> None:
    table = {**CELERY.properties.headers.to_dict(), FAILURE_ID: "0b6f9c1e"}
    assert notes_of(message(table)) == FailureNotes("redrive")


def test_a_failed_message_tells_what_its_framework_wrote() -> None:
    told = FailedMessage(DRAMATIQ)
    assert (told.dialect, told.error_type, told.retries) == ("dramatiq", "RuntimeError", 3)
    assert told.error_message == "mailer is down"
    assert told.failed_at == DIED_AT
    assert told.traceback is not None
    assert "tasks.py" in told.traceback


def test_an_error_without_a_text_has_an_empty_one() -> None:
    told = FailedMessage(message({FAILURE_ID: "0b6f9c1e", ERROR_MESSAGE: ""}))
    assert told.error_message == ""


_NAMES = sorted({name for delivery, _ in NOTES for name in delivery.properties.headers})
_BODIES = [delivery.body for delivery, _ in NOTES]
_own_fields = st.builds(
    field,
    st.sampled_from(_NAMES).map(str.encode),
    st.one_of(
        values,
        st.sampled_from(['[{"exceptionClass": []}]', "[[]]", "[1", '"\\ud800"', "3", "2024"]).map(
            lambda text: long_value("S", text.encode())
        ),
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> Delivery:
    """A framework's message with something else in it."""
    delivery = draw(st.one_of(failed_deliveries(), st.sampled_from([one for one, _ in NOTES])))
    own = b"".join(draw(st.lists(_own_fields, max_size=6)))
    table = Table.parse(own + delivery.properties.headers.encode())
    body = draw(st.one_of(st.just(delivery.body), st.sampled_from(_BODIES)))
    cut = draw(st.integers(0, len(body)))
    filler = draw(
        st.sampled_from([b"", b"null", b"[]", b'{"traceback": 5}', b"\xff", b'"\\ud800"'])
    )
    return replace(
        delivery,
        properties=delivery.properties._replace(headers=table),
        body=body[:cut] + filler + body[draw(st.integers(cut, len(body))) :],
    )


@given(damaged())
def test_nothing_that_a_message_holds_makes_a_dialect_raise(delivery: Delivery) -> None:
    notes = notes_of(delivery)
    for value in (notes.error_type, notes.error_message, notes.traceback, notes.queue):
        assert value is None or value.encode()
    assert notes.failed_at is None or notes.failed_at.utcoffset() is not None
    assert notes.retries is None or notes.retries >= 0
