"""Failure notes of Spring AMQP's RepublishMessageRecoverer, and of Spring Cloud Stream's Rabbit
binder.

Source: spring-amqp 4.1.1, RepublishMessageRecoverer.java; spring-cloud-stream 5.0.3,
RabbitMessageChannelBinder.java. The class of the exception is only in the stack trace, which
spring-amqp omits by default since 4.0.5.
"""

from redrive.failures.message.dialects import stack
from redrive.failures.message.dialects.clues import Clues
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_MESSAGE = "x-exception-message"
_EXCHANGE = "x-original-exchange"
_ROUTING_KEY = "x-original-routingKey"


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has(_MESSAGE, _EXCHANGE):
        return None
    message, trace = clues.text(_MESSAGE), clues.text("x-exception-stacktrace")
    return FailureNotes(
        "spring",
        error_type=stack.of_java(trace, message).type,
        error_message=message,
        traceback=trace,
        retries=clues.count("retry-count"),
        exchange=clues.text(_EXCHANGE),
        routing_key=clues.text(_ROUTING_KEY),
    )


DIALECT = Dialect(
    "spring",
    read,
    of_headers(
        HeaderEdit(
            drop=frozenset({_EXCHANGE, _ROUTING_KEY}),
            drop_prefixes=("x-exception-",),
            values={"retry-count": 0},
        )
    ),
)
