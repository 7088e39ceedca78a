"""An answer as a Parquet file, as another tool reads it."""

from pathlib import Path

import duckdb
import pytest

from redrive.failures.store.answer_file import parquet_of
from redrive.failures.store.look import QueryResult


class Read:
    """Reads a file with plain DuckDB."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(
        self, answer: QueryResult
    ) -> tuple[list[tuple[str, str]], list[tuple[object, ...]]]:
        self._path.write_bytes(parquet_of(answer))
        asked = duckdb.execute("SELECT * FROM read_parquet($1)", [str(self._path)])
        columns = [(str(name), str(type_)) for name, type_, *_ in asked.description or ()]
        return columns, list(asked.fetchall())


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(tmp_path / "it's.parquet")


def test_columns_have_the_types_of_their_values(read: Read) -> None:
    rows: list[dict[str, object]] = [
        {"text": "a", "n": 1, "part": 1, "yes": True, "list": [1], "none": None},
        {"text": None, "n": None, "part": 1.5, "yes": False, "list": {"a": "é"}, "none": None},
    ]
    columns, found = read(QueryResult(list(rows[0]), rows))
    assert columns == [
        ("text", "VARCHAR"),
        ("n", "BIGINT"),
        ("part", "DOUBLE"),
        ("yes", "BOOLEAN"),
        ("list", "VARCHAR"),
        ("none", "VARCHAR"),
    ]
    assert found == [
        ("a", 1, 1.0, True, "[1]", None),
        (None, None, 1.5, False, '{"a": "é"}', None),
    ]


def test_an_answer_without_rows_has_its_columns(read: Read) -> None:
    assert read(QueryResult(["a", "b"], [])) == ([("a", "VARCHAR"), ("b", "VARCHAR")], [])


def test_many_rows_and_large_numbers_are_kept(read: Read) -> None:
    rows: list[dict[str, object]] = [{"n": number, "large": 2**70} for number in range(12_000)]
    columns, found = read(QueryResult(["n", "large"], rows))
    assert [name for name, _ in found[:3]] == [0, 1, 2]
    assert len(found) == 12_000
    assert columns[1] == ("large", "DOUBLE")


@pytest.mark.parametrize("name", ['a"b', "a; DROP TABLE answer", "", "'"])
def test_whatever_a_column_is_called_it_is_one(read: Read, name: str) -> None:
    columns, found = read(QueryResult([name], [{name: 1}]))
    assert columns == [(name or "column", "BIGINT")]
    assert found == [(1,)]
