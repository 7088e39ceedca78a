from datetime import UTC, datetime, timedelta

from deliveries import failed, table
from redrive.failures.message.columns import BY_NAME
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Groups
from redrive.failures.store.overview import Overview

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def groups_of(*messages: tuple[str, int], by: str = "group_id") -> Groups:
    """Groups of messages of an error type that were set aside so many minutes after noon."""
    groups = Groups(BY_NAME[by])
    groups.add(
        FailedMessage(
            failed(
                table(
                    redrive_failure_id=f"{kind}-{minute}",
                    redrive_error_type=kind,
                    redrive_failed_at=(NOON + timedelta(minutes=minute)).isoformat(),
                )
            )
        )
        for kind, minute in messages
    )
    return groups


def overview_of(**queues: Groups) -> Overview:
    """The groups of these queues together."""
    overview = Overview()
    for queue, groups in queues.items():
        overview.take(queue, groups)
    return overview


def test_what_is_the_same_in_two_queues_is_one_group() -> None:
    overview = overview_of(
        orders=groups_of(("A", 3), ("A", 5), ("B", 1)), bills=groups_of(("A", 1), ("A", 4))
    )
    first, second = overview.latest_first

    assert (first.queues, second.queues) == ({"orders": 2, "bills": 2}, {"orders": 1})
    assert (first.group.count, overview.total) == (4, 5)
    assert (first.queue, first.group.first_id) == ("orders", "A-3")


def test_a_group_spans_the_time_of_all_its_messages() -> None:
    overview = overview_of(orders=groups_of(("A", 3), ("A", 5)), bills=groups_of(("A", 1)))
    (shared,) = overview.latest_first

    assert shared.group.first == NOON + timedelta(minutes=1)
    assert shared.group.last == NOON + timedelta(minutes=5)
    assert sum(shared.group.histogram(4).counts) == 3


def test_the_most_recent_comes_first_however_few_they_are() -> None:
    overview = overview_of(
        orders=groups_of(*[("A", minute) for minute in range(9)]), bills=groups_of(("B", 10))
    )
    assert [shared.queue for shared in overview.latest_first] == ["bills", "orders"]


def test_any_column_may_be_what_they_have_in_common() -> None:
    overview = overview_of(
        orders=groups_of(("A", 1), by="error_type"), bills=groups_of(("A", 2), by="error_type")
    )
    (shared,) = overview.latest_first
    assert (shared.group.key, shared.group.count) == ("A", 2)


def test_no_queue_has_no_group() -> None:
    assert (Overview().latest_first, Overview().total) == ([], 0)
