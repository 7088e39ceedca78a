"""redrive's logging: redaction, and formatters for people (text) and for programs (one JSON object
per line).

Every move of a message is logged as one record with the attribute `redrive`, a mapping that says
where the message now is. Whatever handler a program adds to the logger `redrive`, its records
contain no secret that `redact` recognises, and no line that could pass for another record.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import assert_never

from redrive.pubsub.message import current_message
from redrive.pubsub.verdict import Verdict
from redrive.redaction import printable, redact
from redrive.topology.decision import (
    Ack,
    Discard,
    Drop,
    MoveToFailed,
    PutBack,
    Retried,
    RetryByBroker,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    RetryInPlace,
)
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.names import failed_queue

FIELDS = "redrive"
"""The attribute of a log record that holds the fields."""

Fields = Mapping[str, str | int | float | None]


def fields_of(subscription: Subscription, delivery: Delivery | None, verdict: Verdict) -> Fields:
    """Return the log fields for a verdict that was carried out: what happened, and in which queue
    the message now is."""
    error = verdict.error
    return {
        "queue": subscription.queue,
        **(_about(delivery) if delivery is not None else {}),
        **_outcome(subscription, verdict),
        **(
            {"error_type": error.type, "error_message": redact(error.message)}
            if error is not None
            else {}
        ),
    }


def requeued(queue: str, delivery: Delivery, job: str) -> Fields:
    """Return the log fields for a failed message that was requeued."""
    return {"queue": queue, **_about(delivery), "event": "requeued", "now_in": queue, "job": job}


def _about(delivery: Delivery) -> Fields:
    return {
        "message_id": delivery.properties.message_id,
        "routing_key": delivery.original_routing_key,
    }


def _outcome(subscription: Subscription, verdict: Verdict) -> Fields:
    settlement = verdict.settlement
    match settlement:
        case Ack():
            return {"event": "handled", "now_in": None}
        case Discard(reason, retries):
            return {"event": "discarded", "now_in": None, "reason": reason, "retries": retries}
        case Drop():
            return {"event": "let-go", "now_in": None}
        case (
            RetryByReject(retry, delay, allowed)
            | RetryByRepublish(retry, delay, allowed)
            | RetryByLadder(retry, delay, allowed)
            | RetryByBroker(retry, delay, allowed)
            | RetryInPlace(retry, delay, allowed)
        ):
            return {
                "event": "retried",
                "now_in": _waiting_in(subscription, settlement),
                "retry": retry,
                "max_retries": allowed,
                "delay_seconds": delay.total_seconds(),
            }
        case PutBack():
            return {"event": "put-back", "now_in": subscription.queue}
        case MoveToFailed(reason, _, retries, _, kind):
            return {
                "event": "given-up",
                "now_in": failed_queue(subscription.queue, kind),
                "reason": reason,
                "retries": retries,
            }
        case _:
            assert_never(settlement)


def _waiting_in(subscription: Subscription, retried: Retried) -> str:
    match retried:
        case RetryByLadder():
            return "the delay ladder"
        case RetryInPlace() | RetryByBroker():
            return subscription.queue
        case RetryByReject() | RetryByRepublish():
            return subscription.retry_queue
        case _:
            assert_never(retried)


def _being_handled() -> Fields:
    """Return the log fields for a handler's own record: the message that it is handling."""
    message = current_message()
    if message is None:
        return {}
    return {
        "queue": message.queue,
        "message_id": message.message_id,
        "routing_key": message.routing_key,
        "attempt": message.attempt,
    }


def clean(text: str) -> str:
    """Return a text for a log: without secrets and control characters, and with all lines but the
    first indented, so that none can pass for a record."""
    return printable(redact(text)).replace("\n", "\n    ")


class RedactingFilter(logging.Filter):
    """Cleans a record's message, and removes secrets from its traceback.

    A clean record stays as it was logged, for programs that group records by template. If a
    traceback has a secret, the record keeps only its redacted text, not the exception.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record, and let it through."""
        message = record.getMessage()
        cleaned = clean(message)
        if cleaned != message:
            record.msg, record.args = cleaned, ()
        if record.exc_info:
            traceback = _TRACEBACKS.formatException(record.exc_info)
            redacted = redact(traceback)
            if redacted != traceback:
                record.exc_info, record.exc_text = None, redacted
        return True


_TRACEBACKS = logging.Formatter()
logging.getLogger("redrive").addFilter(RedactingFilter())


class TextFormatter(logging.Formatter):
    """A formatter for people: time, level, logger, message, and further lines indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, without secrets and control characters; for a handler's own
        record, with the queue and id of its message."""
        text = super().format(record)
        message = None if record.name.partition(".")[0] == "redrive" else current_message()
        if message is not None:
            first, newline, rest = text.partition("\n")
            text = f"{first} [{message.queue} {message.message_id}]{newline}{rest}"
        return clean(text)


class JsonFormatter(logging.Formatter):
    """A formatter that writes one line of JSON: time (ISO 8601, UTC), level, logger, message, and
    the fields of a move."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        fields = getattr(record, FIELDS, None)
        line |= fields if isinstance(fields, Mapping) else _being_handled()
        if record.exc_info or record.exc_text:
            line["exception"] = redact(
                self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
            )
        return json.dumps(line, default=str)
