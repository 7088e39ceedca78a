"""Write rows as CSV that is safe to open in a spreadsheet or to print at a terminal."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from redrive.redaction import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows as CSV, with the columns as the first line."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(map(inert, columns))
    writer.writerows([inert(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def inert(value: object) -> str:
    """Return a value as a cell without control characters; an apostrophe precedes what a
    spreadsheet would take for a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(_FORMULA) else text
