from pathlib import Path

import pytest

from torture.event_journal import Event, JournalReader
from torture.lanes import Lane
from torture.program import Settings, publishing_is_over
from torture.publisher_program import Backlog

LANE = Lane("deadletter", "blocking", batch=3)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings("publisher", str(tmp_path), "amqp://localhost/", "blocking")


def past(settings: Settings) -> list[Event]:
    return list(JournalReader(Path(settings.folder)).new_events())


def test_new_messages_follow_those_that_are_confirmed(settings: Settings) -> None:
    backlog = Backlog(LANE, settings, [])
    assert backlog.next_batch() == [0, 1, 2]
    assert backlog.settle([0, 1, 2]) == LANE.pause
    assert backlog.next_batch() == [3, 4, 5]


def test_what_is_not_confirmed_is_published_again_before_anything_new(settings: Settings) -> None:
    backlog = Backlog(LANE, settings, [])
    backlog.next_batch()
    backlog.settle([1])
    assert backlog.next_batch() == [0, 2]


def test_what_is_published_is_written_down_before(settings: Settings) -> None:
    Backlog(LANE, settings, []).next_batch()
    sent = past(settings)
    assert [event.what for event in sent] == ["sending"] * 3
    assert [event.first for event in sent] == [LANE.wish_of(number).fails for number in range(3)]


def test_the_next_life_goes_on_after_what_is_written_down(settings: Settings) -> None:
    before = Backlog(LANE, settings, [])
    before.next_batch()
    before.settle([0, 2])
    after = Backlog(LANE, settings, past(settings))
    assert after.next_batch() == [1]
    after.settle([1])
    assert after.next_batch() == [3, 4, 5]


def test_at_the_end_only_what_is_not_confirmed_is_published(settings: Settings) -> None:
    backlog = Backlog(LANE, settings, [])
    backlog.next_batch()
    backlog.settle([0, 1])
    publishing_is_over(Path(settings.folder)).touch()
    assert backlog.next_batch() == [2]
    backlog.settle([2])
    assert backlog.next_batch() == []


def test_another_lane_is_not_its_own(settings: Settings) -> None:
    other = Event(1, "sending", "ladder@blocking/7")
    assert Backlog(LANE, settings, [other]).next_batch() == [0, 1, 2]
