"""JSON as RFC 8259 has it: Python's own reads and writes `NaN` and infinities, which others
refuse."""

import json
from typing import Never


def read(text: str | bytes) -> object:
    """Read JSON."""
    value: object = json.loads(text, parse_constant=_refuse)
    return value


def check_numbers(content: bytes) -> None:
    """Raise ValueError where JSON that Python has written has a NaN or an infinity in it."""
    if b"NaN" in content or b"Infinity" in content:
        read(content)  # it may only be a text that says so


def no_such(number: object) -> str:
    """Say that JSON has no such number, and what to do about it."""
    return f"JSON has no {number}; send such a number as null or a text"


def _refuse(constant: str) -> Never:
    raise ValueError(no_such(constant))
