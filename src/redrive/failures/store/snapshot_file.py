"""Failed messages in a file, or in an archive of the Spark job, usable like a failed queue.

A file is a faithful copy of every byte of bodies and properties. It also has the columns of the
filter language, for other tools; redrive reads only the bytes.
"""

import base64
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import COLUMNS, Column, Row, SqlType, row_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.archive_folder import check_format, files_of, is_archive, rows_left
from redrive.failures.store.file_sql import paths_allowed, quoted, rows_of_parquet
from redrive.failures.store.state_folder import NO_ROOM, to_disk
from redrive.failures.store.stored_message import (
    DEAD_LETTER_QUEUE,
    FORMER_NAMES,
    NEEDED,
    PROPERTIES,
    WIRE,
    message_of,
)

if TYPE_CHECKING:
    import duckdb

_WRITTEN = (*COLUMNS, *WIRE)
_TABLE = "failed"
_AT_A_TIME = 1000
_BYTES_AT_A_TIME = 8 * 1024 * 1024
"""Bytes of rows held in memory together. A typical message takes 10 KB of them: its body and its
traceback are in several columns."""
_MEMORY = "512MB"
_ROW_GROUP = "32MB"
"""Size of the rows of a Parquet file that are in memory together, when it is written and when
another tool reads it."""
_LONGEST_REASON = 200


def check_path(path: Path) -> None:
    """Check that a path is of a kind that can hold failed messages."""
    if path.suffix not in _KINDS and not is_archive(path):
        raise ConfigurationError(
            f"{str(path)!r} is not a kind of file that failed messages are kept in",
            f"Name it {_SUFFIXES}.",
        )


def is_kept_at(path: Path) -> bool:
    """Check whether a path may hold failed messages, by its name or by what is there."""
    return path.suffix in _KINDS or is_archive(path)


def write_messages(path: Path, messages: Iterable[FailedMessage]) -> int:
    """Create a file from these messages, readable by this user only; return how many it has.

    The messages are safe on disk on return. If writing fails, no file is left.
    """
    check_path(path)
    if path.exists():
        raise ConfigurationError(
            f"the file {str(path)!r} exists already",
            "Give another name: nothing is overwritten.",
        )
    write, _ = _KINDS[path.suffix]
    try:
        # Nobody else may enter this folder: a file created in it can't be a link, and nobody reads
        # it before its permissions are set.
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            part = Path(folder, f"part{path.suffix}")
            count = write(part, messages)
            part.chmod(_OURS_ALONE)
            to_disk(part)
            os.replace(part, path)
        to_disk(path.parent)
    except (OSError, MemoryError) as error:
        raise ConfigurationError(
            f"{str(path)!r} can't be written: {getattr(error, 'strerror', None) or error}",
            _remedy_for(error),
        ) from error
    return count


def messages_in(path: Path) -> Iterator[FailedMessage]:
    """Iterate over the messages of a file, from the first on."""
    for number, raw in enumerate(_raw(path), 1):
        try:
            message = message_of(raw)
        except ValueError as error:
            raise _unreadable(path, f"its message {number} is damaged") from error
        yield message


def count_in(path: Path) -> int:
    """Count the messages in a file."""
    return sum(1 for _ in _raw(path))


def _raw(path: Path) -> Iterator[tuple[object, ...]]:
    if not (path.is_file() or is_archive(path)):
        raise ConfigurationError(
            f"there is no file {str(path)!r}",
            "Make one: redrive failed snapshot QUEUE -o FILE.",
        )
    read = _read_archive if path.is_dir() else _KINDS[path.suffix][1]
    try:
        yield from read(path)
    except (OSError, MemoryError, ValueError, LookupError, TypeError) as error:
        raise _unreadable(path, " ".join(str(error).split())[:_LONGEST_REASON]) from error


def _unreadable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{str(path)!r} can't be read as failed messages: {why}",
        "Give a file that `redrive failed` has made, or an archive of `redrive spark`.",
    )


_OURS_ALONE = 0o600


def _remedy_for(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "Write a .jsonl file, which takes one message at a time."
    return (
        "Choose another place."
        if error.errno not in NO_ROOM
        else "Make room, or choose another place."
    )


# --- JSON, one line per message -------------------------------------------------------------------


def _write_lines(path: Path, messages: Iterable[FailedMessage]) -> int:
    count = 0
    with path.open("x", encoding="utf-8") as file:
        for message in messages:
            row = row_of(message.delivery, _WRITTEN)
            # Don't use `json.dump`, which takes several times as long.
            file.write(
                json.dumps(
                    {column.name: _json_of(column, row) for column in _WRITTEN}, ensure_ascii=False
                )
                + "\n"
            )
            count += 1
    return count


def _json_of(column: Column, row: Row) -> object:
    value = row[column.name]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return json.loads(value) if column.type is SqlType.JSON and isinstance(value, str) else value


def _read_lines(path: Path) -> Iterator[tuple[object, ...]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
                queue, *encoded = (found[name] for name in _names_in(found, NEEDED))
                raw = [base64.b64decode(text, validate=True) for text in encoded]
                place = found.get(DEAD_LETTER_QUEUE)
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise ValueError(f"line {number} is not a message") from error
            yield queue, *raw, place


# --- DuckDB and Parquet ---------------------------------------------------------------------------


def _write_database(path: Path, messages: Iterable[FailedMessage]) -> int:
    from redrive.failures.store.database import rows_given

    with _database(path) as database:
        database.execute(
            f"CREATE TABLE {_TABLE} "
            f"({', '.join(f'{column.name} {column.type}' for column in _WRITTEN)})"
        )
        return sum(
            _put(database, f"INSERT INTO {_TABLE} {rows_given(_WRITTEN)}", rows)
            for rows in _batches(messages)
        )


def _write_parquet(path: Path, messages: Iterable[FailedMessage]) -> int:
    """Write each batch to a small file, and then merge these into one.

    DuckDB holds a whole row group in memory. It can limit a group by bytes only if it need not keep
    the order of several threads; with a single thread, it keeps the order anyway.
    """
    from redrive.failures.store.database import rows_given

    parts: list[Path] = []
    count = 0
    with _database(None) as database:
        database.execute("SET preserve_insertion_order = false")
        for rows in _batches(messages):
            parts.append(path.with_name(f"{len(parts):08}.parquet"))
            count += _put(
                database,
                f"COPY ({rows_given(_WRITTEN)}) TO {quoted(parts[-1])} (FORMAT parquet, "
                "COMPRESSION lz4)",
                rows,
            )
        if parts:
            some = f"SELECT * FROM {rows_of_parquet(parts)}"
        else:
            nothing = (f"NULL::{column.type} AS {column.name}" for column in _WRITTEN)
            some = f"SELECT {', '.join(nothing)} LIMIT 0"
        database.execute(
            f"COPY ({some}) TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd, "
            f"ROW_GROUP_SIZE_BYTES '{_ROW_GROUP}')"
        )
    return count


def _batches(messages: Iterable[FailedMessage]) -> Iterator[list[Row]]:
    """Group rows into batches, limited by number and by bytes."""
    rows: list[Row] = []
    size = 0
    for message in messages:
        rows.append(row_of(message.delivery, _WRITTEN))
        size += sum(len(value) for value in rows[-1].values() if isinstance(value, str | bytes))
        if len(rows) >= _AT_A_TIME or size >= _BYTES_AT_A_TIME:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _put(database: "duckdb.DuckDBPyConnection", sql: str, rows: list[Row]) -> int:
    database.execute(sql, [[row[column.name] for row in rows] for column in _WRITTEN])
    return len(rows)


def _read_database(path: Path) -> Iterator[tuple[object, ...]]:
    with _database(None, reads=True) as database:
        # Attach it, so that names defined in the file mean nothing here.
        database.execute(f"ATTACH {quoted(path)} AS given (READ_ONLY)")
        _lock(database)
        tables = database.execute(
            "SELECT database_name, schema_name, table_name FROM duckdb_tables()"
        ).fetchall()
        if ("given", "main", _TABLE) not in tables:
            # It may be a view, which could read any file of the user who opens it.
            raise ValueError(f"it has no table {_TABLE!r}")
        yield from _rows(database, f"given.main.{_TABLE}")


def _read_parquet(path: Path) -> Iterator[tuple[object, ...]]:
    with _database(None, reads=True) as database:
        database.execute(f"SET allowed_paths = {paths_allowed([path])}")
        _lock(database)
        yield from _rows(database, rows_of_parquet([path]))


def _read_archive(path: Path) -> Iterator[tuple[object, ...]]:
    check_format(path)
    files = files_of(path)
    with _database(None, reads=True) as database:
        database.execute(f"SET allowed_paths = {paths_allowed(files)}")
        _lock(database)
        yield from rows_left(database, path, files)


def _names_in(names: Container[str], wanted: Iterable[str]) -> list[str]:
    """Return the names of these columns in a file, which may be by an older version."""
    is_former = PROPERTIES not in names
    return [FORMER_NAMES.get(name, name) if is_former else name for name in wanted]


def _lock(database: "duckdb.DuckDBPyConnection") -> None:
    """Deny access to any other file and to the network from here on."""
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def _rows(database: "duckdb.DuckDBPyConnection", table: str) -> Iterator[tuple[object, ...]]:
    columns = {name for name, *_ in database.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()}
    wanted = (*NEEDED, *({DEAD_LETTER_QUEUE} & columns))
    found = database.execute(f"SELECT {', '.join(_names_in(columns, wanted))} FROM {table}")
    while some := found.fetchmany(_AT_A_TIME):
        yield from some


@contextlib.contextmanager
def _database(path: Path | None, *, reads: bool = False) -> "Iterator[duckdb.DuckDBPyConnection]":
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": _MEMORY,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if path is None:
        config["temp_directory"] = ""
    try:
        with duckdb.connect(":memory:" if path is None else path, config=config) as database:
            database.execute("SET TimeZone = 'UTC'")
            yield database
    except duckdb.OutOfMemoryException as error:
        raise MemoryError("its messages are too large for the memory limit") from error
    except duckdb.Error as error:
        if reads and not isinstance(error, duckdb.IOException):
            # DuckDB's message may contain data from the file.
            raise OSError(
                f"it holds no failed messages, or is damaged ({type(error).__name__})"
            ) from error
        raise OSError(_first_sentence(error)) from error


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).partition("\n")[0].split())


_Write = Callable[[Path, Iterable[FailedMessage]], int]
_Read = Callable[[Path], Iterator[tuple[object, ...]]]
_KINDS: dict[str, tuple[_Write, _Read]] = {
    ".parquet": (_write_parquet, _read_parquet),
    ".jsonl": (_write_lines, _read_lines),
    ".duckdb": (_write_database, _read_database),
}
_SUFFIXES = ", ".join(f"FILE{suffix}" for suffix in _KINDS)
