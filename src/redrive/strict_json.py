"""Strict JSON as in RFC 8259: Python's own reads and writes `NaN` and infinities, which other
parsers refuse."""

import json
from typing import Never


def read(text: str | bytes) -> object:
    """Parse JSON."""
    value: object = json.loads(text, parse_constant=_refuse)
    return value


def no_such(number: object) -> str:
    """Return an error message for a number that JSON does not have."""
    return f"JSON has no {number}; send such a number as null or a text"


def _refuse(constant: str) -> Never:
    raise ValueError(no_such(constant))
