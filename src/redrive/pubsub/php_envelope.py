"""The envelope in which PHP services put their bodies:
`{"body": {...}, "__id": "20240517093000-664726a8d1f3e"}`."""

import re
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

MARK = b'"__id"'
"""What is in each envelope, and in hardly any other body."""
_NAMES = {"body", "__id"}
_ID = re.compile(r"[0-9]{14}-[0-9a-f]+")
"""PHP's `date('YmdHis')`, and the hex digits of `uniqid`."""


class PhpEnvelope(NamedTuple):
    """The contents of an envelope.

    Args:
        body: the value that was published.
        id: the message's id, as PHP knows it.
    """

    body: object
    id: str


def read(body: bytes) -> PhpEnvelope | None:
    """Return the envelope that a body consists of, or None.

    Only an object with exactly these two names and an id in this format is an envelope; anything
    else with a `body` or an `__id` is left as it is.
    """
    if MARK not in body:
        return None
    from pydantic_core import from_json  # few bodies are envelopes, and the import is slow

    try:
        value = from_json(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.keys() != _NAMES:
        return None
    name = value["__id"]
    return (
        PhpEnvelope(value["body"], name) if isinstance(name, str) and _ID.fullmatch(name) else None
    )


def wrap(content: bytes, id_: str) -> bytes:
    """Return the envelope for a body that is already JSON."""
    return b'{"body":' + content + b',"__id":"' + id_.encode() + b'"}'


def new_id() -> str:
    """Return an id for a new message; the time in it is UTC."""
    return f"{datetime.now(UTC):%Y%m%d%H%M%S}-{uuid.uuid4().hex}"
