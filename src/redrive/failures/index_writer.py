"""Fills the index: notes the messages of a look as they pass, and makes columns of them once they
are back in their queue.

A look holds its messages back from all consumers, so it must not wait for the index: to note one
costs a fiftieth of what its columns cost.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import duckdb

from redrive.errors import RedriveError
from redrive.failures.cause import cause_of
from redrive.failures.columns import COLUMNS, Column, SqlType, Value
from redrive.failures.database import quoted
from redrive.failures.failed_message import FailedMessage
from redrive.failures.index import MOST_OF_A_BODY, FormerLook, Index
from redrive.failures.stored_message import BODY, WIRE, bytes_of, message_of

_AT_A_TIME = 1000
_BYTES_AT_A_TIME = 8 * 1024 * 1024
"""Of messages whose columns are in memory together."""
_MEMORY = "64MB"
_ROW_GROUP = "16MB"
_LENGTHS = struct.Struct(">IIIQ")
_PROBLEMS = (duckdb.Error, OSError, ValueError, MemoryError, ArithmeticError, RedriveError)
"""What may keep the index from being filled: no room, a message that DuckDB can't take. The look's
own answer does not suffer from it."""

PLACE, RAW_KEY, CAUSE_MESSAGE, CAUSE_FRAME, IS_TEXT, IS_JSON, IS_WHOLE = (
    "place",
    "raw_routing_key",
    "cause_message",
    "cause_frame",
    "is_text",
    "is_json",
    "is_whole",
)
_DERIVED = frozenset({"body", "body_text"})
"""Columns that are made of the body when they are asked for, and not kept beside it."""
KEPT = tuple(column for column in COLUMNS if column.name not in _DERIVED)


def _is_kept(message: FailedMessage) -> bool:
    return len(message.body) <= MOST_OF_A_BODY


def _raw_key(message: FailedMessage) -> bytes | None:
    """The routing key where it is not what its column says."""
    key = message.routing_key
    return None if key.isascii() else bytes_of(key)


def _kept_body(message: FailedMessage) -> bytes | None:
    return message.body if _is_kept(message) else None


_TEXT, _NUMBER, _BYTES = SqlType.TEXT, SqlType.NUMBER, SqlType.BYTES
_BY_NAME = {column.name: column for column in COLUMNS}
_WRITTEN = (
    *(column for column in KEPT if column.name != BODY),
    *WIRE,
    Column(BODY, _BYTES, True, "the body where it is short", _kept_body),
    Column(RAW_KEY, _BYTES, True, "the routing key where it is no ASCII", _raw_key),
    Column(CAUSE_MESSAGE, _TEXT, False, "the masked message", lambda m: cause_of(m).message),
    Column(CAUSE_FRAME, _TEXT, False, "the frame", lambda m: cause_of(m).frame),
    Column(
        IS_TEXT,
        _NUMBER,
        False,
        "whether the body is UTF-8",
        lambda m: int(_is_kept(m) and _BY_NAME["body_text"].read(m) is not None),
    ),
    Column(
        IS_JSON,
        _NUMBER,
        False,
        "whether it is JSON",
        lambda m: int(_is_kept(m) and _BY_NAME["body"].read(m) is not None),
    ),
    Column(IS_WHOLE, _NUMBER, False, "whether its body is kept", lambda m: int(_is_kept(m))),
)


class IndexWriter:
    """What one look adds to the index; a context manager, which leaves nothing but what was kept.

    Nothing here raises because the index can't be filled: `problem` says it.

    Args:
        index: where it is kept.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self.on_progress: Callable[[int], object] = lambda _: None
        """Told, while columns are made, of how many messages that is done."""
        self._held = contextlib.ExitStack()
        self._queue = ""
        self._place: str | None = None
        self._count = self._bytes = self._without_body = 0
        self.problem = ""
        """Why nothing is kept; empty as long as something may be."""
        with self._noting():
            self._folder = self._held.enter_context(index.filling())
            self._file = self._held.enter_context((self._folder / "noted").open("x+b"))

    def note(self, message: FailedMessage) -> None:
        """Notes a message of the look."""
        if self.problem:
            return
        delivery = message.delivery
        with self._noting():
            parts = (
                bytes_of(delivery.exchange),
                bytes_of(delivery.routing_key),
                delivery.properties.encode(),
                delivery.body,
            )
            self._bytes += self._file.write(b"".join((_LENGTHS.pack(*map(len, parts)), *parts)))
            self._queue, self._place = delivery.queue, message.dead_letter_queue
            self._count += 1
            if self._bytes > self._index.most_bytes:
                raise ValueError(f"it is more than the {self._index.most_bytes:,} bytes for it")

    def keep(self, look: FormerLook) -> None:
        """Replaces what is known of the queue by this look."""
        if self.problem:
            return
        with self._noting():
            if self._count != look.looked_at:
                raise ValueError("the look was not followed to its end")
            data = self._folder / "kept.parquet"
            self._write(data)
            self._index.keep(replace(look, without_body=self._without_body), data)

    def close(self) -> None:
        """Deletes what was noted."""
        with self._noting():
            self._held.close()

    def _write(self, data: Path) -> None:
        """Writes each batch to a small file, and these to one, as a snapshot does it: so memory
        stays bounded."""
        parts: list[Path] = []
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": _MEMORY,
            "temp_directory": str(self._folder / "spilled"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(":memory:", config=config) as database:
            database.execute("SET TimeZone = 'UTC'")
            database.execute("SET preserve_insertion_order = false")
            for columns in self._batches():
                parts.append(self._folder / f"{len(parts):08}.parquet")
                rows, values = _rows_given(columns)
                database.execute(
                    f"COPY ({rows}) TO {quoted(parts[-1])} (FORMAT parquet, COMPRESSION lz4)",
                    values,
                )
            some = (
                f"SELECT * FROM read_parquet([{', '.join(map(quoted, parts))}])"
                if parts
                else f"SELECT {', '.join(_nothing())} LIMIT 0"
            )
            database.execute(
                f"COPY ({some}) TO {quoted(data)} "
                f"(FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE_BYTES '{_ROW_GROUP}')"
            )

    def _batches(self) -> Iterator[list[list[Value]]]:
        """The values of each column, of some messages at a time."""
        columns: list[list[Value]] = [[] for _ in _KEPT_ALL]
        size = done = 0
        for place, (message, length) in enumerate(self._noted()):
            self._without_body += not _is_kept(message)
            columns[0].append(place)
            for values, column in zip(columns[1:], _WRITTEN, strict=True):
                values.append(column.read(message))
            size += length
            done += 1
            if len(columns[0]) >= _AT_A_TIME or size >= _BYTES_AT_A_TIME:
                yield columns
                columns, size = [[] for _ in _KEPT_ALL], 0
                self.on_progress(done)
        if columns[0]:
            yield columns
            self.on_progress(done)

    def _noted(self) -> Iterator[tuple[FailedMessage, int]]:
        """The messages that were noted, each with its bytes."""
        self._file.seek(0)
        while head := self._file.read(_LENGTHS.size):
            lengths = _LENGTHS.unpack(head)
            parts = map(self._file.read, lengths)
            # The queue that a message of a dead-letter queue failed in is read from it again.
            yield message_of((self._queue, *parts, self._place)), sum(lengths)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Gives up on the index, and not on the look, where something keeps it from being
        filled."""
        try:
            yield
        except _PROBLEMS as error:
            self.problem = self.problem or reason_of(error)
            with contextlib.suppress(OSError):  # what can't be deleted now, the next one will
                self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_KEPT_ALL = (Column(PLACE, _NUMBER, False, "its place in the queue", lambda _: None), *_WRITTEN)


def _rows_given(values: Sequence[list[Value]]) -> tuple[str, list[object]]:
    """The query whose rows these are, and its parameters. What is the same in all rows is given
    once: that is half of the columns, and to hand a value to DuckDB is most of what it costs."""
    given: list[str] = []
    parameters: list[object] = []
    for column, of_column in zip(_KEPT_ALL, values, strict=True):
        kind = SqlType.TEXT if column.type is SqlType.JSON else column.type
        is_one = all(value == of_column[0] for value in of_column) and column.name != PLACE
        given.append(f"{f'?::{kind}' if is_one else f'unnest(?::{kind}[])'} AS {column.name}")
        parameters.append(of_column[0] if is_one else of_column)
    return (
        f"SELECT {', '.join(map(_written, _KEPT_ALL))} FROM (SELECT {', '.join(given)})",
        parameters,
    )


def _written(column: Column) -> str:
    """A column as it is written. What Python takes for JSON and DuckDB does not is none, as in the
    database of a look."""
    name = column.name
    if column.type is SqlType.JSON:
        return f"CASE WHEN json_valid({name}) THEN {name} END AS {name}"
    if name == IS_JSON:
        return f"CASE WHEN {name} = 1 THEN json_valid(decode({BODY}))::BIGINT ELSE 0 END AS {name}"
    return name


def _nothing() -> Iterator[str]:
    for column in _KEPT_ALL:
        kind = SqlType.TEXT if column.type is SqlType.JSON else column.type
        yield f"NULL::{kind} AS {column.name}"


def reason_of(error: BaseException) -> str:
    """Why something can't be kept, in a few words without what a message holds."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, duckdb.IOException):
        return " ".join(str(error).partition("\n")[0].split())[:200]
    if isinstance(error, duckdb.Error | UnicodeError | MemoryError):
        return f"the database can't take a message ({type(error).__name__})"
    return str(error).partition("\n")[0] or type(error).__name__
