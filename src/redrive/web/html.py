"""Renders pages from templates; text from messages and brokers is always escaped."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from redrive.failures import wording
from redrive.number_text import age_in_words, moment_in_words, size_in_words
from redrive.redaction import in_one_line, printable, text_of


def page(name: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Render a template as a response."""
    template = environment().get_template(f"{name}.html")
    return HTMLResponse(template.render(values), status)


def moment_element(moment: datetime | None) -> str:
    """Return a time as an element that the page's script puts into the reader's zone."""
    if moment is None:
        return "–"
    written = moment.astimezone(UTC).isoformat()
    return Markup('<time datetime="{}">{}</time>').format(written, moment_in_words(moment))


def is_recent(moment: datetime | None) -> bool:
    """Return whether a time is within the last day."""
    return moment is not None and datetime.now(UTC) - moment < timedelta(days=1)


def cut(text: object, most: int) -> str:
    """Return a text in one line with at most this many characters."""
    line = in_one_line(text_of(str(text)))
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


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
        age=lambda moment: age_in_words(moment, datetime.now(UTC)),
        moment=moment_element,
        utc=moment_in_words,
        cut=cut,
        is_recent=is_recent,
        bytes=size_in_words,
        rate=rate_in_words,
        number=lambda number: f"{number:,}",
        line=lambda text: in_one_line(text_of(str(text))),
    )
    made.globals["wording"] = wording
    return made


def _shown(value: object) -> object:
    """Return a value without control or invisible characters or lone surrogates."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return printable(text_of(value))
