"""Responses that a browser saves as a file and never opens."""

from starlette.responses import Response


def download(content: str | bytes, media_type: str, name: str) -> Response:
    """Return a response that a browser saves under this name."""
    return Response(
        content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content,
        media_type=media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
