"""Databases that are kept open from one question to the next."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from redrive.failures.store.index_reader import lent

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


def test_each_question_has_its_own_time_and_places(tmp_path: Path) -> None:
    for now, hidden in ((EARLY, (1, 2)), (LATE, (3,)), (EARLY, ())):
        with lent(tmp_path, now, hidden) as database:
            asked = "SELECT epoch_us(now()) / 1000000"
            assert database.asked(asked).fetchall() == [(now.timestamp(),)]
            if hidden:
                places = database.asked("FROM hidden_places").fetchall()
                assert places == [(place,) for place in hidden]


def test_nobody_has_the_database_of_somebody_else(tmp_path: Path) -> None:
    with lent(tmp_path) as one, lent(tmp_path) as other:
        assert one is not other
    with lent(tmp_path) as again:
        assert again in (one, other)


def test_one_that_failed_is_not_lent_again(tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error), lent(tmp_path) as failed:
        failed.asked("SELECT error('no')").fetchall()
    with lent(tmp_path) as other:
        assert other is not failed


def test_it_reaches_no_file_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("a\n1\n", encoding="utf-8")
    folder = tmp_path / "index"
    folder.mkdir()
    with pytest.raises(duckdb.PermissionException), lent(folder) as database:
        database.asked(f"FROM read_csv('{outside}')").fetchall()
