"""When messages failed, drawn."""

from datetime import UTC, datetime

from redrive.failures.cause import Cause
from redrive.failures.groups import Group
from redrive.web.histogram import drawn, hours_of, line_of_hours, with_links


def test_a_bar_stands_for_each_part_of_the_time_in_which_some_failed() -> None:
    group = Group(Cause("E", "", ""), "1", 3)
    group.first = datetime(2026, 1, 1, tzinfo=UTC)
    group.times.extend([0.0, 0.0, 100.0])
    svg = str(drawn(group))
    assert svg.count("<rect") == 2
    assert 'height="28"' in svg
    assert 'role="img"' in svg


def test_what_has_no_times_has_no_picture() -> None:
    assert drawn(Group(Cause("E", "", ""), "1", 3)) == ""


def test_its_label_is_text() -> None:
    assert "<script>" not in line_of_hours([1] * 24, '"><script>')


def test_a_bar_that_is_a_link_leads_to_those_that_failed_then() -> None:
    group = Group(Cause("E", "", ""), "1", 2)
    group.times.extend([0.0, 120.0])
    svg = str(with_links(group, lambda begin, end: f"/{begin.second}-{end.isoformat()}"))
    assert svg.count("<a ") == 2
    assert 'href="/0-1970-01-01T00:00:10+00:00"' in svg
    assert "1970-01-01T00:02:00.001000+00:00" in svg, "the last message is in the last bar"
    assert 'aria-label="1 from 1970-01-01 00:00:00 to 1970-01-01 00:00:10"' in svg


def test_hours_count_what_failed_in_each_of_the_last_day() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    stamp = now.timestamp()
    group = Group(Cause("E", "", ""), "1", 3)
    group.times.extend([stamp - 1, stamp - 86400, stamp - 3601])
    other = Group(Cause("F", "", ""), "2", 2)
    other.times.extend([stamp - 86401, stamp - 3599])
    hours = hours_of([group, other], now)
    assert (hours[-1], hours[-2], hours[0], sum(hours)) == (2, 1, 1, 4)
    assert 'aria-label="Failed in q: 4 in the last 24 hours, 2 in the last hour"' in line_of_hours(
        hours, "q"
    )
    assert line_of_hours([0] * 24, "q") == ""
