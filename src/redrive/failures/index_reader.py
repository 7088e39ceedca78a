"""Answers from the index: by SQL over the columns that are kept, and not message by message."""

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import duckdb

from redrive.failures.cause import Cause
from redrive.failures.columns import COLUMNS, Column, SqlType, row_of
from redrive.failures.database import HIDDEN, Database, quoted, refused, rows_given
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter
from redrive.failures.groups import MOST_GROUPS, MOST_KEYS, Group, Groups, Key
from redrive.failures.index import MOST_OF_A_BODY, FormerLook, Index
from redrive.failures.index_changes import NONE, Changes
from redrive.failures.index_writer import (
    CAUSE_FRAME,
    CAUSE_MESSAGE,
    IS_JSON,
    IS_TEXT,
    IS_WHOLE,
    MADE,
    OF_PROPERTIES,
    PLACE,
    RAW_KEY,
)
from redrive.failures.kept_messages import IndexUnusable, KeptMessages
from redrive.failures.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    NEEDED,
    WIRE,
    message_of,
    text_of,
)

_AT_A_TIME = 1000
_FAILED_AT = "failed_at"
_MAY_BE_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_OF_THE_FILE = (duckdb.IOException, duckdb.InternalException, duckdb.FatalException)
"""What DuckDB says of a file that is gone or damaged, and never of an expression."""
_BODIES = (MADE - OF_PROPERTIES) | {"body", "body_text", BODY}
"""Columns that can't be told without the body. Of those that are made, a framework may say it
there."""
_PLACE = Column(PLACE, SqlType.NUMBER, False, "its place in the queue", lambda _: None)
_MADE_TABLE = "made_of_messages"
_STORED, _STORED_WITHOUT_BODY = (
    ", ".join(body if name == BODY else name for name in (*NEEDED, DEAD_LETTER_QUEUE))
    for body in (f"coalesce({BODY}, ''::BLOB)", "''::BLOB")
)
"""What a message is made of."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN = (
    PLACE,
    RAW_KEY,
    CAUSE_MESSAGE,
    CAUSE_FRAME,
    IS_WHOLE,
    *(column.name for column in WIRE),
)
_IN_SQL = frozenset({SqlType.TEXT, SqlType.NUMBER, SqlType.TIME})
"""Columns that are the same value in Python and in the file; a JSON that DuckDB does not take is
not."""

_MOST_CACHED = 4
_cache: dict[object, Groups] = {}
_lock = threading.Lock()


class IndexedMessages(KeptMessages):
    """The messages of a look that the index has.

    Args:
        index: the index.
        look: the look.
        limit: how many of the oldest; None for all.
        filter_: those that it means.
        changes: what went and what came since the look.
    """

    def __init__(
        self,
        index: Index,
        look: FormerLook,
        limit: int | None = None,
        filter_: Filter | None = None,
        *,
        changes: Changes = NONE,
    ) -> None:
        self._index = index
        self._look = look
        self._limit = limit
        self._filter = filter_ or Filter()
        self._changes = changes
        self._files = (index.folder / look.file, *changes.files)
        self._each: Iterator[FailedMessage] | None = None

    def matching(self, filter_: Filter) -> "IndexedMessages":
        """Those that a filter means."""
        return IndexedMessages(self._index, self._look, self._limit, filter_, changes=self._changes)

    def count(self) -> int:
        """How many they are."""
        if self._filter.is_all:
            count = self._look.looked_at + self._changes.difference
            return count if self._limit is None else min(self._limit, count)
        return _number(self._asked("count(*)")[0][0])

    def first(self, limit: int, *, newest: bool) -> list[FailedMessage]:
        """The oldest ones, or the newest, at most `limit`."""
        order = f"failed_at DESC NULLS LAST, {PLACE} DESC" if newest else PLACE
        # Their places alone: to sort the bodies with them costs more than to look for these.
        places = [
            _number(place) for (place,) in self._asked(PLACE, f"ORDER BY {order} LIMIT {limit}")
        ]
        by_place = dict(zip(sorted(places), self._messages(places), strict=True))
        return [by_place[place] for place in places]

    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Those of this failure id or message id, or whose failure id begins so; all of them where
        it may be something else."""
        if not id_.isascii() or _MAY_BE_DIGEST.fullmatch(id_):
            return self
        found = self._asked(PLACE, "AND (starts_with(failure_id, ?) OR message_id = ?)", [id_, id_])
        return self._messages([_number(place) for (place,) in found])

    def groups(self, by: Column) -> Groups:
        """Groups of them by a column. Without an expression, whose `now()` may be another each
        time, they are found once for each state of the index: who asks again does not wait."""
        if self._filter.where is not None:
            return self._groups(by)
        state = (self._files, self._changes, self._limit, self._filter.groups, by.name)
        with _lock:
            known = _cache.get(state)
        if known is None:
            known = self._groups(by)
            with _lock:
                while len(_cache) >= _MOST_CACHED:
                    _cache.pop(next(iter(_cache)))
                _cache[state] = known
        return known

    def _groups(self, by: Column) -> Groups:
        groups = Groups(by)
        if by.type not in _IN_SQL:
            groups.add(self)
            return groups
        keys = _keys_of(by)
        seconds = f"epoch_us({_FAILED_AT}) / 1000000.0::DOUBLE"
        found: dict[Key, Group] = {}
        each = (
            f"{keys}, arg_min(failure_id, {PLACE}), count(*), min(epoch_us({_FAILED_AT})), "
            f"max(epoch_us({_FAILED_AT})), "
            f"list({seconds}) FILTER ({_FAILED_AT} IS NOT NULL), min({PLACE}) AS begins"
        )
        keys_of = f"{keys}, routing_key, {RAW_KEY}, count(*), min({PLACE}) AS begins"
        in_order = "GROUP BY ALL ORDER BY begins"
        # Asked together: what has to be made for the answers is made once.
        first_of_each, keys_of_each, total = self._all_asked(
            ((each, f"{in_order} LIMIT {MOST_GROUPS}"), (keys_of, in_order), ("count(*)", "")),
            by=by,
        )
        for *key, first_id, count, first, last, times, _ in first_of_each:
            group = Group(_key_of(by, key), str(first_id), _number(count))
            group.first, group.last = _moment(first), _moment(last)
            group.times.extend(times if isinstance(times, list) else ())
            found[group.key] = group
        for *key, name, raw, count, _ in keys_of_each:
            of_key = found.get(_key_of(by, key))
            if of_key is not None and len(of_key.routing_keys) < MOST_KEYS:
                routing_key = text_of(raw) if isinstance(raw, bytes) else str(name)
                of_key.routing_keys[routing_key] = _number(count)
        groups.take(found.values(), _number(total[0][0]))
        return groups

    def counts(self) -> dict[str, int]:
        """How many of them each group has, by its id."""
        found = self._asked("group_id, count(*)", "GROUP BY group_id")
        return {str(group): _number(count) for group, count in found}

    def database(self, columns: Sequence[Column]) -> Database:
        """A database whose table `failed` has these columns of them, and which does not reach the
        file."""
        self._need_bodies(columns)
        if _made(columns):
            messages = self._messages(None, _needs_bodies(columns))
            with contextlib.ExitStack() as held:
                database = held.enter_context(Database(self._filter.now, columns))
                database.insert(row_of(message.delivery, columns) for message in messages)
                held.pop_all()
            return database
        read = ", ".join(map(_read, columns))
        with self._reading():
            return Database(
                self._filter.now,
                columns,
                self._files,
                f"SELECT {read} FROM {self._rows()} ORDER BY {PLACE}",
                hidden=self._changes.hidden,
            )

    def __next__(self) -> FailedMessage:
        if self._each is None:
            self._each = self._messages(
                None if self._filter.is_all else [_number(place) for (place,) in self._asked(PLACE)]
            )
        return next(self._each)

    def _messages(
        self, places: Sequence[int] | None, needs_bodies: bool = True
    ) -> Iterator[FailedMessage]:
        """The messages at these places, in the order of the queue; all of them by default."""
        chosen = "" if places is None else f"WHERE {PLACE} IN (SELECT unnest(?::BIGINT[]))"
        with self._reading(), self._opened(COLUMNS[:1]) as database:
            found = database.asked(
                f"SELECT {_STORED}, {IS_WHOLE} FROM {self._rows()} {chosen} ORDER BY {PLACE}",
                [] if places is None else [list(places)],
            )
            while some := found.fetchmany(_AT_A_TIME):
                for *raw, is_whole in some:
                    if needs_bodies and not is_whole:
                        raise self._too_large()
                    yield message_of(raw)

    def _asked(
        self, what: str, how: str = "", values: Sequence[object] = ()
    ) -> list[tuple[object, ...]]:
        """What is asked of those that the filter means.

        Raises:
            ConfigurationError: the filter can't be said of one of them.
        """
        (found,) = self._all_asked([(what, how)], values)
        return found

    def _all_asked(
        self,
        questions: Sequence[tuple[str, str]],
        values: Sequence[object] = (),
        *,
        by: Column | None = None,
    ) -> list[list[tuple[object, ...]]]:
        """The same for several questions.

        Args:
            questions: what is selected by each, and what follows the filter.
            values: of the parameters in them.
            by: the column that they speak of, where that may be one that is made.

        Raises:
            ConfigurationError: the filter can't be said of one of them.
        """
        where = self._filter.where if isinstance(self._filter.where, str) else None
        with self._reading(), self._opened(COLUMNS) as database:
            spoken_of = set(() if where is None else database.columns_of(where))
            spoken_of |= {by} if by is not None and by.name in MADE else set()
            self._need_bodies(spoken_of)
            rows = self._rows_with(database, _made(spoken_of))
            if self._filter.groups:
                # As with a look: of what is in no group, nothing is asked.
                named = " OR ".join("starts_with(group_id, ?)" for _ in self._filter.groups)
                rows = f"WITH named AS MATERIALIZED ({rows} WHERE {named}) SELECT * FROM named"
            answers = []
            for what, how in questions:
                order = "" if "ORDER BY" in how or "(" in what else f" ORDER BY {PLACE}"
                sql = (
                    f"SELECT {what} FROM ({rows}) AS failed WHERE (\n{where or 'true'}\n) "
                    f"{how}{order}"
                )
                try:
                    found = database.asked(sql, [*self._filter.groups, *values]).fetchall()
                except duckdb.Error as error:
                    if where is None or isinstance(error, _OF_THE_FILE):
                        raise
                    raise refused(error, where) from error
                answers.append(found)
            return answers

    def _rows_with(self, database: Database, made: Sequence[Column]) -> str:
        """The query of all columns that are kept, and of these that are not."""
        kept = (_read(column) for column in COLUMNS if column.name not in MADE)
        read = ", ".join((*kept, *(column.name for column in made), *_HIDDEN))
        rows = f"SELECT {read} FROM {self._rows()}"
        if not made:
            return rows
        self._make(database, made)
        return f"{rows} JOIN {_MADE_TABLE} USING ({PLACE})"

    def _make(self, database: Database, made: Sequence[Column]) -> None:
        """Makes a table of columns that are not kept."""
        types = ", ".join(f"{column.name} {column.type}" for column in (_PLACE, *made))
        database.asked(f"CREATE TABLE {_MADE_TABLE} ({types})")
        insert = f"INSERT INTO {_MADE_TABLE} {rows_given((_PLACE, *made))}"
        with self._opened(COLUMNS[:1]) as reading:
            # In no order: to sort the bodies takes the memory of all of them.
            stored = _STORED if _needs_bodies(made) else _STORED_WITHOUT_BODY
            found = reading.asked(f"SELECT {PLACE}, {stored} FROM {self._rows()}")
            while some := found.fetchmany(_AT_A_TIME):
                messages = [message_of(raw, is_sent=False) for _, *raw in some]
                values = [[column.read(message) for message in messages] for column in made]
                database.asked(insert, [[place for place, *_ in some], *values])

    def _rows(self) -> str:
        """What is read, as SQL: the oldest ones where there is a limit."""
        files = ", ".join(map(quoted, self._files))
        rows = f"read_parquet([{files}])"
        if self._changes.hidden:
            rows = f"(FROM {rows} WHERE {PLACE} NOT IN (FROM {HIDDEN}))"
        return rows if self._limit is None else f"(FROM {rows} WHERE {PLACE} < {self._limit})"

    def _opened(self, columns: Sequence[Column]) -> Database:
        """A database that reaches the files."""
        return Database(self._filter.now, columns, self._files, hidden=self._changes.hidden)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise IndexUnusable(
                f"what was kept of {self._look.queue!r} takes more memory than there is for it: "
                "the queue is looked at anew"
            ) from error
        except (duckdb.Error, ValueError) as error:
            raise self._index.unusable(self._look.queue, "is damaged", self._look.file) from error

    def _need_bodies(self, columns: Collection[Column]) -> None:
        if self._look.without_body and _needs_bodies(columns):
            raise self._too_large()

    def _too_large(self) -> IndexUnusable:
        return IndexUnusable(
            f"what was kept of {self._look.queue!r} has no bodies over {MOST_OF_A_BODY // 1024} "
            "KiB: the queue is looked at anew"
        )


def _needs_bodies(columns: Collection[Column]) -> bool:
    return any(column.name in _BODIES for column in columns)


def _made(columns: Collection[Column]) -> list[Column]:
    """Those of the columns that are not kept."""
    return [column for column in COLUMNS if column.name in MADE and column in columns]


def _read(column: Column) -> str:
    """A column of the filter language, as it is made of the file's."""
    name = column.name
    if name == "body":
        return f"CASE WHEN {IS_JSON} = 1 THEN decode({BODY})::JSON END AS body"
    if name == "body_text":
        return f"CASE WHEN {IS_TEXT} = 1 THEN decode({BODY}) END AS body_text"
    return f"{name}::{column.type} AS {name}"


def _keys_of(by: Column) -> str:
    """What is grouped by, as SQL."""
    if by.name == "group_id":
        return f"coalesce(error_type, ''), {CAUSE_MESSAGE}, {CAUSE_FRAME}"
    # Times as numbers: DuckDB gives them in a zone of its own.
    return f"epoch_us({by.name})" if by.type is SqlType.TIME else by.name


def _key_of(by: Column, values: Sequence[object]) -> Key:
    if by.name == "group_id":
        return Cause(*map(str, values))
    (value,) = values
    if by.type is SqlType.TIME:
        return _moment(value)
    return value if isinstance(value, str | int) else None


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _moment(microseconds: object) -> datetime | None:
    """A time of so many microseconds since 1970."""
    if microseconds is None:
        return None
    return _EPOCH + timedelta(microseconds=_number(microseconds))
