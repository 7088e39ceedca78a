"""Histograms of failure times, as SVG."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from markupsafe import Markup, escape

from redrive.failures.groups import Group

_BINS = 24
_BAR, _GAP, _HEIGHT = 6, 2, 28
_LINKS, _LINK_WIDTH, _LINK_HEIGHT = 12, 60, 72
"""Bars that are links are few and wide, so that a finger can hit them on a narrow screen."""
_HOURS = 24


def drawn(group: Group) -> Markup:
    """Return a group's histogram; empty if no message has a failure time."""
    if group.first is None:
        return Markup("")
    counts, before, after = group.histogram(_BINS)
    label = f"Failures over time, in {_BINS} intervals: {max(counts):,} at most in one"
    if before + after:
        label += f"; {before + after:,} outside this range"
    return _picture(counts, label)


def line_of_hours(hours: Sequence[int], queue: str) -> Markup:
    """Return a chart of a queue's failures in each of the last hours, the latest on the right;
    empty if there are none."""
    if not any(hours):
        return Markup("")
    label = (
        f"Failed in {queue}: {sum(hours):,} in the last {len(hours)} hours, "
        f"{hours[-1]:,} in the last hour"
    )
    return _picture(hours, label)


def hours_of(groups: Sequence[Group], now: datetime) -> list[int]:
    """Return how many messages of these groups failed in each of the last 24 hours."""
    begin = (now - timedelta(hours=_HOURS)).timestamp()
    since = [
        sum(group.failed_since(begin + 3600 * hour) for group in groups)
        for hour in range(_HOURS + 1)
    ]
    return [before - after for before, after in pairwise(since)]


def with_links(group: Group, link: Callable[[datetime, datetime], str]) -> Markup:
    """Return a group's histogram whose bars link to the messages of their time; empty if no failure
    time is known."""
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
    ).format("Failures over time", _LINKS * _LINK_WIDTH, _LINK_HEIGHT, bars)


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
        end += timedelta(milliseconds=1)  # to include the last message
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
