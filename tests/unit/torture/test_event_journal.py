from pathlib import Path

import pytest

from torture.event_journal import Event, EventJournal, JournalReader


def test_what_was_noted_is_read_in_its_order(tmp_path: Path) -> None:
    journal = EventJournal(tmp_path / "worker.journal")
    journal.note("begun", "ladder@async/1", 2, 1)
    journal.note("failed", "ladder@async/1", 2, 1)
    begun, failed = JournalReader(tmp_path).new_events()
    assert (begun.what, begun.id, begun.first, begun.second) == ("begun", "ladder@async/1", 2, 1)
    assert failed.what == "failed"
    assert begun.at <= failed.at


def test_a_second_life_goes_on_in_the_same_journal(tmp_path: Path) -> None:
    for _ in range(2):
        EventJournal(tmp_path / "publisher.journal").note("sending", "requeue@blocking/1")
    assert len(list(JournalReader(tmp_path).new_events())) == 2


def test_only_what_is_new_is_read_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker.journal"
    reader = JournalReader(tmp_path)
    path.write_text("1 handled a/1 0 0\n2 handled a/2")
    assert [event.id for event in reader.new_events()] == ["a/1"]
    with path.open("a") as file:
        file.write(" 0 0\n")
    assert [event.id for event in reader.new_events()] == ["a/2"]
    assert list(reader.new_events()) == []


def test_what_is_noted_at_once_has_one_moment(tmp_path: Path) -> None:
    EventJournal(tmp_path / "p.journal").note_all("sending", [("a/1", 0, 0), ("a/2", 1, 0)])
    events = list(JournalReader(tmp_path).new_events())
    assert [event.id for event in events] == ["a/1", "a/2"]
    assert events[0].at == events[1].at


def test_a_line_says_what_its_event_is() -> None:
    event = Event(5, "sending", "a/1", -1, 2000)
    assert Event.of_line(event.line) == event


def test_a_line_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="exploded"):
        Event.of_line("1 exploded a/1 0 0")
