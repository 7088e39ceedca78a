"""Draws when messages failed, as SVG."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from markupsafe import Markup, escape

from redrive.failures.groups import Group

_BINS = 24
_BAR, _GAP, _HEIGHT = 6, 2, 28
_LINKS, _LINK_WIDTH, _LINK_HEIGHT = 12, 60, 72
"""Bars that are links are few and wide: a finger has to hit them on a narrow screen, too."""
_HOURS = 24


def drawn(group: Group) -> Markup:
    """A group's histogram; nothing where nobody knows when its messages failed."""
    if group.first is None:
        return Markup("")
    counts, before, after = group.histogram(_BINS)
    label = f"When they failed: {max(counts):,} at most in one of {_BINS} parts of the time"
    if before + after:
        label += f"; {before + after:,} long before or after"
    return _picture(counts, label)


def line_of_hours(hours: Sequence[int], queue: str) -> Markup:
    """How many messages of a queue have failed in each of the last hours, the latest last; nothing
    where none has."""
    if not any(hours):
        return Markup("")
    label = (
        f"Failed in {queue}: {sum(hours):,} in the last {len(hours)} hours, "
        f"{hours[-1]:,} in the last"
    )
    return _picture(hours, label)


def hours_of(groups: Sequence[Group], now: datetime) -> list[int]:
    """How many messages of these groups have failed in each of the last 24 hours."""
    begin = (now - timedelta(hours=_HOURS)).timestamp()
    since = [
        sum(group.failed_since(begin + 3600 * hour) for group in groups)
        for hour in range(_HOURS + 1)
    ]
    return [before - after for before, after in pairwise(since)]


def with_links(group: Group, link: Callable[[datetime, datetime], str]) -> Markup:
    """A group's histogram whose bars lead to those that failed then; nothing where nobody knows
    when."""
    span = group.span
    if span is None:
        return Markup("")
    counts, _, _ = group.histogram(_LINKS)
    begin, step = span[0], (span[1] - span[0]) / _LINKS
    most = max(counts)
    bars = Markup("").join(
        _link_bar(
            number,
            count,
            -(-count * _LINK_HEIGHT // most),
            (begin + step * number, begin + step * (number + 1)),
            is_last=number == _LINKS - 1,
            link=link,
        )
        for number, count in enumerate(counts)
        if count
    )
    return Markup(
        '<svg class="histogram linked" role="group" aria-label="{}" '
        'preserveAspectRatio="none" viewBox="0 0 {} {}">{}</svg>'
    ).format("When they failed", _LINKS * _LINK_WIDTH, _LINK_HEIGHT, bars)


def _link_bar(
    number: int,
    count: int,
    height: int,
    span: tuple[datetime, datetime],
    *,
    is_last: bool,
    link: Callable[[datetime, datetime], str],
) -> Markup:
    begin, end = span
    if is_last:
        end += timedelta(milliseconds=1)  # the last message is in it
    words = f"{count:,} from {_moment(begin)} to {_moment(end)}"
    return Markup(
        '<a href="{}" aria-label="{}"><title>{}</title>'
        '<rect class="hit" x="{}" y="0" width="{}" height="{}"/>'
        '<rect x="{}" y="{}" width="{}" height="{}"/></a>'
    ).format(
        link(begin, end),
        words,
        words,
        number * _LINK_WIDTH,
        _LINK_WIDTH,
        _LINK_HEIGHT,
        number * _LINK_WIDTH + _GAP,
        _LINK_HEIGHT - height,
        _LINK_WIDTH - 2 * _GAP,
        height,
    )


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _picture(counts: Sequence[int], label: str) -> Markup:
    most = max(counts)
    bars = Markup("").join(
        _bar(number, -(-count * _HEIGHT // most)) for number, count in enumerate(counts) if count
    )
    width = len(counts) * (_BAR + _GAP)
    return Markup(
        '<svg class="histogram" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" '
        'height="{}">{}</svg>'
    ).format(label, width, _HEIGHT, width, _HEIGHT, bars)


def _bar(number: int, height: int) -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(
        number * (_BAR + _GAP), _HEIGHT - height, _BAR, escape(str(height))
    )
