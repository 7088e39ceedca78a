"""Cells of CSV files that are safe to open in a spreadsheet."""

import json

from redrive.redaction import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def inert(value: object) -> str:
    """Return a value as a cell without control characters; an apostrophe precedes what a
    spreadsheet would take for a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(_FORMULA) else text
