"""Charts of failures over time. `chart.html` draws them; `trend` is a small one without axes."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import NamedTuple

from markupsafe import Markup

from redrive.duration_text import format_duration
from redrive.failures.message.groups import Group
from redrive.number_text import moment_in_words

HOURS = 24
HEIGHT = 100
"""The height of the chart in its own units; the page stretches it."""
_LONG, _SHORT = timedelta(hours=1), timedelta(minutes=10)
_MOST_SERIES = 6
_BARS = 12
"""Bars that are links are few and wide, so that a finger can hit them on a narrow screen."""
_TREND_BARS, _TREND_WIDTH, _TREND_HEIGHT = 24, 8, 28
_TICKS = 4


class Part(NamedTuple):
    """The part of a bar that belongs to one series, with its place in the bar."""

    series: int
    messages: int
    y: int
    height: int


class Bar(NamedTuple):
    """The messages that failed between two times."""

    begin: datetime
    end: datetime
    counts: Sequence[int]
    parts: list[Part]
    link: str = ""


class Chart(NamedTuple):
    """A chart with stacked bars.

    Args:
        bars: the bars, the earliest first.
        series: the name of each series, and the address that it links to.
        unit: what is counted, and for how long: `messages per hour`.
        most: the height of the axis.
    """

    bars: list[Bar]
    series: list[tuple[str, str]]
    unit: str
    most: int

    @property
    def ticks(self) -> list[datetime]:
        """The times on the axis, from its start to its end."""
        begin, end = self.bars[0].begin, self.bars[-1].end
        return [begin + (end - begin) * number / _TICKS for number in range(_TICKS + 1)]

    @property
    def tick(self) -> tuple[int, int]:
        """The part of a time, as text, that a tick shows: the day, the minute or the second."""
        span = self.bars[-1].end - self.bars[0].begin
        return (5, 10) if span > timedelta(days=2) else (11, 16) if span > _SHORT else (11, 19)


class Named(NamedTuple):
    """A group with its name and its address."""

    name: str
    link: str
    group: Group


def by_hour(groups: Iterable[Named], now: datetime) -> Chart | None:
    """Return the failures of the last 24 hours by group, the largest six apart from the others;
    None if there are none."""
    begin = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    start = begin.timestamp()
    found = [(one.group.failed_since(start), one) for one in groups]
    largest = sorted((one for one in found if one[0]), key=lambda one: -one[0])
    columns = [_hours(one.group, start) for _, one in largest]
    counts, rest = columns[:_MOST_SERIES], columns[_MOST_SERIES:]
    series = [(one.name, one.link) for _, one in largest[:_MOST_SERIES]]
    if rest:
        counts.append([sum(some) for some in zip(*rest, strict=True)])
        series.append((f"{len(rest):,} other causes" if len(rest) > 1 else "1 other cause", ""))
    return _chart(counts, begin, timedelta(hours=1), series, "messages per hour")


def over_time(group: Group, link: Callable[[datetime, datetime], str]) -> Chart | None:
    """Return a group's failures over its time, each bar with the address of its messages; None if
    no failure time is known."""
    if group.span is None:
        return None
    begin, end = group.span
    step = (end - begin) / _BARS
    to = 60 if step > _LONG else 1 if step > timedelta(seconds=9) else 0.001
    length = timedelta(seconds=to * round(step.total_seconds() / to))
    unit = f"messages per {format_duration(length)}"
    counts = group.histogram(_BARS).counts
    return _chart([counts], begin, step, [("Failures", "")], unit, link)


def trend(group: Group) -> Markup:
    """Return a small picture of a group's failures over its time; empty if no time is known."""
    if group.first is None or group.last is None:
        return Markup("")
    counts, before, after = group.histogram(_TREND_BARS)
    most = max(counts)
    path = "".join(
        f"M{number * _TREND_WIDTH} {_TREND_HEIGHT}"
        f"v-{-(-count * _TREND_HEIGHT // most)}h{_TREND_WIDTH - 2}v{_TREND_HEIGHT}z"
        for number, count in enumerate(counts)
        if count
    )
    span = f"{moment_in_words(group.first)} to {moment_in_words(group.last)}"
    label = f"{span}, at most {most:,} in a bar"
    if before + after:
        label += f"; {before + after:,} outside this range"
    return Markup(
        '<svg class="trend" role="img" aria-label="{0}" viewBox="0 0 {1} {2}" width="{1}" '
        'height="{2}"><title>{0}</title><path d="{3}"/></svg>'
    ).format(label, _TREND_BARS * _TREND_WIDTH, _TREND_HEIGHT, path)


def _hours(group: Group, start: float) -> list[int]:
    since = [group.failed_since(start + 3600 * hour) for hour in range(HOURS + 1)]
    return [before - after for before, after in pairwise(since)]


def _chart(
    counts: Sequence[Sequence[int]],
    begin: datetime,
    step: timedelta,
    series: list[tuple[str, str]],
    unit: str,
    link: Callable[[datetime, datetime], str] = lambda begin, end: "",
) -> Chart | None:
    columns = list(zip(*counts, strict=True))
    most = max(map(sum, columns), default=0)
    if not most:
        return None
    bars = []
    for number, column in enumerate(columns):
        start, end = begin + step * number, begin + step * (number + 1)
        tops = [0, *(-(-count * HEIGHT // most) for count in accumulate(column))]
        parts = [
            Part(one, count, HEIGHT - top, top - bottom)
            for one, (count, (bottom, top)) in enumerate(zip(column, pairwise(tops), strict=True))
            if count
        ]
        if number == len(columns) - 1 and link(start, end):
            end += timedelta(milliseconds=1)  # to include the last message
        bars.append(Bar(start, end, column, parts, link(start, end)))
    return Chart(bars, series, unit, most)
