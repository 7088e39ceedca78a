"""Responses that a browser saves as a file and never opens."""

from collections.abc import Iterable, Mapping, Sequence

from starlette.responses import Response

from redrive.failures.store.csv_text import csv_of


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
    """Return rows as a CSV file."""
    return download(csv_of(columns, rows), "text/csv", name)
