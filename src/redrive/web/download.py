"""Responses that a browser saves as a file and never opens."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from starlette.responses import Response

from redrive.redaction import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def download(content: str | bytes, media_type: str, name: str) -> Response:
    """Return a response that a browser saves under this name."""
    return Response(
        content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content,
        media_type=media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def download_csv(
    columns: Sequence[str], rows: Iterable[Mapping[str, object]], name: str
) -> Response:
    """Return a CSV file that is safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(map(inert, columns))
    writer.writerows([inert(row.get(column)) for column in columns] for row in rows)
    return download(text.getvalue(), "text/csv", name)


def inert(value: object) -> str:
    """Return a value as a cell without control characters; an apostrophe precedes what a
    spreadsheet would take for a formula."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"'{text}" if text.startswith(_FORMULA) else text
