"""Failure notes of Symfony Messenger's failure transport over AMQP, with either of its serializers.

Source: symfony/messenger 7.1.5, EventListener/AddErrorDetailsStampListener.php and
Transport/Serialization. A message serialized by PHP is never unserialized here.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from redrive.failures.message.dialects.clues import Clues, count_of, mapping_of, moment_of, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.php_serialized import NotSerialized, Serialized
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers
from redrive.topology.headers import Delivery

_STAMP = "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"
_PHP_ENVELOPE = b"Symfony\\\\Component\\\\Messenger\\\\Envelope"
_PHP_CLASS = re.compile(rb'exceptionClass\\";s:\d+:\\"([\w\\]{1,500}?)\\";')
_PHP_MESSAGE = re.compile(rb'exceptionMessage\\";s:\d+:\\"(.{0,2000}?)\\";s:', re.DOTALL)


def read(clues: Clues) -> FailureNotes | None:
    if any(name.startswith(_STAMP) for name in clues.names):
        return _of_stamps(clues)
    if clues.body.startswith(b"O:") and clues.body_has(_PHP_ENVELOPE):
        return _of_php(clues)
    return None


def _of_stamps(clues: Clues) -> FailureNotes:
    error = _last(clues, "ErrorDetailsStamp")
    moved = _last(clues, "SentToFailureTransportStamp")
    return FailureNotes(
        "symfony",
        error_type=text_of(error.get("exceptionClass")),
        error_message=text_of(error.get("exceptionMessage")),
        traceback=text_of(mapping_of(error.get("flattenException")).get("trace_as_string")),
        failed_at=moment_of(_last(clues, "RedeliveryStamp").get("redeliveredAt")),
        retries=max(
            (count_of(stamp.get("retryCount")) or 0 for stamp in _all(clues, "RedeliveryStamp")),
            default=None,
        ),
        queue=clues.routing_key if moved else clues.died_in,
    )


def _all(clues: Clues, name: str) -> list[Mapping[str, object]]:
    stamps = clues.json(f"{_STAMP}{name}")
    return [mapping_of(stamp) for stamp in stamps] if isinstance(stamps, list) else []


def _last(clues: Clues, name: str) -> Mapping[str, object]:
    stamps = _all(clues, name)
    return stamps[-1] if stamps else {}


def _of_php(clues: Clues) -> FailureNotes:
    error, message = _PHP_CLASS.findall(clues.body), _PHP_MESSAGE.findall(clues.body)
    return FailureNotes(
        "symfony",
        error_type=text_of(error[-1].replace(b"\\\\", b"\\")) if error else None,
        error_message=text_of(message[-1].replace(b"\\\\", b"\\")) if message else None,
        queue=clues.routing_key,
    )


_STAMPS = b's:44:"\0Symfony\\Component\\Messenger\\Envelope\0stamps";'
_SENT = b's:61:"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp";'
_SLASHED = re.compile(rb"['\"\\\0]")
_SLASHES = re.compile(rb"\\(.)", re.DOTALL)


def _renewed(delivery: Delivery) -> Delivery:
    """Remove the notes about earlier failures.

    From a body serialized by PHP, only `SentToFailureTransportStamp` is removed: with it, Symfony
    drops the message when it fails again, instead of sending it to the failure transport. Retries
    start at zero anyway, since the failure transport has recorded none. Source: symfony/messenger
    7.1.5, EventListener/SendFailedMessageToFailureTransportListener.php.
    """
    delivery = _without_headers(delivery)
    if not delivery.body.startswith(b"O:"):
        return delivery
    try:
        return replace(delivery, body=_never_sent(delivery.body))
    except NotSerialized:
        return delivery


def _never_sent(body: bytes) -> bytes:
    """Return a serialized envelope without the stamp."""
    plain = _SLASHES.sub(lambda one: b"\0" if one[1] == b"0" else one[1], body)
    if _slashed(plain) != body:
        raise NotSerialized("not as Symfony writes it")
    envelope = Serialized(plain)
    members = list(envelope.members())
    stamps = [one for one in members if one.key == _STAMPS]
    if any(one.has_reference for one in members) or len(stamps) != 1:
        raise NotSerialized("no envelope that can be changed")
    start, end = envelope.count_at(stamps[0].value)
    kinds = list(envelope.members(stamps[0].value))
    sent = [kind for kind in kinds if kind.key == _SENT]
    if len(sent) != 1:
        return body
    count = str(len(kinds) - 1).encode()
    left = plain[:start] + count + plain[end : sent[0].start] + plain[sent[0].end :]
    return _slashed(left)


def _slashed(plain: bytes) -> bytes:
    """Escape like PHP's `addslashes`."""
    return _SLASHED.sub(lambda one: b"\\0" if one[0] == b"\0" else b"\\" + one[0], plain)


_without_headers = of_headers(
    HeaderEdit(
        drop=frozenset(
            f"{_STAMP}{name}"
            for name in (
                "DelayStamp",
                "ErrorDetailsStamp",
                "RedeliveryStamp",
                "SentToFailureTransportStamp",
            )
        )
    )
)

DIALECT = Dialect("symfony", read, _renewed)
