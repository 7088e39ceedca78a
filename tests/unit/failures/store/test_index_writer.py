"""A look that can't be kept is answered all the same, and leaves nothing."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import KEPT_QUEUE, index_in, keep, kept, look_at
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.message.cause import cause_of
from redrive.failures.message.columns import BY_NAME
from redrive.failures.message.failed_message import FailedMessage, received_with
from redrive.failures.store import index_writer
from redrive.failures.store.index import Index
from redrive.failures.store.index_writer import IndexWriter


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def filled(index: Index, count: int) -> IndexWriter:
    """A writer that was to keep so many messages."""
    with IndexWriter(index) as writer:
        for number in range(count):
            writer.note(FailedMessage(failed(body=str(number).encode())))
        writer.keep(look_at(index, count))
    return writer


def test_a_disk_that_is_full_at_the_beginning_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", no_room)
        assert filled(index, 3).problem == "No space left on device"
    assert index.find(KEPT_QUEUE) is None
    assert not list(index.folder.iterdir())


@pytest.mark.parametrize("step", ["_write", "_batches"])
def test_a_disk_that_fills_up_keeps_the_former_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    index = index_in(tmp_path)
    keep(index, [failed()])
    with monkeypatch.context() as patched:
        patched.setattr(IndexWriter, step, no_room)
        assert filled(index, 3).problem == "No space left on device"
    assert kept(index).count() == 1
    assert not list(index.folder.glob("fill-*"))


def test_a_folder_that_can_not_be_made_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file")
    assert "exists" in filled(index_in(tmp_path), 1).problem


def test_more_than_may_be_kept_is_not(tmp_path: Path) -> None:
    index = index_in(tmp_path, most_bytes=100)
    assert "100 bytes" in filled(index, 50).problem
    assert index.find(KEPT_QUEUE) is None


def test_a_look_that_was_not_followed_to_its_end_is_not_kept(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    with IndexWriter(index) as writer:
        writer.note(FailedMessage(failed()))
        writer.keep(replace(look_at(index, 2)))
    assert "not followed to its end" in writer.problem
    assert index.find(KEPT_QUEUE) is None


def test_what_the_database_refuses_is_told_without_what_a_message_holds() -> None:
    error = UnicodeEncodeError("utf-8", "a secret \ud800", 9, 10, "surrogates not allowed")
    assert index_writer.reason_of(error) == (
        "the database can't store a message (UnicodeEncodeError)"
    )


def test_progress_is_told_while_columns_are_made(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    told: list[int] = []
    with IndexWriter(index) as writer:
        writer.on_progress = told.append
        for _ in range(5500):
            writer.note(FailedMessage(failed()))
        writer.keep(look_at(index, 5500))
    assert told == [5000, 5500]


@pytest.mark.nightly("small messages are kept each time")
def test_large_messages_that_can_not_be_packed_are_kept_in_little_memory(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    some = random.Random(7)
    bodies = [some.randbytes(60_000) for _ in range(1000)]
    with IndexWriter(index) as writer:
        for body in bodies:
            writer.note(FailedMessage(failed(body=body)))
        writer.keep(look_at(index, len(bodies)))
    assert not writer.problem
    assert [message.body for message in kept(index)] == bodies


def test_the_cause_that_the_look_has_found_is_not_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_in(tmp_path)
    message = FailedMessage(failed(Table.of({"redrive-error-type": "KeyError"})))
    cause = cause_of(message)
    with IndexWriter(index) as writer:
        writer.note(message)
        with monkeypatch.context() as patched:
            patched.setattr(index_writer, "cause_of", no_room)
            writer.keep(look_at(index, 1))
    assert not writer.problem
    (group,) = kept(index).groups(BY_NAME["group_id"]).largest_first
    assert group.key == cause


def test_the_properties_are_kept_as_they_came_and_not_encoded_again(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    received = Properties(message_id="1").encode() + b"behind the last property"
    message = received_with(FailedMessage(failed()), received)
    with IndexWriter(index) as writer:
        writer.note(message)
        writer.keep(look_at(index, 1))
    assert [one.message_id for one in kept(index)] == ["1"]
