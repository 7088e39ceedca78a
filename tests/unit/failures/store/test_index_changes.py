"""What went from a queue, and what came, since a look is in what the index answers."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.failures.message.columns import BY_NAME
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failure_feed import Copy
from redrive.failures.queue.feed_writer import FeedWriter
from redrive.failures.store.filter import Filter
from redrive.failures.store.index import MOST_OF_A_BODY, Index
from redrive.failures.store.index_changes import ADDED, changes_since, manifest_of
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.kept_messages import BodyNotKept
from redrive.failures.store.removals import Removals, mark_of
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily


def numbered(count: int) -> list[Delivery]:
    return [failed(body=str(number).encode()) for number in range(count)]


def now_kept(index: Index) -> IndexedMessages:
    look = index.find(KEPT_QUEUE)
    assert look is not None
    return IndexedMessages(index, look, changes=changes_since(index, look))


def mark(delivery: Delivery) -> int:
    message = FailedMessage(delivery)
    return mark_of(message.own_failure_id, delivery.routing_key, delivery.body)


def take_out(index: Index, deliveries: Sequence[Delivery]) -> None:
    with Removals([index], KEPT_QUEUE) as removals:
        removals.go([mark(one) for one in deliveries])


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return index_in(tmp_path)


def test_what_was_taken_out_is_in_no_answer(index: Index) -> None:
    messages = numbered(5)
    keep(index, messages)
    take_out(index, messages[1:4])
    left = now_kept(index)
    assert left.count() == 2
    assert [one.body for one in left] == [b"0", b"4"]
    assert left.groups(BY_NAME["group_id"]).total == 2
    assert left.matching(Filter("body_text = '2'")).count() == 0
    assert [one.body for one in left.first(9, newest=False)] == [b"0", b"4"]
    with left.database([BY_NAME["failure_id"]]) as database:
        assert len(database.query("select * from failed")[1]) == 2


def test_of_messages_that_nothing_tells_apart_as_many_go_as_were_taken(index: Index) -> None:
    keep(index, [failed(body=b"same")] * 3)
    take_out(index, [failed(body=b"same")] * 2)
    assert now_kept(index).count() == 1


def test_a_new_look_knows_it_already(index: Index) -> None:
    messages = numbered(3)
    keep(index, messages)
    take_out(index, messages)
    time.sleep(0.01)
    keep(index, messages)
    assert now_kept(index).count() == 3


def test_what_is_known_is_found_once_for_each_state(index: Index) -> None:
    messages = numbered(3)
    keep(index, messages)
    take_out(index, messages[:1])
    look = index.find(KEPT_QUEUE)
    assert look is not None
    assert changes_since(index, look) is changes_since(index, look)
    take_out(index, messages[1:2])
    assert changes_since(index, look).went == 2


def add(index: Index, deliveries: Sequence[Delivery]) -> None:
    """Has messages come just now, as a follower writes them."""
    keeper = FeedWriter(index, Connector("amqp://localhost", "test"), ExchangeFamily())
    keeper._keep([Copy(FailedMessage(one), datetime.now(UTC)) for one in deliveries], None)
    assert not keeper.problem


def test_what_came_stands_behind_what_the_look_saw(index: Index) -> None:
    keep(index, numbered(2))
    add(index, [failed(body=b"new"), failed(body=b"newer")])
    known = now_kept(index)
    assert [one.body for one in known] == [b"0", b"1", b"new", b"newer"]
    assert known.count() == 4
    assert [one.body for one in known.first(1, newest=False)] == [b"0"]


def test_what_a_look_saw_and_a_copy_told_of_is_one_message(index: Index) -> None:
    keep(index, numbered(2))
    add(index, [failed(body=b"1"), failed(body=b"new")])
    assert [one.body for one in now_kept(index)] == [b"0", b"1", b"new"]


def test_what_came_and_went_is_not_there(index: Index) -> None:
    keep(index, numbered(2))
    add(index, [failed(body=b"new"), failed(body=b"newer")])
    take_out(index, [failed(body=b"new")])
    assert [one.body for one in now_kept(index)] == [b"0", b"1", b"newer"]


@pytest.mark.parametrize(
    "manifest", ["", "[[], 1]", '[[["../../etc/passwd", 1]], 1, 1]', "[1, 2, 3]"]
)
def test_a_manifest_that_is_damaged_adds_nothing(index: Index, manifest: str) -> None:
    keep(index, numbered(2))
    add(index, [failed(body=b"new")])
    manifest_of(index, KEPT_QUEUE).write_text(manifest)
    assert now_kept(index).count() == 2


def test_what_a_killed_follower_was_writing_is_in_no_answer(index: Index) -> None:
    keep(index, numbered(2))
    index.companion(KEPT_QUEUE, "half", ADDED).write_bytes(b"PAR1 and no more")
    assert now_kept(index).count() == 2


GERMAN = "body->>'$.country' = 'DE'"


def of_germany(size: int = 0) -> Delivery:
    """A message whose body says so, and is so large at least."""
    return failed(body=json.dumps({"country": "DE", "lines": "x" * size}).encode())


def test_of_a_large_body_that_came_since_a_look_nothing_untrue_is_said(index: Index) -> None:
    keep(index, [of_germany()])
    assert now_kept(index).matching(Filter(GERMAN)).count() == 1
    keeper = FeedWriter(index, Connector("amqp://localhost", "test"), ExchangeFamily())
    came = FailedMessage(of_germany(MOST_OF_A_BODY))
    keeper._keep([Copy(came, datetime.now(UTC))], None)
    since = now_kept(index)
    assert since.count() == 2
    assert since.matching(Filter("size > 1000")).count() == 1
    # One of the two would be said to match, and both do.
    with pytest.raises(BodyNotKept, match="64 KiB"):
        since.matching(Filter(GERMAN)).count()
    with pytest.raises(BodyNotKept, match="64 KiB"):
        since.counted_by("body->>'$.country'", 5)
    with pytest.raises(BodyNotKept, match="64 KiB"):
        since.database([BY_NAME["body"]])


def test_a_large_body_that_is_gone_is_in_the_way_of_no_question(index: Index) -> None:
    small, large = of_germany(), of_germany(MOST_OF_A_BODY)
    keep(index, [small, large])
    with pytest.raises(BodyNotKept):
        now_kept(index).matching(Filter(GERMAN)).count()
    take_out(index, [large])
    assert now_kept(index).matching(Filter(GERMAN)).count() == 1
