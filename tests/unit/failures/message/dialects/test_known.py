import json
import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failed_deliveries import failed_deliveries
from field_tables import field, field_of, long_value, values
from framework_messages import (
    BRIGHTER,
    CELERY,
    DAPR,
    DAPR_BY_TOPIC,
    DIED_AT,
    DRAMATIQ,
    EASYNETQ,
    ECOTONE,
    KICKS,
    LARAVEL,
    MASSTRANSIT,
    MOLECULER,
    MOLECULER_WITHOUT_ERROR,
    NESTJS,
    NSERVICEBUS,
    PEER,
    RASCAL,
    REBUS,
    SERVICESTACK,
    SERVICESTACK_BY_NACK,
    SERVICESTACK_WITHOUT_ERROR,
    SNEAKERS,
    SPRING,
    STAMP,
    SWARROT,
    SYMFONY,
    SYMFONY_IN_PHP,
    TASKIQ,
    WATERMILL,
    WOLVERINE,
    WOLVERINE_BY_NACK,
    chance_message,
    message,
)
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.known import DIALECTS, notes_of, renewed
from redrive.failures.message.failed_message import FailedMessage
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
    (TASKIQ, FailureNotes("taskiq", failed_at=DIED_AT, retries=2, queue="taskiq")),
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
    (
        MOLECULER,
        FailureNotes(
            "moleculer",
            error_type="MoleculerClientError",
            error_message="Customer is blocked",
            failed_at=datetime(2026, 9, 24, 8, 36, 41, 482000, tzinfo=UTC),
            queue="billing.order.placed",
            exchange="order.placed",
            routing_key="",
        ),
    ),
    (
        MOLECULER_WITHOUT_ERROR,
        FailureNotes(
            "moleculer", queue="billing.order.placed", exchange="order.placed", routing_key=""
        ),
    ),
    (NESTJS, FailureNotes("nestjs", failed_at=DIED_AT, queue="orders_queue")),
    (
        SERVICESTACK,
        FailureNotes(
            "servicestack",
            "InvalidOperationException",
            "Order is locked",
            queue="mq:PlaceOrder.inq",
        ),
    ),
    (
        SERVICESTACK_WITHOUT_ERROR,
        FailureNotes("servicestack", queue="eu.mq:PlaceOrder.inq"),
    ),
    (
        SERVICESTACK_BY_NACK,
        FailureNotes("servicestack", failed_at=DIED_AT, queue="mq:PlaceOrder.priorityq"),
    ),
    (BRIGHTER, FailureNotes("brighter", failed_at=DIED_AT, retries=2, queue="billing")),
    (SWARROT, FailureNotes("swarrot", failed_at=DIED_AT, retries=3, queue="mail")),
    (ECOTONE, FailureNotes("ecotone", "App\\Order\\OrderIsLocked", "Order is locked")),
    (DAPR, FailureNotes("dapr", failed_at=DIED_AT, queue="billing-orders")),
    (DAPR_BY_TOPIC, FailureNotes("dapr", exchange="orders", routing_key="")),
    *(
        (
            one,
            FailureNotes(
                "sneakers",
                "Timeout::Error",
                "execution expired",
                failed_at=datetime(2026, 11, 26, 19, tzinfo=UTC),
                retries=5,
            ),
        )
        for one in (SNEAKERS, KICKS)
    ),
    (
        WATERMILL,
        FailureNotes("watermill", error_message="db: connection refused", queue="orders.created"),
    ),
    (
        PEER,
        FailureNotes("peer", failed_at=DIED_AT, queue="ucenter@user", routing_key="user.create"),
    ),
]


@pytest.mark.parametrize(
    ("delivery", "expected"), NOTES, ids=lambda value: getattr(value, "dialect", "")
)
def test_a_message_is_read_in_the_words_of_its_framework(
    delivery: Delivery, expected: FailureNotes
) -> None:
    assert replace(notes_of(delivery), traceback=None) == expected


RENEWED: list[tuple[Delivery, set[str], dict[str, FieldValue]]] = [
    (CELERY, set(), {"retries": 0, "expires": None}),
    (
        LARAVEL,
        set(),
        {"laravel": {"attempts": 0}},
    ),
    (
        SYMFONY,
        {
            f"{STAMP}{name}"
            for name in ("ErrorDetailsStamp", "RedeliveryStamp", "SentToFailureTransportStamp")
        },
        {},
    ),
    (
        RASCAL,
        set(),
        {
            "rascal": {
                "originalQueue": "registration:user:save",
                "originalVhost": "/",
                "originalExchange": "registration",
                "originalRoutingKey": "user.save",
                "redeliveries": 0,
            }
        },
    ),
    (
        MASSTRANSIT,
        {name for name in MASSTRANSIT.properties.headers if name != "MT-Activity-Id"},
        {},
    ),
    (
        NSERVICEBUS,
        {
            name
            for name in NSERVICEBUS.properties.headers
            if name not in ("NServiceBus.MessageId", "NServiceBus.ProcessingMachine")
        },
        {},
    ),
    (
        WOLVERINE,
        {name for name in WOLVERINE.properties.headers if name != "wolverine-protocol-version"},
        {},
    ),
    (REBUS, {"rbs2-error-details", "rbs2-source-queue", "rbs2-delivery-count"}, {}),
    (
        SPRING,
        {
            "x-exception-message",
            "x-exception-stacktrace",
            "x-original-exchange",
            "x-original-routingKey",
        },
        {"retry-count": 0},
    ),
    (MOLECULER, set(MOLECULER.properties.headers), {}),
    (NESTJS, set(), {}),
    (DAPR, set(), {}),
    (KICKS, {"retry_info"}, {}),
    (BRIGHTER, set(), {"HandledCount": 0}),
    (SWARROT, {"swarrot_retry_attempts"}, {}),
    (
        ECOTONE,
        {"ecotone-class"}
        | {name for name in ECOTONE.properties.headers if name.startswith("exception-")},
        {},
    ),
    (SERVICESTACK, {"Error"}, {}),
    (TASKIQ, {"_retries"}, {}),
    (WATERMILL, WATERMILL.properties.headers.keys() - {"_watermill_message_uuid"}, {}),
    (PEER, set(), {}),
    (SYMFONY_IN_PHP, set(), {}),
]
"""Messages, which of their headers a renewal takes off, and what others say then."""


@pytest.mark.parametrize(
    ("delivery", "gone", "changed"),
    RENEWED,
    ids=lambda value: notes_of(value).dialect if isinstance(value, Delivery) else "",
)
def test_what_says_that_a_message_has_failed_is_taken_off_its_headers(
    delivery: Delivery, gone: set[str], changed: dict[str, FieldValue]
) -> None:
    before, after = delivery.properties.headers, renewed(delivery).properties.headers
    assert before.keys() - after.keys() == gone
    assert {name: after[name] for name in changed} == changed
    kept = after.keys() - changed.keys()
    assert kept == before.keys() - gone - changed.keys()
    assert all(after.raw_by_name()[name] == before.raw_by_name()[name] for name in kept)


def test_masstransit_gets_its_envelope_without_redeliveries_and_else_as_it_was() -> None:
    body = (
        b'\xef\xbb\xbf{"messageType": ["urn:message:Shop:Order"], "headers" : {"tenant":"eu", '
        b'"MT-Redelivery-Count" : 3}, "message": {"total": 10.10, "note": "\\u00e9"}}'
    )
    fresh = renewed(replace(MASSTRANSIT, body=body)).body
    assert fresh == body.replace(b'Count" : 3', b'Count" : 0')


def test_a_count_that_somebody_else_has_written_into_the_message_stays() -> None:
    written = {"headers": {}, "message": {"MT-Redelivery-Count": 3}}
    body = json.dumps(written).encode()
    assert renewed(replace(MASSTRANSIT, body=body)).body == body
    both = json.dumps({**written, "headers": {"MT-Redelivery-Count": "2"}}).encode()
    assert json.loads(renewed(replace(MASSTRANSIT, body=both)).body) == {
        "headers": {"MT-Redelivery-Count": 0},
        "message": {"MT-Redelivery-Count": 3},
    }


def test_sneakers_gets_the_payload_of_its_envelope() -> None:
    fresh = renewed(SNEAKERS)
    assert fresh.body == b'{"url": "http://shop.example/a/rather/long/path/1"}'
    damaged = replace(SNEAKERS, body=SNEAKERS.body.replace(b'"payload": "', b'"payload": "*'))
    assert renewed(damaged) == damaged


def test_kicks_gets_its_body_with_the_content_type_that_it_had() -> None:
    fresh = renewed(KICKS)
    assert (fresh.body, fresh.properties.content_type) == (KICKS.body, "application/json")


def test_the_lines_of_a_backtrace_are_told_apart() -> None:
    assert notes_of(KICKS).traceback == "worker.rb:12\npool.rb:7"
    assert notes_of(SNEAKERS).traceback == "worker.rb:12, pool.rb:7"


def test_the_stack_that_moleculer_has_written_in_base64_is_read() -> None:
    trace = notes_of(MOLECULER).traceback
    assert trace is not None
    assert trace.splitlines()[-1].endswith("billing.service.js:31:11)")


def test_dramatiq_gets_its_message_without_what_the_attempts_have_left() -> None:
    fresh = renewed(DRAMATIQ)
    assert json.loads(fresh.body) == {**json.loads(DRAMATIQ.body), "options": {}}
    assert fresh.properties == DRAMATIQ.properties


def test_dramatiq_gets_a_delayed_message_for_the_queue_of_its_actors() -> None:
    delayed = {**json.loads(DRAMATIQ.body), "queue_name": "default.DQ", "options": {"eta": 17}}
    fresh = renewed(replace(DRAMATIQ, body=json.dumps(delayed).encode()))
    assert json.loads(fresh.body) == {**delayed, "queue_name": "default", "options": {}}


def test_what_a_sender_has_told_dramatiq_stays() -> None:
    told = {"max_retries": 5, "broker_priority": 9, "pipe_target": {"actor_name": "next"}}
    given = {**json.loads(DRAMATIQ.body), "options": {"retries": 1, **told}}
    fresh = renewed(replace(DRAMATIQ, body=json.dumps(given).encode()))
    assert json.loads(fresh.body)["options"] == told


def test_taskiq_gets_its_message_without_the_retries_that_its_labels_repeat() -> None:
    fresh = json.loads(renewed(TASKIQ).body)
    assert fresh == {
        **json.loads(TASKIQ.body),
        "labels": {"retry_on_error": "True", "max_retries": "3"},
        "labels_types": {"retry_on_error": 5, "max_retries": 2},
    }


def test_a_message_of_taskiq_that_was_not_retried_keeps_its_bytes() -> None:
    first = {**json.loads(TASKIQ.body), "labels": {"max_retries": "3"}}
    body = json.dumps(first, indent=1).encode()
    assert renewed(replace(TASKIQ, body=body)).body == body


def test_a_message_of_taskiq_is_known_whatever_has_serialized_it() -> None:
    packed = b"\x86\xa9task_name\xa4mail\xa6labels\x80\xa4args\x91\x2a"
    assert notes_of(replace(TASKIQ, body=packed)).dialect == "taskiq"
    assert renewed(replace(TASKIQ, body=packed)).body == packed


def test_laravel_gets_its_job_without_an_end_that_has_passed() -> None:
    fresh = renewed(LARAVEL)
    assert json.loads(fresh.body) == {**json.loads(LARAVEL.body), "retryUntil": None}


def test_a_job_of_laravel_without_an_end_keeps_its_bytes() -> None:
    endless = replace(LARAVEL, body=rb'{"job": "a\/b", "retryUntil": null}')
    assert renewed(endless).body == endless.body


def test_dapr_gets_its_event_without_an_end_that_has_passed() -> None:
    assert renewed(DAPR_BY_TOPIC).body == DAPR.body


def test_an_event_of_dapr_without_an_end_keeps_its_bytes() -> None:
    spaced = replace(DAPR, body=json.dumps(json.loads(DAPR.body), indent=1).encode())
    assert renewed(spaced).body == spaced.body


def test_an_event_that_dapr_has_not_published_is_not_one_of_dapr() -> None:
    event = {**json.loads(DAPR.body), "note": '"pubsubname"'}
    del event["pubsubname"]
    assert notes_of(replace(DAPR, body=json.dumps(event).encode())).dialect == "unknown"


def test_easynetq_gets_the_message_that_is_in_the_envelope() -> None:
    fresh = renewed(EASYNETQ)
    assert fresh.body == b'{"OrderId":42}'
    assert fresh.properties == Properties(
        type="Acme.Orders.OrderPlaced, Acme.Orders",
        delivery_mode=2,
        correlation_id="4711",
        headers=Table.parse(field_of("tenant", long_value("S", b"acme"))),
    )


@pytest.mark.parametrize(
    "damage",
    [
        (b'"Message":', b'"Text":'),
        (b'"BasicProperties":', b'"Properties":'),
        (b'"Type":14', b'"Type":99'),
        (b'"YWNtZQ=="', b'"no base64"'),
        (b'"DeliveryMode":2', b'"DeliveryMode":"two"'),
        (b'"4711"', b'"' + b"4711" * 64 + b'"'),
        (b"YWNtZQ==", b"YWNt" * 40_000),
    ],
)
def test_an_envelope_that_cannot_be_opened_stays_closed(damage: tuple[bytes, bytes]) -> None:
    damaged = replace(EASYNETQ, body=EASYNETQ.body.replace(*damage))
    assert damaged != EASYNETQ
    assert renewed(damaged) == damaged


def test_what_redrive_itself_set_aside_is_not_renewed() -> None:
    own = message({**CELERY.properties.headers.to_dict(), FAILURE_ID: "0b6f9c1e"})
    assert renewed(own) == own


def test_a_renewed_message_is_renewed() -> None:
    for delivery, _ in NOTES:
        fresh = renewed(delivery)
        assert renewed(fresh) == fresh


def test_every_dialect_has_a_message_that_is_read_in_it() -> None:
    assert {notes_of(delivery).dialect for delivery, _ in NOTES} == {
        dialect.name for dialect in DIALECTS
    }


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


def check(delivery: Delivery) -> None:
    """Reads a message and renews it, and looks at what comes of it."""
    notes = notes_of(delivery)
    texts = (
        notes.error_type,
        notes.error_message,
        notes.traceback,
        notes.host,
        notes.queue,
        notes.exchange,
        notes.routing_key,
    )
    for value in texts:
        assert value is None or value.encode() is not None
    assert notes.failed_at is None or notes.failed_at.utcoffset() is not None
    assert notes.retries is None or notes.retries >= 0
    fresh = renewed(delivery)
    assert fresh.properties.encode()
    assert notes.dialect == "easynetq" or fresh.properties.headers.keys() <= {
        *delivery.properties.headers
    }
    assert (fresh.queue, fresh.routing_key) == (delivery.queue, delivery.routing_key)


@given(damaged())
def test_nothing_that_a_message_holds_makes_a_dialect_raise(delivery: Delivery) -> None:
    check(delivery)


_EXAMPLES = 20 * settings().max_examples


def test_no_headers_by_chance_make_a_dialect_raise() -> None:
    chance = random.Random(4711)
    for _ in range(_EXAMPLES):
        check(chance_message(chance, [delivery for delivery, _ in NOTES]))
