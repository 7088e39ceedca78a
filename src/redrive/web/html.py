"""Makes pages of templates. Whatever a message or a broker holds is text on them, never markup."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from redrive.redaction import in_one_line, printable, text_of
from redrive.web.catalogue import gettext, language, ngettext
from redrive.web.histogram import drawn, line_of_hours


def page(name: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """A page.

    Args:
        name: its template, without its ending.
        values: what stands in it.
        status: the status of HTTP.
    """
    template = environment().get_template(f"{name}.html")
    return HTMLResponse(template.render(values), status)


def age_in_words(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago something was, in its largest unit."""
    if moment is None:
        return gettext("at an unknown time")
    seconds = int(((now or datetime.now(UTC)) - moment) / timedelta(seconds=1))
    if seconds < 1:
        return gettext("just now")
    if seconds < 60:
        return ngettext("%(num)s second ago", "%(num)s seconds ago", seconds)
    if seconds < 3600:
        return ngettext("%(num)s minute ago", "%(num)s minutes ago", seconds // 60)
    if seconds < 86400:
        return ngettext("%(num)s hour ago", "%(num)s hours ago", seconds // 3600)
    return ngettext("%(num)s day ago", "%(num)s days ago", seconds // 86400)


def moment_in_words(moment: datetime | None) -> str:
    """A time to the second, UTC."""
    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def size_in_words(size: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} MiB"


def rate_in_words(rate: float) -> str:
    """How many in some time: with one decimal while that says something."""
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.1f}"


@cache
def environment() -> Environment:
    """What templates are read with: what they show is text, and what they say is of the
    catalogue."""
    made = Environment(
        loader=PackageLoader("redrive.web"),
        autoescape=True,
        undefined=StrictUndefined,
        extensions=["jinja2.ext.i18n"],
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
    made.newstyle_gettext = True  # type: ignore[attr-defined]
    made.globals.update(_=_text, gettext=_text, ngettext=_counting_text, language=language)
    return made


def _text(text: str, /, **values: object) -> Markup:
    """A text of the catalogue as it stands on a page: what is markup in it is, and what is put into
    its places is not, unless a page has made it."""
    return Markup(gettext(text, **_escaped(values)))


def _counting_text(one: str, many: str, num: int, /, **values: object) -> Markup:
    """The same, of one that counts something."""
    return Markup(ngettext(one, many, num, **_escaped(values)))


def _escaped(values: Mapping[str, object]) -> dict[str, object]:
    return {name: escape(_shown(value)) for name, value in values.items()}


def _shown(value: object) -> object:
    """A value as it can stand on a page: no control characters, no invisible ones, no half ones."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return printable(text_of(value))
