"""Fill the index: record the messages of a look as they pass, and write a file of them once they
are back in their queue.

A look hides its messages from all consumers, so it must not wait for the index. It therefore
records only the message as it came, and what the look has read of it anyway. Columns that are
seldom needed are not stored, but computed from the message on demand (`MADE`).
"""

import contextlib
import json
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self, cast

import duckdb

from redrive.amqp.properties import Properties
from redrive.errors import RedriveError
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.columns import COLUMNS, SqlType, Value
from redrive.failures.message.failed_message import (
    FailedMessage,
    cause_known_of,
    property_bytes_of,
    told_of,
)
from redrive.failures.message.readable_values import checked_json
from redrive.failures.store.file_sql import quoted, rows_of_parquet
from redrive.failures.store.index import MOST_OF_A_BODY, Index, StoredLook
from redrive.failures.store.known_messages import DIGEST, KnownMessages, recognized_by
from redrive.failures.store.removals import mark_of
from redrive.failures.store.stored_message import BODY, EXCHANGE, PROPERTIES, ROUTING_KEY, bytes_of
from redrive.failures.store.stored_message import message_of as stored_message_of
from redrive.pubsub.body import TooLarge, Unreadable, utf8_of

_AT_A_TIME = 5000
_BYTES_AT_A_TIME = 8 * 1024 * 1024
"""The maximum size of messages that are in memory together."""
_MEMORY = "64MB"
_ROW_GROUPS = ("16MB", "4MB", "1MB")
"""How much of a file is written and read at once: the largest that memory allows. DuckDB needs
several times as much, and more for data that compresses badly."""
_LENGTHS = struct.Struct(">7I")
_NOTED_TO_KEPT = 4
"""The maximum size of recorded messages, as a multiple of the index's size limit: what is kept is
compressed."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PROBLEMS = (duckdb.Error, OSError, ValueError, MemoryError, ArithmeticError, RedriveError)
"""Errors that may keep the index from being filled, such as a full disk or a message that DuckDB
can't store. They do not affect the look's own answer."""

PLACE, MARK, HAS_OWN_ID, CLAIMS, TOLD, RAW_KEY = (
    "place",
    "mark",
    "has_own_id",
    "claims",
    "told",
    "raw_routing_key",
)
PLAIN = "plain_body"
"""The body as its handler reads it, if that differs from what was received."""
CAUSE_MESSAGE, CAUSE_FRAME, IS_TEXT, IS_JSON, IS_WHOLE = (
    "cause_message",
    "cause_frame",
    "is_text",
    "is_json",
    "is_whole",
)
_GROUP_ID = "group_id"
_OF_THE_BODY = frozenset({"body", "body_text", BODY})
"""Columns that SQL computes from the body."""
OF_PROPERTIES = frozenset(
    {"published_at", "app_id", "type", "content_type", "correlation_id", "headers"}
)
"""Columns that are computed without the body."""
MADE = OF_PROPERTIES | {"way_back", "exchange", "traceback"}
"""Columns that are computed from the message on demand: computing all of them costs as much as
storing the others, and few questions need one."""
_NOTED = tuple(
    column
    for column in COLUMNS
    if column.name not in MADE and column.name not in _OF_THE_BODY and column.name != _GROUP_ID
)
"""Columns that are read during the look, which has read the message anyway."""

_TEXT, _NUMBER, _BYTES = SqlType.TEXT, SqlType.NUMBER, SqlType.BYTES
_WRITTEN: tuple[tuple[str, SqlType], ...] = (
    (EXCHANGE, _BYTES),
    (ROUTING_KEY, _BYTES),
    (PROPERTIES, _BYTES),
    (BODY, _BYTES),
    (RAW_KEY, _BYTES),
    (TOLD, _TEXT),
    (CLAIMS, _TEXT),
    (HAS_OWN_ID, _NUMBER),
    *((column.name, column.type) for column in _NOTED),
    (_GROUP_ID, _TEXT),
    (CAUSE_MESSAGE, _TEXT),
    (CAUSE_FRAME, _TEXT),
    (PLAIN, _BYTES),
    (IS_TEXT, _NUMBER),
    (IS_JSON, _NUMBER),
    (IS_WHOLE, _NUMBER),
    (MARK, _NUMBER),
    (DIGEST, _BYTES),
    (PLACE, _NUMBER),
)
"""The columns of the file, in order."""
_WIRE = 4
"""How many of them are needed to rebuild a message."""


class IndexWriter:
    """A writer of one look's messages to the index; a context manager that leaves only finished
    files.

    It does not raise if the index can't be filled: `problem` says why.
    """

    def __init__(
        self, index: Index, places: Sequence[int] | None = None, former: StoredLook | None = None
    ) -> None:
        self._index = index
        self._places = array("q", places or ())
        self._are_places_given = places is not None
        self._known: KnownMessages | None = None
        self.on_progress: Callable[[int], object] = lambda _: None
        """Called, while columns are computed, with the number of messages done."""
        self._held = contextlib.ExitStack()
        self._queue = ""
        self._place: str | None = None
        self._latest: FailedMessage | None = None
        self._count = self._bytes = 0
        self.problem = ""
        """Why nothing is kept; empty if nothing has failed."""
        with self._noting():
            self._folder = self._held.enter_context(index.filling())
            self._file = self._held.enter_context((self._folder / "noted").open("x+b"))
            if former is not None:
                with contextlib.suppress(OSError):  # another process has just replaced it
                    reading = self._held.enter_context(_database(self._folder))
                    self._known = KnownMessages(index.folder / former.file, self._folder, reading)

    def note(self, message: FailedMessage) -> None:
        """Record a message of the look.

        It is written with the next call, so that its cause is included if the caller has computed
        it.
        """
        if self.problem:
            return
        try:
            place, self._count = self._count, self._count + 1
            if self._known is not None and self._known.recognizes(message, place):
                return
            if not self._are_places_given:
                self._places.append(place)
            former, self._latest = self._latest, message
            if former is not None:
                self._note_down(former)
        except _PROBLEMS as error:
            self._give_up(error)

    def _note_down(self, message: FailedMessage) -> None:
        delivery, key, body = message.delivery, message.routing_key, message.body
        cause = cause_known_of(message)
        is_whole = self._index.keeps_bodies and _is_small(body, delivery.properties)
        if not is_whole:
            cause = cause_of(message)  # the framework may report it in the body
        values = json.dumps(
            [
                is_whole,
                mark_of(message.own_failure_id, delivery.routing_key, body),
                not key.isascii(),
                [
                    None if is_whole else told_of(message),
                    json.dumps(message.claims),
                    int(message.own_failure_id is not None),
                    *(_plain(column.read(message)) for column in _NOTED),
                ],
                cause,
            ]
        ).encode()
        parts = (
            values,
            bytes_of(delivery.exchange),
            bytes_of(delivery.routing_key),
            property_bytes_of(message),
            body if is_whole else b"",
            b"" if key.isascii() else bytes_of(key),
            recognized_by(message),
        )
        self._bytes += self._file.write(b"".join((_LENGTHS.pack(*map(len, parts)), *parts)))
        self._queue, self._place = delivery.queue, message.dead_letter_queue
        if self._bytes > _NOTED_TO_KEPT * self._index.most_bytes:
            raise ValueError(f"it exceeds the limit of {self._index.most_bytes:,} bytes")

    def keep(self, look: StoredLook) -> None:
        """Replace what is known about the queue with this look."""
        if self.problem:
            return
        with self._noting():
            data = self._written_down()
            if self._count != look.looked_at:
                raise ValueError("the look was not followed to its end")
            self._index.keep(look, data)

    def add(self, data: Path) -> None:
        """Write the recorded messages to a file beside that of the look."""
        if self.problem:
            return
        with self._noting():
            written = self._written_down()
            written.chmod(0o600)
            written.replace(data)

    def _written_down(self) -> Path:
        if self._latest is not None:
            self._note_down(self._latest)
            self._latest = None
        data = self._folder / "kept.parquet"
        self._write(data)
        return data

    def close(self) -> None:
        """Delete what was recorded."""
        with self._noting():
            self._held.close()

    def _write(self, data: Path) -> None:
        """Write each batch to a small file, and merge these into one, as a snapshot does, so that
        memory stays bounded."""
        parts: list[Path] = []
        with _database(self._folder) as database:
            for batch in self._batches():
                parts.append(self._folder / f"{len(parts):08}.parquet")
                rows, values = _rows_given(batch)
                database.execute(
                    f"COPY ({rows}) TO {quoted(parts[-1])} (FORMAT parquet, COMPRESSION lz4)",
                    values,
                )
            if not parts:
                parts.append(self._folder / "empty.parquet")
                nothing = f"SELECT {', '.join(_nothing())} LIMIT 0"
                database.execute(f"COPY ({nothing}) TO {quoted(parts[0])} (FORMAT parquet)")
        if len(parts) == 1 and self._known is None:
            parts[0].replace(data)
        else:
            merge(parts, data, self._folder, self._known)

    def _batches(self) -> Iterator[list[tuple[object, ...]]]:
        """Yield the rows to write, in batches."""
        rows: list[tuple[object, ...]] = []
        size = done = 0
        for noted, length in self._noted():
            *known, mark, digest = noted
            rows.append((*known[:-1], *self._derived(known), mark, digest, self._places[done]))
            size += length
            done += 1
            if len(rows) >= _AT_A_TIME or size >= _BYTES_AT_A_TIME:
                yield rows
                rows, size = [], 0
                self.on_progress(done)
        if rows:
            yield rows
            self.on_progress(done)

    def _derived(self, noted: Sequence[object]) -> tuple[object, ...]:
        """Return the columns that are computed after the look: the cause, if it is not known yet,
        and the body's type."""
        properties, body, known = cast("bytes", noted[_WIRE - 2]), noted[_WIRE - 1], noted[-1]
        cause = (
            Cause._make(known)
            if isinstance(known, tuple)
            # The queue in which a message of a dead-letter queue failed is read from the message
            # again.
            else cause_of(
                stored_message_of((self._queue, *noted[:_WIRE], self._place), is_sent=False)
            )
        )
        parts = cause.group_id, cause.message, cause.frame
        if not isinstance(body, bytes):
            return *parts, None, 0, 0, 0
        text = _text_of(body, Properties.parse(properties))
        plain = None if text is None or text == body else text
        is_json = text is not None and checked_json(text.decode()) is not None
        return *parts, plain, int(text is not None), int(is_json), 1

    def _noted(self) -> Iterator[tuple[tuple[object, ...], int]]:
        """Yield what was recorded of each message, with its size in bytes."""
        self._file.seek(0)
        while head := self._file.read(_LENGTHS.size):
            lengths = _LENGTHS.unpack(head)
            values, exchange, key, properties, body, raw_key, digest = map(self._file.read, lengths)
            is_whole, mark, has_raw_key, columns, cause = json.loads(values)
            noted = (
                exchange,
                key,
                properties,
                body if is_whole else None,
                raw_key if has_raw_key else None,
                *columns,
                None if cause is None else tuple(cause),
                mark,
                digest,
            )
            yield noted, sum(lengths)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """On an error in the block, give up on the index, but not on the look."""
        try:
            yield
        except _PROBLEMS as error:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self.problem = self.problem or reason_of(error)
        with contextlib.suppress(OSError):  # the next writer deletes what is left
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_small(body: bytes, properties: Properties) -> bool:
    """Return whether a body, also when decoded as its handler reads it, is small enough to keep."""
    if len(body) > MOST_OF_A_BODY:
        return False
    with contextlib.suppress(TooLarge):
        _text_of(body, properties)
        return True
    return False


def _text_of(body: bytes, properties: Properties) -> bytes | None:
    """Return a body as its handler reads it; None if it is not text."""
    try:
        plain = utf8_of(body, properties, MOST_OF_A_BODY)
        plain.decode()
    except TooLarge:
        raise
    except (Unreadable, UnicodeDecodeError):
        return None
    return plain


def merge(
    parts: Sequence[Path], data: Path, folder: Path, known: KnownMessages | None = None
) -> None:
    """Merge files into one, and those messages of an earlier look that were recognized, in bounded
    memory however large their messages are."""
    some = f"SELECT * FROM {rows_of_parquet(parts)}"
    if known is not None:
        some += (
            f" UNION ALL SELECT kept.* REPLACE (now AS place) FROM {rows_of_parquet([known.file])} "
            "AS kept JOIN recognized ON kept.place = before"
        )
    try:
        for size in _ROW_GROUPS:
            with _database(folder) as database, contextlib.suppress(duckdb.OutOfMemoryException):
                if known is not None:
                    database.execute("CREATE TABLE recognized (before BIGINT, now BIGINT)")
                    for places in known.in_chunks():
                        database.execute(
                            "INSERT INTO recognized SELECT unnest(?::BIGINT[]), "
                            "unnest(?::BIGINT[])",
                            places,
                        )
                database.execute(
                    f"COPY ({some}) TO {quoted(data)} "
                    f"(FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE_BYTES '{size}')"
                )
                return
        raise MemoryError("the messages are too large for the available memory")
    except BaseException:
        data.unlink(missing_ok=True)
        raise


def _database(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a database for writing files."""
    database = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": _MEMORY,
            "temp_directory": str(folder / "spilled"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET preserve_insertion_order = false")
    return database


def _plain(value: Value) -> object:
    """Return a column's value as it is recorded: times as microseconds since 1970."""
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def _rows_given(rows: Sequence[tuple[object, ...]]) -> tuple[str, list[object]]:
    """Return a query that yields these rows, and its parameters.

    A value that is the same in all rows is passed once: that applies to half of the columns, and
    passing values to DuckDB is most of the cost.
    """
    given: list[str] = []
    parameters: list[object] = []
    for (name, type_), values in zip(_WRITTEN, zip(*rows, strict=True), strict=True):
        kind = _NUMBER if type_ is SqlType.TIME else type_
        is_one = name != PLACE and values.count(values[0]) == len(values)
        given.append(f"{f'?::{kind}' if is_one else f'unnest(?::{kind}[])'} AS {name}")
        parameters.append(values[0] if is_one else list(values))
    written = ", ".join(_written(name, type_) for name, type_ in _WRITTEN)
    return f"SELECT {written} FROM (SELECT {', '.join(given)})", parameters


def _written(name: str, type_: SqlType) -> str:
    """Return the SQL for a column to write. Text that is JSON for Python but not for DuckDB does
    not count as JSON, as in the database of a look."""
    if type_ is SqlType.TIME:
        return f"make_timestamp({name})::{type_} AS {name}"
    if name == IS_JSON:
        text = f"decode(coalesce({PLAIN}, {BODY}))"
        return f"CASE WHEN {name} = 1 THEN json_valid({text})::BIGINT ELSE 0 END AS {name}"
    return name


def _nothing() -> Iterator[str]:
    for name, type_ in _WRITTEN:
        yield f"NULL::{type_} AS {name}"


def reason_of(error: BaseException) -> str:
    """Return in a few words why something can't be kept, without any content of a message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, duckdb.IOException):
        return " ".join(str(error).partition("\n")[0].split())[:200]
    if isinstance(error, duckdb.Error | UnicodeError | MemoryError):
        return f"the database can't store a message ({type(error).__name__})"
    return str(error).partition("\n")[0] or type(error).__name__
