"""What a storage promises on stores whose listing lags."""

import time
from pathlib import Path
from typing import Any, cast

import pytest

from redrive.errors import ConfigurationError
from redrive.spark_reprocess import storage as storage_module
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.storage import Storage, StoredFiles


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; the clock goes on by these alone."""
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(made))
    return made


def lagging(monkeypatch: pytest.MonkeyPatch, listings: int) -> None:
    """Hide what was written from the first listings."""
    names, seen = Storage.names, 0

    def late(self: Storage, folder: str, *, folders: bool = False) -> list[str]:
        nonlocal seen
        seen += 1
        return [] if seen <= listings else names(self, folder, folders=folders)

    monkeypatch.setattr(storage_module.Storage, "names", late)


def written(folder: Path) -> ArchiveLedger:
    """A ledger with two files of one attempt."""
    ledger = ArchiveLedger(Storage.at(str(folder)), "run", "job")
    for number in range(2):
        ledger.write("part-00000", 7, number, [Entry(str(number), Event.SENT)])
    return ledger


def test_what_was_written_is_waited_for_until_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    ledger = written(tmp_path)
    lagging(monkeypatch, 5)
    ledger.wait_until_listed({"part-00000-7": 2})
    assert len(pauses) == 5
    assert ledger.outcomes() == 2


def test_what_is_never_listed_is_told_of_in_two_lines(tmp_path: Path, pauses: list[float]) -> None:
    ledger = written(tmp_path)
    with pytest.raises(ConfigurationError, match="does not list all files") as error:
        ledger.wait_until_listed({"part-00000-7": 3})
    assert len(str(error.value).splitlines()) == 2
    assert 60 <= sum(pauses) < 65


@pytest.mark.parametrize(
    ("files", "at_once", "tasks"),
    [(1, 2, 1), (3, 2, 3), (50, 2, 8), (50, 3, 9), (500, 16, 16), (5000, 16, 64), (5000, 7, 56)],
)
def test_all_that_run_at_once_have_as_many_tasks_to_read_files(
    files: int, at_once: int, tasks: int
) -> None:
    asked: list[int] = []

    class Session:
        def range(self, *numbers: int) -> None:
            asked.extend(numbers)

    paths = [str(number) for number in range(files)]
    StoredFiles(Storage("/srv"), paths, cast("Any", None)).numbers(cast("Any", Session()), at_once)
    assert asked == [0, files, 1, tasks]


def test_files_of_attempts_that_did_not_succeed_are_not_read(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    for name in ("part-0-1-0.parquet", "part-0-2-0.parquet", "_hidden", ".unfinished"):
        storage.write(f"decisions/x/{name}", b"")
    assert storage.files_below("decisions") == ["x/part-0-1-0.parquet", "x/part-0-2-0.parquet"]
    storage.write("decisions/x/_SUCCESS", b"part-0-2-0.parquet")
    assert storage.files_below("decisions/x") == ["part-0-2-0.parquet"]
    assert storage.files_below("nothing") == []
