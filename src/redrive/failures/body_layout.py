"""Bodies as people edit them, and as they were written before."""

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
"""The forms that programs write JSON in, as arguments of `json.dumps`."""


def laid_out(body: bytes) -> bytes | None:
    """A JSON body with a line for each value, for an editor; None if it is none that can be written
    again as it was, byte for byte."""
    for form in _FORMS:
        with suppress(ValueError, RecursionError):
            value = json.loads(body)
            if json.dumps(value, **form).encode() == body:
                return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    return None


def as_before(body: bytes, edited: bytes) -> bytes:
    """An edited body in the form that it had before it was laid out. What can't be written so
    without a change, a number of many digits for example, stays as it was typed."""
    with suppress(ValueError, RecursionError):
        value, before = json.loads(edited), json.loads(body)
        if json.dumps(value, indent=2, ensure_ascii=False).encode() == edited.rstrip():
            form = next(one for one in _FORMS if json.dumps(before, **one).encode() == body)
            return json.dumps(value, **form).encode()
    return edited
