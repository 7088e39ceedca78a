"""When the messages of a group were set aside: a few that are far from the rest flatten no
histogram."""

from datetime import UTC, datetime, timedelta

import pytest

from deliveries import failed, table
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Group, Groups

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def group_of(*minutes: float) -> Group:
    """One group whose messages were set aside so many minutes after noon."""
    groups = Groups()
    groups.add(
        FailedMessage(
            failed(
                table(
                    redrive_error_type="E",
                    redrive_failed_at=(NOON + timedelta(minutes=minute)).isoformat(),
                )
            )
        )
        for minute in minutes
    )
    (group,) = groups.largest_first
    return group


HOUR = [minute / 2 for minute in range(120)]


def test_a_histogram_spans_the_groups_own_time() -> None:
    assert group_of(*HOUR).histogram(4) == ([30, 30, 30, 30], 0, 0)


@pytest.mark.parametrize(
    ("far", "before", "after"), [([-4320], 1, 0), ([4320], 0, 1), ([-4320, -9000, 4320], 2, 1)]
)
def test_a_few_that_are_days_away_are_left_out_and_counted(
    far: list[float], before: int, after: int
) -> None:
    counts, earlier, later = group_of(*far, *HOUR).histogram(4)
    assert (min(counts) >= 28, earlier, later) == (True, before, after)
    assert sum(counts) + earlier + later == len(HOUR) + len(far)


def test_more_than_a_few_are_shown() -> None:
    counts, before, after = group_of(*[-4320 - minute for minute in range(20)], *HOUR).histogram(4)
    assert (counts[0], counts[-1], before, after) == (20, 120, 0, 0)


@pytest.mark.parametrize(
    "minutes", [(0,), (0, 0), (0, 4320), (0, 0, 0, 0, 0, 0), (0, 1, 2, 3, 4320)]
)
def test_no_message_of_a_few_is_lost(minutes: tuple[float, ...]) -> None:
    counts, before, after = group_of(*minutes).histogram(4)
    assert sum(counts) + before + after == len(minutes)


def test_the_first_and_the_last_are_told_all_the_same() -> None:
    group = group_of(-4320, *HOUR)
    assert (group.first, group.last) == (NOON - timedelta(days=3), NOON + timedelta(minutes=59.5))
