"""Cells of CSV files, which people open with spreadsheets."""

import json

from redrive.redaction import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def inert(value: object) -> str:
    """A value as a cell, without what would steer a terminal. One that a spreadsheet would take for
    a formula begins with an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(_FORMULA) else text
