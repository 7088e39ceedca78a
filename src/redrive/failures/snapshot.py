"""Failed messages in a file: a faithful copy, every byte of body and properties, that can be looked at and sent from as a queue can.

The columns of the filter language stand beside the bytes for whoever reads the file with another tool; redrive reads only the bytes.
"""

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.columns import COLUMNS, Column, Row, SqlType, row_of
from redrive.pubsub.message import FailedMessage
from redrive.topology.headers import Delivery
from redrive.topology.properties import Properties

if TYPE_CHECKING:
    import duckdb

RAW = (
    Column("raw_exchange", SqlType.BYTES, False, "the exchange of the delivery", lambda m: _bytes(m.delivery.exchange)),
    Column("raw_routing_key", SqlType.BYTES, False, "the routing key of the delivery", lambda m: _bytes(m.delivery.routing_key)),
    Column("raw_properties", SqlType.BYTES, False, "property flags and properties as they came", lambda m: m.properties.encode()),
)
"""What a message is made of again, besides queue and body_bytes."""

_WRITTEN = (*COLUMNS, *RAW)
_READ = ("queue", *(column.name for column in RAW), "body_bytes")
_AT_A_TIME = 1000
_MEMORY = "128MB"
_PART = ".part"


class Snapshot:
    """A file of failed messages.

    Args:
        path: the file; its suffix says what kind it is: `.parquet`, `.jsonl` or `.duckdb`.

    Raises:
        ConfigurationError: it has another suffix.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in _KINDS:
            raise ConfigurationError(f"{str(path)!r} is no kind of file that failed messages are kept in", f"Name it {_SUFFIXES}.")
        self.path = path

    @staticmethod
    def is_meant(name: str) -> bool:
        """Whether a name that people gave is that of a file, and not that of a queue."""
        return Path(name).suffix in _KINDS

    def depth(self) -> int:
        """How many messages it holds.

        Raises:
            ConfigurationError: it is not there, or can't be read.
        """
        return sum(1 for _ in self._raw())

    def browse(self, limit: int | None = None) -> Iterator[FailedMessage]:
        """The messages from the first on, at most `limit`.

        Raises:
            ConfigurationError: it is not there, or can't be read.
        """
        for number, raw in enumerate(islice(self._raw(), limit), 1):
            try:
                queue, exchange, key, properties, body = raw
                delivery = Delivery(str(queue), _text(exchange), _text(key), Properties.parse(_checked(properties)), _checked(body))
                delivery.properties.encode()
            except (ValueError, TypeError, IndexError, ArithmeticError) as error:
                raise self._unreadable(f"its message {number} is damaged") from error
            yield FailedMessage(delivery)

    def write(self, messages: Iterable[FailedMessage]) -> int:
        """Makes the file of these messages; returns how many.

        When it returns they are on the disk; if it does not come to its end there is no file.

        Raises:
            ConfigurationError: there is a file already, or it can't be written.
        """
        if self.path.exists():
            raise ConfigurationError(f"there is a file {str(self.path)!r} already", "Give another name: nothing is overwritten.")
        part = self.path.with_name(self.path.name + _PART)
        write, _ = _KINDS[self.path.suffix]
        try:
            part.unlink(missing_ok=True)
            count = write(part, messages)
            _to_disk(part)
            os.replace(part, self.path)
            _to_disk(self.path.parent)
        except OSError as error:
            raise ConfigurationError(f"{str(self.path)!r} can't be written: {error.strerror or error}", "Choose another place.") from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        return count

    def _raw(self) -> Iterator[tuple[object, ...]]:
        if not self.path.is_file():
            raise ConfigurationError(f"there is no file {str(self.path)!r}", "Make one: redrive failed snapshot QUEUE -o FILE.")
        _, read = _KINDS[self.path.suffix]
        try:
            yield from read(self.path)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._unreadable(" ".join(str(error).split())) from error

    def _unreadable(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"{str(self.path)!r} can't be read as failed messages: {why}", "Give a file that `redrive failed` has made."
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: object) -> str:
    return _checked(raw).decode("utf-8", "surrogateescape")


def _checked(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise TypeError(f"{type(raw).__name__} in place of bytes")
    return raw


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- JSON, a line for each message ----------------------------------------------------------------------------------------------------


def _write_lines(path: Path, messages: Iterable[FailedMessage]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for message in messages:
            row = row_of(message.delivery, _WRITTEN)
            json.dump({column.name: _json_of(column, row) for column in _WRITTEN}, file, ensure_ascii=False)
            file.write("\n")
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
                queue, *encoded = (found[name] for name in _READ)
                raw = [base64.b64decode(text, validate=True) for text in encoded]
            except (ValueError, LookupError, TypeError) as error:
                raise ValueError(f"line {number} is none") from error
            yield queue, *raw


# --- DuckDB and Parquet ---------------------------------------------------------------------------------------------------------------


def _write_database(path: Path, messages: Iterable[FailedMessage]) -> int:
    with _database(path) as database:
        return _fill(database, messages)


def _write_parquet(path: Path, messages: Iterable[FailedMessage]) -> int:
    rows = path.with_name(path.name + ".duckdb")
    try:
        with _database(rows) as database:
            count = _fill(database, messages)
            database.execute(f"COPY failed TO {_quoted(path)} (FORMAT parquet, COMPRESSION zstd)")
        return count
    finally:
        rows.unlink(missing_ok=True)


def _fill(database: "duckdb.DuckDBPyConnection", messages: Iterable[FailedMessage]) -> int:
    from redrive.failures.database import rows_given

    database.execute(f"CREATE TABLE failed ({', '.join(f'{column.name} {column.type}' for column in _WRITTEN)})")
    count = 0
    left = iter(messages)
    while some := [row_of(message.delivery, _WRITTEN) for message in islice(left, _AT_A_TIME)]:
        database.execute(f"INSERT INTO failed {rows_given(_WRITTEN)}", [[row[column.name] for row in some] for column in _WRITTEN])
        count += len(some)
    return count


def _read_database(path: Path) -> Iterator[tuple[object, ...]]:
    with _database(path, read_only=True) as database:
        yield from _rows(database, "failed")


def _read_parquet(path: Path) -> Iterator[tuple[object, ...]]:
    with _database(None) as database:
        yield from _rows(database, f"read_parquet({_quoted(path)})")


def _rows(database: "duckdb.DuckDBPyConnection", table: str) -> Iterator[tuple[object, ...]]:
    found = database.execute(f"SELECT {', '.join(_READ)} FROM {table}")
    while some := found.fetchmany(_AT_A_TIME):
        yield from some


@contextlib.contextmanager
def _database(path: Path | None, *, read_only: bool = False) -> "Iterator[duckdb.DuckDBPyConnection]":
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": _MEMORY,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    try:
        with duckdb.connect(":memory:" if path is None else path, read_only=read_only, config=config) as database:
            database.execute("SET TimeZone = 'UTC'")
            yield database
    except duckdb.Error as error:
        raise OSError(" ".join(str(error).split())) from error


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


_Write = Callable[[Path, Iterable[FailedMessage]], int]
_Read = Callable[[Path], Iterator[tuple[object, ...]]]
_KINDS: dict[str, tuple[_Write, _Read]] = {
    ".parquet": (_write_parquet, _read_parquet),
    ".jsonl": (_write_lines, _read_lines),
    ".duckdb": (_write_database, _read_database),
}
_SUFFIXES = ", ".join(f"FILE{suffix}" for suffix in _KINDS)
