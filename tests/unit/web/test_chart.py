"""When messages failed, drawn."""

from datetime import UTC, datetime, timedelta

from redrive.failures.message.cause import Cause
from redrive.failures.message.groups import Group
from redrive.web.chart import HEIGHT, Named, by_hour, over_time, trend

NOW = datetime(2026, 1, 2, 12, 30, tzinfo=UTC)


def group_of(*times: float) -> Group:
    group = Group(Cause("E", "", ""), "1", len(times))
    group.times.extend(times)
    if times:
        group.first = datetime.fromtimestamp(min(times), UTC)
        group.last = datetime.fromtimestamp(max(times), UTC)
    return group


def test_a_trend_has_a_bar_for_each_part_of_the_time_in_which_some_failed() -> None:
    svg = str(trend(group_of(0.0, 0.0, 100.0)))
    assert svg.count("M") == 2
    assert 'role="img"' in svg
    assert "1970-01-01 00:00:00 UTC to 1970-01-01 00:01:40 UTC, at most 2 in a bar" in svg


def test_what_has_no_times_has_no_picture() -> None:
    assert trend(group_of()) == ""
    assert over_time(group_of(), lambda begin, end: "/") is None
    assert by_hour([Named("E", "", group_of())], NOW) is None


def test_a_bar_leads_to_those_that_failed_then() -> None:
    chart = over_time(group_of(0.0, 120.0), lambda begin, end: f"/{begin.second}-{end.second}")
    assert chart is not None
    assert [(bar.link, sum(bar.counts)) for bar in chart.bars if bar.parts] == [
        ("/0-10", 1),
        ("/50-0", 1),
    ]
    assert chart.bars[-1].end.microsecond == 1000, "the last message is in the last bar"
    assert chart.unit == "messages per 10s"


def test_hours_stack_six_causes_and_the_others() -> None:
    stamp = NOW.timestamp()
    groups = [Named(str(n), f"/{n}", group_of(*[stamp - 60] * (n + 1))) for n in range(9)]
    chart = by_hour(groups, NOW)
    assert chart is not None
    assert [name for name, _ in chart.series] == ["8", "7", "6", "5", "4", "3", "3 other causes"]
    assert [part.messages for part in chart.bars[-1].parts] == [9, 8, 7, 6, 5, 4, 6]
    assert sum(part.height for part in chart.bars[-1].parts) == HEIGHT
    assert chart.most == 45


def test_hours_begin_with_the_clock_and_end_now() -> None:
    stamp = NOW.timestamp()
    chart = by_hour([Named("E", "", group_of(stamp - 1, stamp - 3600, stamp - 86400))], NOW)
    assert chart is not None
    assert [sum(bar.counts) for bar in chart.bars][-2:] == [1, 1]
    assert (len(chart.bars), chart.bars[-1].begin) == (24, NOW.replace(minute=0))
    assert [tick - chart.ticks[0] for tick in chart.ticks] == [
        timedelta(hours=hours) for hours in (0, 6, 12, 18, 24)
    ]
