"""Spring AMQP's RepublishMessageRecoverer, and the Rabbit binder of Spring Cloud Stream.

Source: spring-amqp 4.1.1, RepublishMessageRecoverer.java; spring-cloud-stream 5.0.3,
RabbitMessageChannelBinder.java. The class of the exception is in the stack trace alone, which
spring-amqp leaves out from 4.0.5 on unless it is told to write it.
"""

from redrive.failures.dialects import stack
from redrive.failures.dialects.clues import Clues
from redrive.failures.dialects.failure_notes import FailureNotes

_MESSAGE = "x-exception-message"


def read(clues: Clues) -> FailureNotes | None:
    """Reads what Spring leaves."""
    if not clues.has(_MESSAGE) or not clues.has("x-original-exchange"):
        return None
    message, trace = clues.text(_MESSAGE), clues.text("x-exception-stacktrace")
    return FailureNotes(
        "spring",
        error_type=stack.of_java(trace, message).type,
        error_message=message,
        traceback=trace,
        retries=clues.count("retry-count"),
    )
