"""Files of any name in DuckDB's SQL."""

from pathlib import Path

import duckdb
import pytest

from redrive.failures.store.file_sql import paths_allowed, quoted, rows_of_parquet

NAMES = ("a[1]", "b*", "c?", "d\\e", "e{x,y}", "f[", "g]", "it's", "[[]", "a[!b]", "**")


def write(file: Path, number: int) -> None:
    duckdb.execute(f"COPY (SELECT {number} AS n) TO {quoted(file)} (FORMAT parquet)")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_and_no_other_whatever_its_name(tmp_path: Path, name: str) -> None:
    for number, folder in enumerate((name, "a1", "bb", "cc", "de", "ex", "f", "[")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "f.parquet", number)
    file = tmp_path / name / "f.parquet"
    with duckdb.connect() as database:
        database.execute(f"SET allowed_paths = {paths_allowed([file])}")
        database.execute("SET enable_external_access = false")
        assert database.execute(f"FROM {rows_of_parquet([file])}").fetchall() == [(0,)]


def test_several_files_are_read_in_their_order(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}?.parquet" for number in (2, 1)]
    for number, file in enumerate(files):
        write(file, number)
    assert duckdb.execute(f"FROM {rows_of_parquet(files)}").fetchall() == [(0,), (1,)]
