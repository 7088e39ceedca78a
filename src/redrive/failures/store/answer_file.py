"""Write the answer to a query to a Parquet file, for use in other tools."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from redrive.errors import ConfigurationError
from redrive.failures.store.look import QueryResult
from redrive.redaction import printable_json

_AT_A_TIME = 5000
_MEMORY = "256MB"
_TEXT = "VARCHAR"
_LARGEST = 2**63
"""Integers of this magnitude or more do not fit a BIGINT column."""


def parquet_of(answer: QueryResult) -> bytes:
    """Return the answer as the bytes of a Parquet file.

    Columns of integers, floats or booleans keep their type. Lists and objects become JSON, and
    everything else becomes text, with times in ISO 8601.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "a Parquet file needs DuckDB, which is not installed", "pip install 'redrive[cli]'."
        ) from error
    names = [_quoted(name) for name in _told_apart(answer.columns)]
    types = [_type_of(row.get(name) for row in answer.rows) for name in answer.columns]
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        file = Path(folder, "answer.parquet")
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": _MEMORY,
            "temp_directory": folder,
        }
        database = duckdb.connect(":memory:", config=config)
        try:
            columns = ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
            database.execute(f"CREATE TABLE answer ({columns})")
            given = ", ".join(f"unnest(?::{type_}[])" for type_ in types)
            for start in range(0, len(answer.rows), _AT_A_TIME):
                some = answer.rows[start : start + _AT_A_TIME]
                database.execute(
                    f"INSERT INTO answer SELECT {given}",
                    [
                        [_value_of(row.get(name), type_) for row in some]
                        for name, type_ in zip(answer.columns, types, strict=True)
                    ],
                )
            path = str(file).replace("'", "''")
            database.execute(f"COPY answer TO '{path}' (FORMAT parquet)")
            return file.read_bytes()
        except duckdb.Error as error:
            raise ConfigurationError(
                f"the answer can't be written as a Parquet file: {type(error).__name__}",
                "Use JSON or CSV.",
            ) from error
        finally:
            database.close()


def _type_of(values: Iterable[object]) -> str:
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return (
            "BIGINT"
            if all(abs(value) < _LARGEST for value in known if isinstance(value, int))
            else "DOUBLE"
        )
    return "DOUBLE" if kinds and kinds <= {int, float} else _TEXT


def _value_of(value: object, type_: str) -> object:
    return (
        value
        if value is None or type_ != _TEXT or isinstance(value, str)
        else printable_json(value)
    )


def _told_apart(names: Iterable[str]) -> list[str]:
    """Return the column names made unique, ignoring case."""
    found: dict[str, None] = {}
    lower: set[str] = set()
    for name in names:
        new, number = name or "column", 2
        while new.lower() in lower:
            new, number = f"{name}_{number}", number + 1
        lower.add(new.lower())
        found[new] = None
    return list(found)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
