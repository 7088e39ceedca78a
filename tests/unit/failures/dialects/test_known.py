import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import failed
from failed_deliveries import failed_deliveries
from field_tables import field, long_value, values
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.known import notes_of
from redrive.failures.failed_message import FailedMessage
from redrive.topology.headers import ERROR_MESSAGE, FAILURE_ID, Delivery

DIED_AT = datetime(2025, 8, 22, 10, 36, 41, tzinfo=UTC)
STAMP = "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"


def death(queue: str) -> dict[str, FieldValue]:
    """What the broker notes when a consumer rejects."""
    return {
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": queue,
                "time": DIED_AT,
                "exchange": "",
                "routing-keys": [queue],
            }
        ]
    }


def message(
    headers: Mapping[str, FieldValue] = {}, body: bytes = b"{}", routing_key: str = "orders"
) -> Delivery:
    """A message that a framework has left."""
    return replace(failed(Table.of(headers), body=body), routing_key=routing_key)


SPRING = message(
    {
        "__TypeId__": "com.acme.OrderCreated",
        "x-exception-message": "Stock service is down",
        "x-exception-stacktrace": "org.springframework.amqp.rabbit.support."
        "ListenerExecutionFailedException: Listener method 'public void com.acme.OrderListener.on("
        "com.acme.OrderCreated)' threw exception\n"
        "\tat org.springframework.amqp.rabbit.listener.adapter.MessagingMessageListenerAdapter\n"
        "Caused by: java.lang.IllegalStateException: Stock service is down\n"
        "\tat com.acme.OrderListener.on(OrderListener.java:31)\n\t... 14 more\n",
        "x-original-exchange": "orders",
        "x-original-routingKey": "orders.created",
        "retry-count": 1,
    }
)
CELERY = message(
    {
        "lang": "py",
        "task": "proj.tasks.send_email",
        "id": "5f0c5f0e-4a35-4ad2-8b7b-0c1f5a5d9a10",
        "root_id": "5f0c5f0e-4a35-4ad2-8b7b-0c1f5a5d9a10",
        "parent_id": None,
        "retries": 3,
        "origin": "gen4711@web-1",
        **death("celery"),
    },
    b'[[42], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
)
DRAMATIQ = message(
    death("default"),
    json.dumps(
        {
            "queue_name": "default",
            "actor_name": "send_email",
            "args": [42],
            "kwargs": {},
            "options": {
                "retries": 3,
                "traceback": "Traceback (most recent call last):\n"
                '  File "/venv/lib/python3.12/site-packages/dramatiq/worker.py", line 485, in '
                "process_message\n    res = actor(*message.args, **message.kwargs)\n"
                '  File "/app/tasks.py", line 12, in send_email\n'
                '    raise RuntimeError("mailer is down")\nRuntimeError: mailer is down\n',
                "requeue_timestamp": 1755859207123,
            },
            "message_id": "6a2f9a1e-5b0f-4a39-9a0e-0f3f9d0a7c11",
            "message_timestamp": 1755859100000,
        }
    ).encode(),
)
LARAVEL = message(
    {"laravel": {"attempts": 2}, **death("default")},
    rb'{"displayName":"App\\Jobs\\SendEmail","job":"Illuminate\\Queue\\CallQueuedHandler@call"}',
)
SYMFONY = message(
    {
        "type": "App\\Message\\SendEmail",
        f"{STAMP}ErrorDetailsStamp": json.dumps(
            [
                {
                    "exceptionClass": "RuntimeException",
                    "exceptionCode": 0,
                    "exceptionMessage": "Mailer is down",
                    "flattenException": {"trace_as_string": "#0 /app/src/Handler.php(14)"},
                }
            ]
        ),
        f"{STAMP}RedeliveryStamp": '[{"retryCount":1,"redeliveredAt":"2024-10-23T20:33:07+00:00"},'
        '{"retryCount":0,"redeliveredAt":"2024-10-23T20:33:14+00:00"}]',
        f"{STAMP}SentToFailureTransportStamp": '[{"originalReceiverName":"async"}]',
    },
    b'{"userId":42}',
    routing_key="messages",
)
SYMFONY_IN_PHP = message(
    {},
    rb"O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:51:\"Symfony\\Component\\Messenger"
    rb"\\Stamp\\ErrorDetailsStamp\";a:1:{i:0;O:51:\"Symfony\\Component\\Messenger\\Stamp\\Error"
    rb"DetailsStamp\":4:{s:67:\"\0Symfony\\Component\\Messenger\\Stamp\\ErrorDetailsStamp\0"
    rb"exceptionClass\";s:16:\"App\\RuntimeException\";s:66:\"\0Symfony\\Component\\Messenger"
    rb"\\Stamp\\ErrorDetailsStamp\0exceptionCode\";i:0;s:69:\"\0Symfony\\Component\\Messenger"
    rb"\\Stamp\\ErrorDetailsStamp\0exceptionMessage\";s:14:\"Mailer is down\";s:69:\"\0Symfony",
    routing_key="messages",
)
RASCAL = message(
    {
        "rascal": {
            "originalQueue": "registration:user:save",
            "redeliveries": 0,
            "recovery": {"registration:user:save": {"republished": 2}},
            "error": {"message": "connect ECONNREFUSED 127.0.0.1:5432", "code": "ECONNREFUSED"},
        },
        **death("registration:user:save"),
    }
)
NESTJS = message(death("orders_queue"), b'{"pattern":"order.created","data":{"id":17}}')

MASSTRANSIT = message(
    {
        "MT-Host-MachineName": "orders-7d9c6",
        "MT-Reason": "fault",
        "MT-Fault-ExceptionType": "System.InvalidOperationException",
        "MT-Fault-InputAddress": "rabbitmq://rabbit/shop%2Feu/submit-order?temporary=true",
        "MT-Fault-Message": "Inventory service unavailable",
        "MT-Fault-Timestamp": "2026-02-10T14:03:11.4821937Z",
        "MT-Fault-StackTrace": "   at OrderService.SubmitOrderConsumer.Consume(ConsumeContext`1 c)",
        "MT-Fault-RetryCount": 3,
    }
)
NSERVICEBUS = message(
    {
        "NServiceBus.MessageId": "0817844c-2f74-4aa4-85d0-b33e0182dd3c",
        "NServiceBus.ProcessingMachine": "SALES01",
        "NServiceBus.FailedQ": "Sales@SALES01",
        "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
        "NServiceBus.ExceptionInfo.Message": "Order is locked",
        "NServiceBus.ExceptionInfo.StackTrace": "System.InvalidOperationException: Order is locked",
        "NServiceBus.ExceptionInfo.HelpLink": None,
        "NServiceBus.TimeOfFailure": "2026-08-10 09:16:23:799804 Z",
    }
)
WOLVERINE = message(
    {
        "attempts": "1",
        "wolverine-protocol-version": "1.0",
        "exception-type": "System.InvalidOperationException",
        "exception-message": "Order is locked",
        "exception-stack": "   at Acme.Orders.PlaceOrderHandler.Handle(PlaceOrder command)",
        "failed-at": "1787296242731",
        "original-destination": "rabbitmq://queue/orders",
    }
)
WOLVERINE_BY_NACK = message({"wolverine-protocol-version": "1.0", **death("orders")})
REBUS = message(
    {
        "rbs2-msg-id": "a3f0c4de-93c1-4c0f-8d1b-3a0b7b7d5c10",
        "rbs2-error-details": "2 unhandled exceptions: "
        "04/20/2026 08:12:31 +00:00: System.TimeoutException: too slow\n   at Acme.Handle(X x)\n\n"
        "04/20/2026 08:12:32 +00:00: System.InvalidOperationException: Order is locked\n"
        " ---> System.Exception: inner\n   at Acme.Billing.Handle(PlaceOrder message)",
        "rbs2-source-queue": "billing",
    }
)
_ENVELOPE = (
    rb'{"RoutingKey":"","Exchange":"Acme.Orders.OrderPlaced, Acme.Orders","Queue":"billing",'
    rb'"Exception":"System.InvalidOperationException: Order is locked\n   at Billing.Handle(X m)",'
    rb'"Message":"{\u0022OrderId\u0022:42}","DateTime":"2026-06-16T08:41:07.5120934Z",'
    rb'"BasicProperties":{"DeliveryMode":2,"Headers":{"tenant":{"Type":14,"Value":"YWNtZQ=="}}}}'
)
EASYNETQ = replace(
    message(body=_ENVELOPE), properties=Properties(type="EasyNetQ.SystemMessages.Error, EasyNetQ")
)
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
        ),
    ),
    (
        SPRING,
        FailureNotes(
            "spring",
            error_type="java.lang.IllegalStateException",
            error_message="Stock service is down",
            retries=1,
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
