"""JSON values and texts of a message that can be shown, stored and encoded, whatever its bytes."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from redrive.errors import InvalidMessage
from redrive.failures.message.failed_message import FailedMessage
from redrive.redaction import text_of


def headers_of(message: FailedMessage) -> dict[str, object]:
    """Return a message's headers as JSON values."""
    return {text_of(name): value_of(value) for name, value in message.headers.items()}


def value_of(value: object) -> object:
    """Return a header's value as a JSON value; types that JSON lacks become text."""
    match value:
        case str() | bool() | int() | None:
            return value
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float():
            # JSON has no infinities and no NaN.
            return str(value) if value != value or value in (float("inf"), float("-inf")) else value
        case Mapping():
            return {text_of(str(name)): value_of(inner) for name, inner in value.items()}
        case Sequence():
            return [value_of(inner) for inner in value]
        case _:
            return str(value)


def plain_of(message: FailedMessage) -> bytes:
    """Return a body as its handler reads it, uncompressed and in UTF-8.

    A body that can't be decoded is returned unchanged.
    """
    try:
        return message._utf8()
    except InvalidMessage:
        return message.body


def body_text_of(message: FailedMessage) -> str | None:
    """Return a body as text; None if it isn't text."""
    try:
        return message._utf8().decode()
    except (InvalidMessage, UnicodeDecodeError):
        return None


def body_of(message: FailedMessage) -> tuple[object, str]:
    """Return a body as a JSON value, and its format: `json`, `text` or `base64`."""
    text = body_text_of(message)
    if text is None:
        return base64.b64encode(message.body).decode(), "base64"
    try:
        return _parsed(text), "json"
    except (ValueError, RecursionError):
        return text, "text"


def json_text_of(message: FailedMessage) -> str | None:
    """Return the text of a JSON body; None if it isn't JSON, or has strings that UTF-8 can't
    encode."""
    text = body_text_of(message)
    return None if text is None else checked_json(text)


def is_json(body: bytes) -> bool:
    """Check whether a UTF-8 body is JSON."""
    try:
        _parsed(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


def checked_json(text: str) -> str | None:
    """Return a JSON text; None if it isn't JSON, or has strings that UTF-8 can't encode."""
    if not text:
        return None
    try:
        value = _parsed(text)
        # Only an escape can produce an unpaired surrogate, which databases refuse.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return text


def _parsed(text: str) -> object:
    """Parse JSON; raise ValueError or RecursionError if it is invalid, or has a number beyond its
    range."""
    return _DECODER.decode(text)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is out of range")
    return number


def _refused(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)
