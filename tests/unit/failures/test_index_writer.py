"""A look that can't be kept is answered all the same, and leaves nothing."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from deliveries import failed
from kept_looks import KEPT_QUEUE, index_in, keep, kept, look_at
from redrive.failures import index_writer
from redrive.failures.failed_message import FailedMessage
from redrive.failures.index import Index
from redrive.failures.index_writer import IndexWriter


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
        "the database can't take a message (UnicodeEncodeError)"
    )


def test_progress_is_told_while_columns_are_made(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    told: list[int] = []
    with IndexWriter(index) as writer:
        writer.on_progress = told.append
        for _ in range(1500):
            writer.note(FailedMessage(failed()))
        writer.keep(look_at(index, 1500))
    assert told == [1000, 1500]
