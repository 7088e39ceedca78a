"""Lay out JSON bodies for editing, and restore their original formatting afterwards."""

import json
from contextlib import suppress
from typing import TypedDict


class _Form(TypedDict):
    separators: tuple[str, str]
    ensure_ascii: bool


_FORMS: tuple[_Form, ...] = tuple(
    {"separators": separators, "ensure_ascii": ascii_alone}
    for separators in ((",", ":"), (", ", ": "))
    for ascii_alone in (False, True)
)
"""The formats in which programs commonly write JSON, as arguments of `json.dumps`."""


def laid_out(body: bytes) -> bytes | None:
    """Return a JSON body with one value per line, for an editor; None if it could not be written
    back byte for byte."""
    for form in _FORMS:
        with suppress(ValueError, RecursionError):
            value = json.loads(body)
            if json.dumps(value, **form).encode() == body:
                return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    return None


def as_before(body: bytes, edited: bytes) -> bytes:
    """Return an edited body in the formatting that it had before it was laid out.

    If that would change a value, such as a number with many digits, the body stays as typed.
    """
    with suppress(ValueError, RecursionError):
        value, before = json.loads(edited), json.loads(body)
        if json.dumps(value, indent=2, ensure_ascii=False).encode() == edited.rstrip():
            form = next(one for one in _FORMS if json.dumps(before, **one).encode() == body)
            return json.dumps(value, **form).encode()
    return edited
