"""The envelope that PHP services put their bodies in:
`{"body": {...}, "__id": "20240517093000-664726a8d1f3e"}`."""

import re
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

_MARK = b'"__id"'
_NAMES = {"body", "__id"}
_ID = re.compile(r"[0-9]{14}-[0-9a-f]+")
"""PHP's `date('YmdHis')`, and what `uniqid` makes of the microseconds."""


class PhpEnvelope(NamedTuple):
    """What is in an envelope.

    Args:
        body: the value that was published.
        id: the message's id, as PHP knows it.
    """

    body: object
    id: str


def read(body: bytes) -> PhpEnvelope | None:
    """The envelope that a body is, or None.

    Only an object of exactly these two names, with an id of this form, is one: whatever merely has
    a `body` or an `__id` is left as it is.
    """
    if _MARK not in body:  # nearly all that is none costs no parsing
        return None
    from pydantic_core import from_json  # few bodies are envelopes, and it takes long to import

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
    """The envelope of a body that is JSON already."""
    return b'{"body":' + content + b',"__id":"' + id_.encode() + b'"}'


def new_id() -> str:
    """An id of a new message; the time in it is UTC."""
    return f"{datetime.now(UTC):%Y%m%d%H%M%S}-{uuid.uuid4().hex}"
