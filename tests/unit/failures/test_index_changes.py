"""What went from a queue, and what came, since a look is in what the index answers."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.failures.columns import BY_NAME
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter
from redrive.failures.index import Index
from redrive.failures.index_changes import changes_since
from redrive.failures.index_reader import IndexedMessages
from redrive.failures.removals import Removals, mark_of
from redrive.topology.headers import Delivery


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
    with Removals(index, KEPT_QUEUE) as removals:
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
