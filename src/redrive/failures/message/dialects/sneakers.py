"""Failure notes of the `-error` queues of sneakers and its successor kicks, for Ruby.

Source: jondot/sneakers and ruby-amqp/kicks, lib/sneakers/handlers/maxretry.rb. sneakers publishes
an envelope around the body, without the properties; kicks publishes the body itself, and the rest
in a header.
"""

from collections.abc import Mapping
from dataclasses import replace

from redrive.failures.message.dialects.clues import (
    Clues,
    bytes_of_base64,
    count_of,
    mapping_of,
    moment_of,
    text_of,
)
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers
from redrive.topology.headers import Delivery

_INFO = "retry_info"
_ENVELOPE = ("error", "num_attempts", "failed_at", "payload")
_TAKE_OFF = of_headers(HeaderEdit(frozenset({_INFO})))


def read(clues: Clues) -> FailureNotes | None:
    failure = _failure_in(clues)
    if failure is None:
        return None
    attempts = count_of(failure.get("num_attempts"))
    trace = failure.get("backtrace")
    return FailureNotes(
        "sneakers",
        error_type=text_of(failure.get("error_class")),
        error_message=text_of(failure.get("error_message")) or text_of(failure.get("error")),
        traceback="\n".join(line for line in map(text_of, trace) if line is not None)
        if isinstance(trace, list)
        else text_of(trace),
        failed_at=moment_of(failure.get("failed_at")),
        retries=None if attempts is None else max(0, attempts - 1),
    )


def _failure_in(clues: Clues) -> Mapping[str, object] | None:
    """Return the notes about the last failure; in kicks, those of earlier failures follow it."""
    if clues.has(_INFO):
        info = clues.json(_INFO)
        last = mapping_of(info[0] if isinstance(info, list) and info else info)
        return last if "num_attempts" in last else None
    if not clues.body_has(*(f'"{name}"'.encode() for name in _ENVELOPE)):
        return None
    return clues.envelope if all(name in clues.envelope for name in _ENVELOPE) else None


def _renew(delivery: Delivery) -> Delivery:
    """Restore the message's own body, and for kicks also its content type."""
    clues = Clues(delivery)
    if clues.has(_INFO):
        given = mapping_of((_failure_in(clues) or {}).get("properties"))
        content_type = text_of(given.get("content_type"))
        if content_type is not None and len(content_type.encode()) <= 255:
            properties = delivery.properties._replace(content_type=content_type)
            delivery = replace(delivery, properties=properties)
        return _TAKE_OFF(delivery)
    # Ruby writes it in lines of sixty characters.
    body = bytes_of_base64(clues.envelope.get("payload"))
    return delivery if body is None else replace(delivery, body=body)


DIALECT = Dialect("sneakers", read, _renew)
