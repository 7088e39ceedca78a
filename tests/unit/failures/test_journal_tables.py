"""The tables of the local journal: a file of a newer version is left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.failures import journal_tables
from redrive.failures.local_journal import LocalJournal


def test_a_file_of_a_newer_version_is_told_of_in_a_line_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    with closing(sqlite3.connect(path)) as sqlite:
        sqlite.execute(f"PRAGMA user_version = {journal_tables.VERSION + 1}")
        sqlite.execute("CREATE TABLE stranger (name TEXT)")
    with pytest.raises(ConfigurationError) as refused:
        LocalJournal(path)
    assert str(refused.value).splitlines() == [
        f"the journal {str(path)!r} was written by a newer version of redrive",
        "Use that version, or name another file with --journal.",
    ]
    with closing(sqlite3.connect(path)) as sqlite:
        names = {name for (name,) in sqlite.execute("SELECT name FROM sqlite_master")}
    assert names == {"stranger"}


def test_an_entry_is_new_only_once() -> None:
    with closing(sqlite3.connect(":memory:")) as sqlite:
        sqlite.executescript(journal_tables.SCHEMA)
        assert [journal_tables.is_new(sqlite, b"id") for _ in range(3)] == [True, False, False]
