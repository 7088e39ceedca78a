"""What holds customers' bodies is readable by its user alone, and passwords are in no repr."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.store.index import Index
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.drain_task import DrainTask
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.row_message import Mode
from redrive.spark_reprocess.send_task import SendTask
from redrive.spark_reprocess.session import _stderr_to
from redrive.spark_reprocess.storage import Storage
from redrive.testing.address import Address

URL = "amqp://me:SECRETPW@host/"


@pytest.fixture
def umask_of_nobody() -> Iterator[None]:
    """A umask that takes no right away."""
    before = os.umask(0)
    yield
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_archive_is_for_its_user_alone(tmp_path: Path, umask_of_nobody: None) -> None:
    folder = tmp_path / "new" / "archive"
    archive = Archive(str(folder))
    run = archive.begin("amqp://guest@host:5672/%2F", {"q": 1})
    archive.storage.write("messages/queue=q/run=r/x.parquet", b"bodies")
    archive.storage.make_folder("transformed")
    archive.write_page(run, "<html>")
    archive.write_report(run, {})
    ArchiveLedger(archive.storage, run.id, "job").write("part", 0, 0, [Entry("one", Event.SENT)])
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {rights(path) for path in made if path.is_dir()} == {0o700}
    assert {rights(path) for path in made if path.is_file()} == {0o600}


def test_a_folder_that_was_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Storage.at(str(tmp_path)).write("a/b", b"")
    assert (rights(tmp_path), rights(tmp_path / "a"), rights(tmp_path / "a" / "b")) == (
        0o755,
        0o700,
        0o600,
    )


def test_a_journal_that_others_could_read_is_closed_to_them(
    tmp_path: Path, umask_of_nobody: None
) -> None:
    path = tmp_path / "journal.sqlite3"
    path.touch()
    path.chmod(0o666)
    with LocalJournal(path):
        assert {rights(found) for found in tmp_path.iterdir()} == {0o600}


def test_no_repr_has_the_password() -> None:
    storage = Storage("/nowhere")
    shown = [
        repr(SendTask(URL, Mode.REQUEUE, "job")),
        repr(DrainTask(URL, storage, "run", 1, 1.0)),
        repr(Address.parse(URL)),
        repr(Address.parse("amqps://me@host/?password=SECRETPW")),
    ]
    assert not [one for one in shown if "SECRETPW" in one]


def test_what_java_says_is_written_through_no_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "spark.log").symlink_to(target)
    with pytest.raises(OSError, match=r"spark\.log"), _stderr_to(str(tmp_path / "spark.log")):
        os.write(2, b"appended")
    assert target.read_text() == "mine"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's own, as somebody has made it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "redrive"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_the_folder_of_the_journal_is_closed_to_others(state: Path) -> None:
    with LocalJournal():
        assert rights(state) == 0o700


def test_neither_journal_nor_index_is_put_where_another_user_can_put_another(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: state.stat().st_uid + 1)
    for opened in (LocalJournal, lambda: Index(BrokerURL.parse(URL))):
        with pytest.raises(ConfigurationError, match="belongs to another user"):
            opened()
    assert list(state.iterdir()) == []


def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "of-somebody"
    target.write_text("theirs")
    target.chmod(0o644)
    link = tmp_path / "journal.sqlite3"
    link.symlink_to(target)
    with pytest.raises(ConfigurationError, match="is a link"):
        LocalJournal(link)
    assert (target.read_text(), rights(target)) == ("theirs", 0o644)
