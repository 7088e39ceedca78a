"""Archives of the Spark job read without Spark: what is in them and in no queue."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from deliveries import failed
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.spark_reprocess.archive import Archive, Run, file_name, messages_folder
from redrive.spark_reprocess.archive_row import parquet_of, table_of_copies
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.topology.headers import Delivery

QUEUE = "shop@or/ders 100%"


def message(id_: str, body: bytes = b"{}") -> FailedMessage:
    made = failed(Table.of({"redrive-failure-id": id_}), body=body)
    return FailedMessage(
        Delivery(QUEUE, made.exchange, made.routing_key, made.properties, made.body)
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


def drained(archive: Archive, *files: Sequence[FailedMessage]) -> Run:
    """A run that has these messages, in so many files."""
    run = archive.begin("amqp://test", {QUEUE: sum(map(len, files))})
    for number, messages in enumerate(files):
        name = file_name("session", number, len(messages))
        archive.storage.write(
            f"{messages_folder(QUEUE, run.id)}/{name}", parquet_of(table_of_copies(messages))
        )
    return run


def noted(archive: Archive, run: Run, *entries: Entry) -> None:
    ArchiveLedger(archive.storage, run.id, "job").write("part", 0, 0, entries)


def left(archive: Archive) -> list[FailedMessage]:
    return list(Snapshot(Path(archive.storage.uri)).browse())


def test_each_message_is_there_byte_for_byte_and_in_order(archive: Archive) -> None:
    messages = [message(f"id-{number}", bytes([number, 255, 0])) for number in range(5)]
    drained(archive, messages[:3], messages[3:])
    assert [one.delivery for one in left(archive)] == [one.delivery for one in messages]
    assert Snapshot(Path(archive.storage.uri)).depth() == 5


def test_what_was_sent_restored_or_discarded_is_not_there(archive: Archive) -> None:
    run = drained(archive, [message(id_) for id_ in ("a~b", "b", "c", "d", "e", "f")])
    noted(
        archive,
        run,
        Entry("a~~b", Event.SENT),
        Entry("b", Event.RESTORED),
        Entry("c", Event.DISCARDED),
        Entry("d", Event.REFUSED),
        Entry("e", Event.SENDING),
    )
    assert [one.failure_id for one in left(archive)] == ["d", "e", "f"]


def test_what_was_restored_and_drained_again_is_there_once(archive: Archive) -> None:
    noted(archive, drained(archive, [message("a")]), Entry("a", Event.RESTORED))
    drained(archive, [message("a")])
    assert [one.failure_id for one in left(archive)] == ["a"]


def test_copies_of_one_message_are_one(archive: Archive) -> None:
    drained(archive, [message("a"), message("b")], [message("a")])
    assert [one.failure_id for one in left(archive)] == ["a", "b"]


@pytest.mark.parametrize("both", [("a", b"one", b"another"), (64 * "f", b"{}", b"{}")])
def test_failure_ids_that_only_spark_tells_apart_are_an_error(
    archive: Archive, both: tuple[str, bytes, bytes]
) -> None:
    id_, one, another = both
    drained(archive, [message(id_, one)], [message(id_, another)])
    with pytest.raises(ConfigurationError, match=r"1 failure ids .* use redrive spark restore"):
        left(archive)


def test_an_archive_is_known_by_its_mark_and_its_format(archive: Archive, tmp_path: Path) -> None:
    drained(archive, [message("a")])
    assert Snapshot.is_meant(archive.storage.uri)
    assert not Snapshot.is_meant(str(tmp_path))
    Path(archive.storage.uri, "redrive-archive.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ConfigurationError, match="a format other than 1"):
        left(archive)


def test_a_link_in_an_archive_is_not_followed(archive: Archive, tmp_path: Path) -> None:
    drained(archive, [message("a")])
    other = Archive(str(tmp_path / "other"))
    drained(other, [message("b")])
    (file,) = Path(archive.storage.uri).rglob("*.parquet")
    (target,) = Path(other.storage.uri).rglob("*.parquet")
    file.unlink()
    file.symlink_to(target)
    with pytest.raises(ConfigurationError, match="it contains a link"):
        left(archive)


def test_a_damaged_file_is_said_to_be_damaged(archive: Archive) -> None:
    drained(archive, [message("a")])
    (file,) = Path(archive.storage.uri).rglob("*.parquet")
    file.write_bytes(b"nothing")
    with pytest.raises(ConfigurationError, match="can't be read as failed messages"):
        left(archive)
