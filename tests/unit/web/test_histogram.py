"""When messages failed, drawn."""

from datetime import UTC, datetime

from redrive.failures.cause import Cause
from redrive.failures.groups import Group
from redrive.web.histogram import drawn


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
    group = Group(Cause("E", "", ""), "1", 1)
    group.first = datetime(2026, 1, 1, tzinfo=UTC)
    group.times.append(0.0)
    assert "<script>" not in drawn(group, '"><script>')
