"""What is taken out of a queue is noted before it goes, and a kill leaves nothing half true."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kept_looks import KEPT_QUEUE, index_in
from redrive.failures.store.index import Index
from redrive.failures.store.removals import REMOVALS, Removals, mark_of, removed_since

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = index_in(tmp_path)
    index.folder.mkdir(parents=True)
    return index


def noted(index: Index, since: datetime = EPOCH) -> dict[int, int]:
    return dict(removed_since(index.companions(KEPT_QUEUE, REMOVALS), since))


def test_a_message_is_known_by_its_own_id_whatever_a_stream_drops_of_it() -> None:
    assert mark_of("one", "key", b"body") == mark_of("one", "another", b"")
    assert mark_of("one", "key", b"body") != mark_of("two", "key", b"body")


def test_a_message_without_an_id_is_known_by_its_key_and_its_body() -> None:
    assert mark_of(None, "key", b"body") == mark_of(None, "key", b"body")
    assert mark_of(None, "ke", b"ybody") != mark_of(None, "key", b"body")


def test_what_is_about_to_go_is_noted_at_once(index: Index) -> None:
    with Removals([index], KEPT_QUEUE) as removals:
        removals.go([1, 2, 2])
        assert noted(index) == {1: 1, 2: 2}


def test_what_could_not_be_sent_is_there_again(index: Index) -> None:
    with Removals([index], KEPT_QUEUE) as removals:
        removals.go([1, 2])
        removals.stays(1)
    assert noted(index) == {2: 1}


def test_what_went_before_a_look_is_in_it_already(index: Index) -> None:
    with Removals([index], KEPT_QUEUE) as removals:
        removals.go([1])
    assert noted(index, datetime.now(UTC) + timedelta(minutes=1)) == {}


def test_what_a_killed_process_has_half_written_is_no_entry(index: Index) -> None:
    with Removals([index], KEPT_QUEUE) as removals:
        removals.go([1, 2])
    (file,) = index.companions(KEPT_QUEUE, REMOVALS)
    file.write_bytes(file.read_bytes()[:-5])
    assert noted(index) == {1: 1}


def test_where_there_is_no_index_nothing_is_noted(tmp_path: Path) -> None:
    with Removals([index_in(tmp_path)], KEPT_QUEUE) as removals:
        removals.go([1])
    assert list(tmp_path.iterdir()) == []


def test_where_it_can_not_be_noted_what_was_kept_is_dropped(index: Index) -> None:
    index.record_of(KEPT_QUEUE).write_text("{}")
    with Removals([index], KEPT_QUEUE) as removals:
        removals._files = [(index, index.folder / "no-such-folder" / "file")]
        removals.go([1])
    assert not index.record_of(KEPT_QUEUE).exists()
