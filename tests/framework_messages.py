"""Messages as frameworks leave them when they have failed, made as the source of the version says
that each dialect names."""

import json
import random
from base64 import b64encode, encodebytes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from deliveries import failed
from field_tables import FIXED_SIZES, field, long_value
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.topology.headers import Delivery

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
        "eta": None,
        "expires": "2025-08-22T11:00:00+00:00",
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
TASKIQ = message(
    {
        "task_id": "0f6a2b1c5d3e4f708192a3b4c5d6e7f8",
        "task_name": "shop.tasks:send_email",
        "retry_on_error": "True",
        "max_retries": "3",
        "_retries": "2",
        **death("taskiq"),
    },
    json.dumps(
        {
            "task_id": "0f6a2b1c5d3e4f708192a3b4c5d6e7f8",
            "task_name": "shop.tasks:send_email",
            "labels": {"retry_on_error": "True", "max_retries": "3", "_retries": "2"},
            "labels_types": {"retry_on_error": 5, "max_retries": 2, "_retries": 2},
            "args": [42],
            "kwargs": {},
        }
    ).encode(),
)
LARAVEL = message(
    {"laravel": {"attempts": 2}, **death("default")},
    rb'{"displayName":"App\\Jobs\\SendEmail","job":"Illuminate\\Queue\\CallQueuedHandler@call",'
    b'"retryUntil":1755859207}',
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
ECOTONE = message(
    {
        "id": "0199c7d4-4a4c-7d0e-9a52-0d9f7a3e5b11",
        "correlationId": "0199c7d4-4a4c-7d0e-9a52-0d9f7a3e5b11",
        "timestamp": 1790239000,
        "contentType": "application/json",
        "__TypeId__": "App\\Order\\PlaceOrder",
        "routingSlip": "placeOrderEndpoint.target",
        "ecotone-class": "App\\Order\\OrderIsLocked",
        "exception-message": "Order is locked",
        "exception-stacktrace": "#0 /app/src/OrderService.php(14): App\\Order\\Order->place()",
        "exception-file": "/app/src/Order/Order.php",
        "exception-line": 31,
        "exception-code": 0,
    },
    b'{"orderId":42}',
    routing_key="dead_letter",
)
SWARROT = message({**death("mail"), "swarrot_retry_attempts": 3})
RASCAL = message(
    {
        "rascal": {
            "originalQueue": "registration:user:save",
            "originalVhost": "/",
            "originalExchange": "registration",
            "originalRoutingKey": "user.save",
            "redeliveries": 0,
            "recovery": {"registration:user:save": {"republished": 2}},
            "error": {"message": "connect ECONNREFUSED 127.0.0.1:5432", "code": "ECONNREFUSED"},
        },
        **death("registration:user:save"),
    }
)
MOLECULER = message(
    {
        "x-original-channel": "order.placed",
        "x-original-group": "billing",
        "x-error-message": "Customer is blocked",
        "x-error-code": "422",
        "x-error-type": "CUSTOMER_BLOCKED",
        "x-error-name": "MoleculerClientError",
        "x-error-retryable": "false",
        "x-error-stack": b64encode(
            b"MoleculerClientError: Customer is blocked\n"
            b"    at Service.handler (/app/services/billing.service.js:31:11)"
        ).decode(),
        "x-error-data": b64encode(b'{"customer":17}').decode(),
        "x-error-timestamp": "1790239001482",
    },
    b'{"id":17}',
)
MOLECULER_WITHOUT_ERROR = message(
    {"x-original-channel": "order.placed", "x-original-group": "billing"}, b'{"id":17}'
)
NESTJS = message(death("orders_queue"), b'{"pattern":"order.created","data":{"id":17}}')

_EVENT = {
    "data": {"id": 17, "total": 10.1},
    "datacontenttype": "application/json",
    "id": "5929aaac-a5e2-4ca1-859c-edfe73f11565",
    "pubsubname": "orderpubsub",
    "source": "checkout",
    "specversion": "1.0",
    "time": "2026-09-24T08:36:40Z",
    "topic": "orders",
    "traceid": "00-113ad9c4e42b27583ae98ba698d54255-e3743e35ff56f219-01",
    "traceparent": "00-113ad9c4e42b27583ae98ba698d54255-e3743e35ff56f219-01",
    "tracestate": "",
    "type": "com.dapr.event.sent",
}
DAPR = message(death("billing-orders"), json.dumps(_EVENT, separators=(",", ":")).encode())
DAPR_BY_TOPIC = message(
    {},
    json.dumps({**_EVENT, "expiration": "2026-09-24T08:37:40Z"}, separators=(",", ":")).encode(),
    routing_key="",
)

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
        "MT-Redelivery-Count": 2,
        "MT-Activity-Id": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
    }
)
NSERVICEBUS = message(
    {
        "NServiceBus.MessageId": "0817844c-2f74-4aa4-85d0-b33e0182dd3c",
        "NServiceBus.ProcessingMachine": "SALES01",
        "NServiceBus.Retries": "3",
        "NServiceBus.Retries.Timestamp": "2026-08-10 09:16:20:000000 Z",
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
BRIGHTER = message(
    {
        "cloudEvents_id": "0199c7d4-4a4c-7d0e-9a52-0d9f7a3e5b11",
        "cloudEvents_specversion": "1.0",
        "cloudEvents_type": "Acme.OrderPlaced",
        "cloudEvents_source": "http://goparamore.io/",
        "cloudEvents_time": "2026-09-24T08:36:40.0000000Z",
        "MessageType": "MT_EVENT",
        "Topic": "order.placed",
        "HandledCount": 2,
        "DeliveryTag": "1",
        "x-original-message-id": "0199c7d4-4a4c-7d0e-9a52-0d9f7a3e5b11",
        **death("billing"),
    }
)
REBUS = message(
    {
        "rbs2-msg-id": "a3f0c4de-93c1-4c0f-8d1b-3a0b7b7d5c10",
        "rbs2-error-details": "2 unhandled exceptions: "
        "04/20/2026 08:12:31 +00:00: System.TimeoutException: too slow\n   at Acme.Handle(X x)\n\n"
        "04/20/2026 08:12:32 +00:00: System.InvalidOperationException: Order is locked\n"
        " ---> System.Exception: inner\n   at Acme.Billing.Handle(PlaceOrder message)",
        "rbs2-delivery-count": "5",
        "rbs2-source-queue": "billing",
    }
)
_ENVELOPE = (
    rb'{"RoutingKey":"","Exchange":"Acme.Orders.OrderPlaced, Acme.Orders","Queue":"billing",'
    rb'"Exception":"System.InvalidOperationException: Order is locked\n   at Billing.Handle(X m)",'
    rb'"Message":"{\u0022OrderId\u0022:42}","DateTime":"2026-06-16T08:41:07.5120934Z",'
    rb'"BasicProperties":{"Type":"Acme.Orders.OrderPlaced, Acme.Orders","DeliveryMode":2,'
    rb'"CorrelationId":"4711","Expiration":"00:01:00","Headers":{"tenant":{"Type":14,"Value":"YWNtZQ=="}}}}'
)
EASYNETQ = replace(
    message(body=_ENVELOPE), properties=Properties(type="EasyNetQ.SystemMessages.Error, EasyNetQ")
)
SERVICESTACK = message(
    {
        "Error": json.dumps(
            {
                "ErrorCode": "InvalidOperationException",
                "Message": "Order is locked",
                "StackTrace": "[PlaceOrder: 24/09/2026 8:36:41 AM]:\n[REQUEST: {Id:42}]\n"
                "System.InvalidOperationException: Order is locked\n   at Acme.OrderServices.Any",
                "Errors": [],
            },
            separators=(",", ":"),
        )
    },
    b'{"Id":42}',
    routing_key="mq:PlaceOrder.dlq",
)
SERVICESTACK_WITHOUT_ERROR = message(
    {"TraceId": "0HN7"}, b'{"Id":42}', routing_key="eu.mq:PlaceOrder.dlq"
)
SERVICESTACK_BY_NACK = message(death("mq:PlaceOrder.priorityq"), routing_key="mq:PlaceOrder.dlq")
SNEAKERS = message(
    body=json.dumps(
        {
            "error": "reject",
            "num_attempts": 6,
            "failed_at": "2026-11-26T20:00:00+01:00",
            "payload": encodebytes(b'{"url": "http://shop.example/a/rather/long/path/1"}').decode(),
            "error_class": "Timeout::Error",
            "error_message": "execution expired",
            "backtrace": "worker.rb:12, pool.rb:7",
        }
    ).encode(),
    routing_key="downloads",
)
KICKS = message(
    {
        "retry_info": json.dumps(
            [
                {
                    "error": "execution expired",
                    "num_attempts": 6,
                    "failed_at": "2026-11-26T20:00:00+01:00",
                    "properties": {"content_type": "application/json", "headers": {"tenant": "eu"}},
                    "error_class": "Timeout::Error",
                    "error_message": "execution expired",
                    "backtrace": ["worker.rb:12", "pool.rb:7"],
                },
                {"error": "reject", "num_attempts": 6, "failed_at": "2026-11-20T20:00:00+01:00"},
            ]
        )
    },
    body=b'{"url": 1}',
    routing_key="downloads",
)
WATERMILL = message(
    {
        "_watermill_message_uuid": "9f0c7b1e-5a55-4a57-8d0a-0b6ad2c1a3f1",
        "reason_poisoned": "db: connection refused",
        "topic_poisoned": "orders.created",
        "handler_poisoned": "orders",
        "subscriber_poisoned": "amqp.Subscriber",
    }
)
PEER = message(
    {
        "x-orig-routing-key": "user.create",
        "x-death": [
            {
                "count": 3,
                "reason": "expired",
                "queue": "ucenter@user@retry",
                "time": DIED_AT,
                "exchange": "master.retry",
                "routing-keys": ["ucenter@user"],
            },
        ],
    },
    b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e"}',
    routing_key="ucenter@user",
)

BY_NAME = {
    "spring": SPRING,
    "celery": CELERY,
    "dramatiq": DRAMATIQ,
    "taskiq": TASKIQ,
    "laravel": LARAVEL,
    "symfony": SYMFONY,
    "symfony in php": SYMFONY_IN_PHP,
    "ecotone": ECOTONE,
    "swarrot": SWARROT,
    "rascal": RASCAL,
    "moleculer": MOLECULER,
    "moleculer without an error": MOLECULER_WITHOUT_ERROR,
    "nestjs": NESTJS,
    "dapr": DAPR,
    "dapr by topic": DAPR_BY_TOPIC,
    "masstransit": MASSTRANSIT,
    "nservicebus": NSERVICEBUS,
    "wolverine": WOLVERINE,
    "wolverine by nack": WOLVERINE_BY_NACK,
    "brighter": BRIGHTER,
    "rebus": REBUS,
    "easynetq": EASYNETQ,
    "servicestack": SERVICESTACK,
    "servicestack without an error": SERVICESTACK_WITHOUT_ERROR,
    "servicestack by nack": SERVICESTACK_BY_NACK,
    "sneakers": SNEAKERS,
    "kicks": KICKS,
    "watermill": WATERMILL,
    "peer": PEER,
}


def chance_message(chance: random.Random, originals: Sequence[Delivery]) -> Delivery:
    """One of these messages with some of its headers, or of another's, made anew by chance, and
    with a piece of its body gone or doubled."""
    delivery, other = chance.choice(originals), chance.choice(originals)
    names = [*delivery.properties.headers, *other.properties.headers]
    fields = list(delivery.properties.headers.raw_fields())
    for name in chance.choices(names, k=chance.randrange(1, 6)) if names else ():
        fields.insert(chance.randrange(len(fields) + 1), (name, _chance_value(chance)))
    body = delivery.body
    start, end = sorted(chance.randrange(len(body) + 1) for _ in range(2))
    if chance.random() < 0.5:
        body = body[:start] + body[end:]
    elif chance.random() < 0.5:
        body = body[:end] + body[start:]
    properties = delivery.properties._replace(headers=Table(fields))
    return replace(delivery, properties=properties, body=body)


_KEYS = (b"attempts", b"code", b"error", b"originalQueue", b"queue", b"recovery", b"time")


def _chance_value(chance: random.Random, depth: int = 0) -> bytes:
    """A field value by chance, its tag first."""
    tag = chance.choice("SAFx" + "".join(FIXED_SIZES))
    if tag in FIXED_SIZES:
        return tag.encode() + chance.randbytes(FIXED_SIZES[tag])
    if tag in "Sx" or depth == 3:
        return long_value(tag, chance.randbytes(chance.randrange(12)))
    inner = [_chance_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if tag == "F":
        inner = [field(chance.choice(_KEYS), value) for value in inner]
    return long_value(tag, b"".join(inner))
