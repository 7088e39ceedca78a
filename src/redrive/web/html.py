"""Renders pages from templates; text from messages and brokers is always escaped."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from redrive.redaction import in_one_line, printable, text_of
from redrive.web.histogram import drawn, line_of_hours


def page(name: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Render a template as a response."""
    template = environment().get_template(f"{name}.html")
    return HTMLResponse(template.render(values), status)


def age_in_words(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was, in its largest unit."""
    if moment is None:
        return "at an unknown time"
    seconds = int(((now or datetime.now(UTC)) - moment) / timedelta(seconds=1))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length:
            count = seconds // length
            return f"1 {unit} ago" if count == 1 else f"{count:,} {unit}s ago"
    return "just now"


def moment_in_words(moment: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def size_in_words(size: float) -> str:
    """Return a size in bytes, KiB or MiB."""
    for unit in ("B", "KiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} MiB"


def rate_in_words(rate: float) -> str:
    """Return a rate, with one decimal if it is below 10."""
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.1f}"


@cache
def environment() -> Environment:
    """Return the template environment, which escapes all values."""
    made = Environment(
        loader=PackageLoader("redrive.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        age=age_in_words,
        moment=moment_in_words,
        bytes=size_in_words,
        rate=rate_in_words,
        number=lambda number: f"{number:,}",
        line=lambda text: in_one_line(text_of(str(text))),
        histogram=drawn,
        hours=line_of_hours,
    )
    return made


def _shown(value: object) -> object:
    """Return a value without control or invisible characters or lone surrogates."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return printable(text_of(value))
