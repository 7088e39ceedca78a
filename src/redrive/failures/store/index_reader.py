"""Answer questions from the index by SQL over its columns, not message by message."""

import contextlib
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

import duckdb

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause
from redrive.failures.message.columns import BODIES, COLUMNS, Column, SqlType
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage, with_told
from redrive.failures.message.groups import MOST_GROUPS, MOST_KEYS, Group, Groups, Key
from redrive.failures.message.route import Route, WayBack, claims_from
from redrive.failures.store.database import (
    HIDDEN,
    MADE_TABLE,
    Database,
    refused,
    rows_given,
)
from redrive.failures.store.file_sql import rows_of_parquet
from redrive.failures.store.filter import Filter
from redrive.failures.store.index import MOST_OF_A_BODY, Index, StoredLook
from redrive.failures.store.index_changes import FIRST_PLACE, NONE, Changes
from redrive.failures.store.index_writer import (
    CAUSE_FRAME,
    CAUSE_MESSAGE,
    CLAIMS,
    HAS_OWN_ID,
    IS_JSON,
    IS_TEXT,
    IS_WHOLE,
    MADE,
    MARK,
    OF_PROPERTIES,
    PLACE,
    PLAIN,
    RAW_KEY,
    TOLD,
)
from redrive.failures.store.kept_messages import (
    BodyNotKept,
    CauseHistory,
    IndexUnusable,
    KeptMessages,
    Neighbours,
    PlanCounts,
    ValueCounts,
)
from redrive.failures.store.known_messages import DIGEST
from redrive.failures.store.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    EXCHANGE,
    NEEDED,
    ROUTING_KEY,
    WIRE,
    message_of,
    text_of,
)

_MOST_IDLE = 2
"""The maximum number of idle databases for all indexes, because each may keep some memory; others
are closed."""
_idle: list[tuple[Path, Database]] = []
_lock = threading.Lock()


@contextlib.contextmanager
def lent(
    folder: Path, now: datetime | None = None, hidden: Sequence[int] = ()
) -> Iterator[Database]:
    """Lend a database that can read the files in a folder and nothing else, for exclusive use in
    the block.

    If the block raises, the database is closed, and the next question opens another one.
    """
    database = _taken(folder)
    try:
        if now is not None:
            database.set_clock(now)
        database.hide(hidden)
        yield database
    except GeneratorExit:
        # A caller may stop reading messages early.
        _give_back(folder, database)
        raise
    except BaseException:
        database.close()
        raise
    _give_back(folder, database)


def _taken(folder: Path) -> Database:
    with _lock:
        for number, (known, database) in enumerate(_idle):
            if known == folder:
                del _idle[number]
                return database
    return Database(columns=COLUMNS, folder=folder)


def _give_back(folder: Path, database: Database) -> None:
    database.drop_made()
    with _lock:
        _idle.append((folder, database))
        gone = _idle.pop(0)[1] if len(_idle) > _MOST_IDLE else None
    if gone is not None:
        gone.close()


T = TypeVar("T")


class AnswerCache(Generic[T]):
    """A thread-safe cache of the last few answers, each for one state of what was asked."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[Hashable, T] = {}

    def of(self, state: Hashable, find: Callable[[], T]) -> T:
        """Return the answer for a state, from the cache if possible."""
        with self._lock:
            if state in self._known:
                found = self._known[state] = self._known.pop(state)
                return found
        found = find()
        with self._lock:
            self._known[state] = found
            while len(self._known) > self._most:
                self._known.pop(next(iter(self._known)))
        return found


_AT_A_TIME = 1000
_PLACES_AT_A_TIME = 20_000
"""How many messages are sorted together; sorting all at once would need the memory of all."""
_TIMES_AT_A_TIME = 100_000
_FAILED_AT = "failed_at"
_MAY_BE_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_OF_THE_FILE = (duckdb.IOException, duckdb.InternalException, duckdb.FatalException)
"""DuckDB's errors for a missing or damaged file, which an expression never causes."""
_TOLD_IN_BODIES = MADE - OF_PROPERTIES
"""Columns that a framework may report in the body. If the body was not kept, these values were."""
_PLACE = Column(PLACE, SqlType.NUMBER, False, "its place in the queue", lambda _: None)
_STORED, _STORED_WITHOUT_BODY = (
    ", ".join(body if name == BODY else name for name in (*NEEDED, DEAD_LETTER_QUEUE, TOLD))
    for body in (f"coalesce({BODY}, ''::BLOB)", "''::BLOB")
)
"""The stored columns from which a message is rebuilt."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN = (
    PLACE,
    MARK,
    DIGEST,
    HAS_OWN_ID,
    CLAIMS,
    RAW_KEY,
    CAUSE_MESSAGE,
    CAUSE_FRAME,
    IS_WHOLE,
    *(column.name for column in WIRE),
)
_MOST_THAT_STAY = 1000
"""The maximum number of different claims among messages that stay."""
_IN_SQL = frozenset({SqlType.TEXT, SqlType.NUMBER, SqlType.TIME})
"""Types of columns whose values are the same in Python and in the file. JSON is not, because DuckDB
may refuse what Python accepts."""

_GROUP_ID = "group_id"
_groups_known: AnswerCache[Groups] = AnswerCache(4)
_counts_known: AnswerCache[dict[str, int]] = AnswerCache(64)
_places_known: AnswerCache[list[int]] = AnswerCache(64)
_trips_known: AnswerCache[dict[str, CauseHistory]] = AnswerCache(8)


class IndexedMessages(KeptMessages):
    """The messages of a look in the index."""

    def __init__(
        self,
        index: Index,
        look: StoredLook,
        limit: int | None = None,
        filter_: Filter | None = None,
        *,
        changes: Changes = NONE,
        gives_bodiless: bool = False,
    ) -> None:
        self._index = index
        self._look = look
        self._limit = limit
        self._filter = filter_ or Filter()
        self._changes = changes
        self._gives_bodiless = gives_bodiless
        self._files = (index.folder / look.file, *changes.files)
        self._each: Iterator[FailedMessage] | None = None

    def matching(self, filter_: Filter) -> "IndexedMessages":
        """Return the messages that match a filter."""
        return IndexedMessages(
            self._index,
            self._look,
            self._limit,
            filter_,
            changes=self._changes,
            gives_bodiless=self._gives_bodiless,
        )

    def count(self) -> int:
        """Return how many messages there are."""
        if self._filter.is_all:
            count = self._look.looked_at + self._changes.difference
            return count if self._limit is None else min(self._limit, count)
        return _number(self._asked("count(*)")[0][0])

    def first(self, limit: int, *, newest: bool, skip: int = 0) -> list[FailedMessage]:
        """Return the oldest or newest messages, at most `limit` after those skipped."""
        order = f"failed_at DESC NULLS LAST, {PLACE} DESC" if newest else PLACE
        # Sort places only: sorting the bodies, too, costs more than looking them up afterwards.
        how = f"ORDER BY {order} LIMIT {limit} OFFSET {skip}"
        places = [_number(place) for (place,) in self._asked(PLACE, how)]
        by_place = dict(zip(sorted(places), self._messages(places), strict=True))
        return [by_place[place] for place in places]

    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Return the messages with this failure id or message id, or with a failure id that begins
        with it; all messages if it may be something else."""
        if not id_.isascii():
            return self
        places = self._places_of(id_)
        if not places:
            if _MAY_BE_DIGEST.fullmatch(id_):
                return self
            begins = "AND (starts_with(failure_id, ?) OR message_id = ?)"
            places = [_number(place) for (place,) in self._asked(PLACE, begins, [id_, id_])]
        return self._messages(places)

    def _places_of(self, failure_id: str) -> list[int]:
        def find() -> list[int]:
            found = self._asked(PLACE, "AND failure_id = ?", [failure_id])
            return [_number(place) for (place,) in found]

        if self._filter.where is not None:
            return find()
        return _places_known.of((self._state, failure_id), find)

    def around(self, failure_id: str, group_id: str) -> Neighbours:
        """Return the ids of the messages before and after one, among those of a cause."""
        here = next(iter(self._places_of(failure_id)), None)
        if here is None:
            return Neighbours()
        ((former, later, number, among),) = self._asked(
            f"max({PLACE}) FILTER ({PLACE} < {here}), min({PLACE}) FILTER ({PLACE} > {here}), "
            f"count(*) FILTER ({PLACE} <= {here}), count(*)",
            "AND group_id = ?",
            [group_id],
        )
        places = [str(place) for place in (former, here, later) if place is not None]
        beside = f"AND {PLACE} IN ({', '.join(places)})"
        ids = {place: str(id_) for place, id_ in self._asked(f"{PLACE}, failure_id", beside)}
        return Neighbours(ids.get(former, ""), ids.get(later, ""), _number(number), _number(among))

    def groups(self, by: Column) -> Groups:
        """Return the messages grouped by a column.

        Without an expression, whose `now()` may differ each time, the answer is cached for each
        state of the index, so that repeated calls are fast.
        """
        if self._filter.where is not None:
            return self._groups(by)
        if self._filter.groups and by.name == _GROUP_ID:
            every = self.matching(Filter()).groups(by)
            if not every.other:
                return every.of(self._means_group)
        if self._changes.files and self._limit is None:
            return self._with_added(by)
        return _groups_known.of((self._state, by.name), lambda: self._groups(by)).copy()

    def _with_added(self, by: Column) -> Groups:
        """Return the cached groups of what a look saw, combined with those of what came since."""
        base, added = self._parts()
        groups = base.groups(by)
        if groups.other:
            return self._groups(by)
        groups.add_groups(added._groups(by))
        return groups

    def _parts(self) -> tuple["IndexedMessages", "IndexedMessages"]:
        """Return two parts: what a look saw, whose answers are cached for long, and what came
        since."""
        seen = tuple(place for place in self._changes.hidden if place < FIRST_PLACE)
        base = self._reading_of(self._files[:1], self._changes._replace(files=(), hidden=seen))
        return base, self._reading_of(self._files[1:], self._changes)

    def _reading_of(self, files: tuple[Path, ...], changes: Changes) -> "IndexedMessages":
        part = IndexedMessages(self._index, self._look, None, self._filter, changes=changes)
        part._files = files
        return part

    def _means_group(self, key: Key) -> bool:
        return isinstance(key, Cause) and key.group_id.startswith(tuple(self._filter.groups))

    @property
    def _state(self) -> object:
        """What an answer without an expression depends on."""
        return self._files, self._changes.hidden, self._limit, tuple(self._filter.groups)

    def _groups(self, by: Column) -> Groups:
        groups = Groups(by)
        if by.type not in _IN_SQL:
            groups.add(self)
            return groups
        keys = _keys_of(by)
        found: dict[Key, Group] = {}
        each = (
            f"{keys}, arg_min(failure_id, {PLACE}), count(*), min(epoch_us({_FAILED_AT})), "
            f"max(epoch_us({_FAILED_AT})), min({PLACE}) AS begins"
        )
        times = f"{keys}, list(epoch_us({_FAILED_AT}) / 1000000.0::DOUBLE)"
        keys_of = f"{keys}, routing_key, {RAW_KEY}, count(*), min({PLACE}) AS begins"
        in_order = "GROUP BY ALL ORDER BY begins"
        # Ask all questions together, so that the columns they need are computed once.
        answers = self._all_asked(
            (
                (each, f"{in_order} LIMIT {MOST_GROUPS}"),
                (keys_of, in_order),
                ("count(*)", ""),
                *((times, f"AND {part} GROUP BY ALL") for part in self._in_parts()),
            ),
            mentioned=(by,) if by.name in MADE else (),
        )
        first_of_each, keys_of_each, total = (next(answers) for _ in range(3))
        for *key, first_id, count, first, last, _ in first_of_each:
            group = Group(_key_of(by, key), str(first_id), _number(count))
            group.first, group.last = _moment(first), _moment(last)
            found[group.key] = group
        for times_of_each in answers:
            for *key, moments in times_of_each:
                of_key = found.get(_key_of(by, key))
                if of_key is not None and isinstance(moments, list):
                    of_key.times.extend(moments)
        for *key, name, raw, count, _ in keys_of_each:
            of_key = found.get(_key_of(by, key))
            if of_key is not None and len(of_key.routing_keys) < MOST_KEYS:
                routing_key = text_of(raw) if isinstance(raw, bytes) else str(name)
                of_key.routing_keys[routing_key] = _number(count)
        groups.take(found.values(), _number(total[0][0]))
        groups.put_times_in_order()
        return groups

    def _in_parts(self) -> Iterator[str]:
        """Yield conditions that together hold for each message with a time, and each for few of
        them: Python's numbers take four times the memory of DuckDB's."""
        edges = [*range(_TIMES_AT_A_TIME, self._look.looked_at, _TIMES_AT_A_TIME), None]
        begin = 0
        for end in edges if self._filter.where is None else [None]:
            until = "" if end is None else f" AND {PLACE} < {end}"
            yield f"{_FAILED_AT} IS NOT NULL AND {PLACE} >= {begin}{until}"
            begin = end or 0

    def counts(self) -> dict[str, int]:
        """Return how many messages each group has, by its id."""
        if self._filter.where is not None:
            return self._counts()
        if not self._changes.files or self._limit is not None:
            return dict(_counts_known.of(self._state, self._counts))
        base, added = self._parts()
        return dict(Counter(base.counts()) + Counter(added._counts()))

    def _counts(self) -> dict[str, int]:
        found = self._asked("group_id, count(*)", "GROUP BY group_id")
        return {str(group): _number(count) for group, count in found}

    def counted_by(self, expression: str, most: int) -> ValueCounts:
        """Return the most frequent values of a text expression, and how many distinct values there
        are."""
        with self._reading(), self._lent() as database:
            columns = database.columns_of(expression)
        how = f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}"
        (found,) = self._all_asked(
            [(f"({expression}), count(*), count(*) OVER ()", how)],
            mentioned=columns,
            given=expression,
        )
        values = [(None if text is None else str(text), _number(count)) for text, count, _ in found]
        return ValueCounts(values, _number(found[0][2]) if found else 0)

    def trips(self) -> dict[str, CauseHistory]:
        """Return the hosts and requeue counts of each cause's messages, by group id."""
        if self._filter.where is not None:
            return self._trips()
        return _trips_known.of(self._state, self._trips)

    def _trips(self) -> dict[str, CauseHistory]:
        found = self._asked(
            "group_id, list(DISTINCT host) FILTER (host IS NOT NULL), "
            "count(*) FILTER (redrive_count > 0), max(redrive_count)",
            "GROUP BY group_id",
        )
        return {
            str(group): CauseHistory(
                sorted(map(str, hosts)) if isinstance(hosts, list) else [],
                _number(requeued),
                _number(most),
            )
            for group, hosts, requeued, most in found
        }

    def plan_counts(self, direction: Direction, most_redrives: int | None, few: int) -> PlanCounts:
        """Return what a requeue of the messages would do."""
        may = "true" if most_redrives is None else f"redrive_count < {most_redrives}"
        routes, goes = self._routes(direction, f"({may})")
        retried = f"epoch_us({_FAILED_AT}) - epoch_us(first_failed_at)"
        in_order = f"ORDER BY min({PLACE})"
        each = ", ".join(
            (
                f"count(*) FILTER ({goes})",
                f"count(*) FILTER (NOT ({may}))",
                f"max(retries) FILTER ({goes})",
                f"max({retried}) FILTER ({goes} AND redrive_count = 0)",
            )
        )
        by_cause = f"coalesce(error_type, ''), {CAUSE_MESSAGE}, {CAUSE_FRAME}, count(*)"
        has_own = f"{HAS_OWN_ID} = 1"
        numbers, causes, arrivals, first, shared = self._all_asked(
            (
                (each, ""),
                (by_cause, f"AND {goes} GROUP BY 1, 2, 3 {in_order}"),
                (f"{EXCHANGE}, {ROUTING_KEY}, count(*)", f"AND {goes} GROUP BY 1, 2 {in_order}"),
                (PLACE, f"AND {goes} ORDER BY {PLACE} LIMIT {few}"),
                (f"{MARK}, count(*)", f"AND {goes} AND {has_own} GROUP BY 1 HAVING count(*) > 1"),
            )
        )
        (count, too_often, retries, longest) = numbers[0]
        return PlanCounts(
            _number(count),
            _number(too_often),
            Counter({Cause(*map(str, cause)): _number(number) for *cause, number in causes}),
            routes,
            {WayBack(*map(_name_of, arrival)) for *arrival, _ in arrivals},
            list(self._messages([_number(place) for (place,) in first])),
            self._sharing([_number(mark) for mark, _ in shared], goes),
            _number(retries or 0),
            timedelta(seconds=round(max(0, _number(longest or 0)) / 1_000_000)),
        )

    def _routes(self, direction: Direction, may: str) -> tuple[Counter[Route], str]:
        """Return how many of the messages that may be sent have which route, and the SQL condition
        for those that are sent."""
        claims = "count(*)" if direction.to is not None else f"{CLAIMS}, count(*)"
        grouped = "" if direction.to is not None else f"GROUP BY 1 ORDER BY min({PLACE})"
        routes: Counter[Route] = Counter()
        stay: list[str] = []
        for *said, count in self._asked(claims, f"AND {may} {grouped}"):
            route = direction.of(claims_from(said[0]) if said else None)
            routes[route] += _number(count)
            if not direction.goes(route):
                stay.append(str(said[0]))
        if len(stay) > _MOST_THAT_STAY:
            raise IndexUnusable("too many different routes are in doubt")
        literals = ", ".join("'" + one.replace("'", "''") + "'" for one in stay)
        return +routes, f"({may} AND {CLAIMS} NOT IN ({literals}))" if stay else may

    def _sharing(self, marks: Sequence[int], goes: str) -> Iterator[FailedMessage]:
        """Yield the messages with these marks that would be sent."""
        for start in range(0, len(marks), _PLACES_AT_A_TIME):
            some = list(marks[start : start + _PLACES_AT_A_TIME])
            having = f"AND {goes} AND {MARK} IN (SELECT unnest(?::BIGINT[]))"
            places = self._asked(PLACE, having, [some])
            yield from self._messages([_number(place) for (place,) in places])

    def database(self, columns: Sequence[Column]) -> Database:
        """Return a database whose table `failed` has these columns of the messages, and which can't
        read the file."""
        self._need_bodies(columns)
        if _made(columns):
            messages = self._messages(None, needs_bodies=False)
            rows = ({column.name: column.read(one) for column in columns} for one in messages)
            with contextlib.ExitStack() as held:
                database = held.enter_context(Database(self._filter.now, columns))
                database.insert(rows)
                held.pop_all()
            return database
        read = ", ".join(map(_read, columns))
        with self._reading():
            return Database(
                self._filter.now,
                columns,
                f"SELECT {read} FROM {self._rows()} ORDER BY {PLACE}",
                hidden=self._changes.hidden,
            )

    def __next__(self) -> FailedMessage:
        if self._each is None:
            self._each = self._messages(None)
        return next(self._each)

    def _messages(
        self, places: Sequence[int] | None, *, needs_bodies: bool = True
    ) -> Iterator[FailedMessage]:
        """Yield the messages at these places, by default all, in queue order."""
        ordered = self._places() if places is None else array("q", sorted(places))
        # Where bodies are hidden, none are kept and none are needed.
        needs_bodies = needs_bodies and self._index.keeps_bodies and not self._gives_bodiless
        for start in range(0, len(ordered), _PLACES_AT_A_TIME):
            yield from self._messages_at(ordered[start : start + _PLACES_AT_A_TIME], needs_bodies)

    def _messages_at(self, places: "array[int]", needs_bodies: bool) -> Iterator[FailedMessage]:
        # With these bounds, DuckDB skips most of a file.
        sql = (
            f"SELECT {_STORED}, {IS_WHOLE} FROM {self._rows()} "
            f"WHERE {PLACE} BETWEEN {places[0]} AND {places[-1]} "
            f"AND {PLACE} IN (SELECT unnest(?::BIGINT[])) ORDER BY {PLACE}"
        )
        with self._reading(), self._lent() as database:
            try:
                found = database.asked(sql, [places.tolist()])
            except duckdb.OutOfMemoryException:
                if len(places) == 1:
                    raise
                half = len(places) // 2
                found = None
            while found is not None and (some := found.fetchmany(_AT_A_TIME)):
                for *raw, is_whole in some:
                    if needs_bodies and not is_whole:
                        raise self._too_large()
                    yield _message_of(raw)
        if found is None:
            # The messages are large: read half of them at a time.
            yield from self._messages_at(places[:half], needs_bodies)
            yield from self._messages_at(places[half:], needs_bodies)

    def _places(self) -> "array[int]":
        """Return the places of the messages that match the filter, in order."""
        ((places,),) = self._asked(f"list({PLACE} ORDER BY {PLACE})")
        return array("q", places if isinstance(places, list) else ())

    def _asked(
        self, what: str, how: str = "", values: Sequence[object] = ()
    ) -> list[tuple[object, ...]]:
        """Answer one question about the messages that match the filter."""
        (found,) = self._all_asked([(what, how)], values)
        return found

    def _all_asked(
        self,
        questions: Sequence[tuple[str, str]],
        values: Sequence[object] = (),
        *,
        mentioned: Collection[Column] = (),
        given: str | None = None,
    ) -> Iterator[list[tuple[object, ...]]]:
        """Yield the answers to several questions about the messages that match the filter."""
        where = self._filter.where if isinstance(self._filter.where, str) else None
        with self._reading(), self._lent() as database:
            columns = {*mentioned, *(() if where is None else database.columns_of(where))}
            self._need_bodies(columns)
            rows = self._rows_with(database, _made(columns))
            if self._filter.groups:
                named = " OR ".join("starts_with(group_id, ?)" for _ in self._filter.groups)
                rows = f"{rows} WHERE {named}"
                if where is not None:
                    # As in a look, evaluate the expression only for messages of the named groups.
                    rows = f"WITH named AS MATERIALIZED ({rows}) SELECT * FROM named"
            for what, how in questions:
                order = "" if "ORDER BY" in how or "(" in what else f" ORDER BY {PLACE}"
                sql = (
                    f"SELECT {what} FROM ({rows}) AS failed WHERE (\n{where or 'true'}\n) "
                    f"{how}{order}"
                )
                try:
                    found = database.asked(sql, [*self._filter.groups, *values]).fetchall()
                except duckdb.Error as error:
                    told = given if where is None else where
                    if told is None or isinstance(error, _OF_THE_FILE):
                        raise
                    raise refused(error, told) from error
                yield found
                del found

    def _rows_with(self, database: Database, made: Sequence[Column]) -> str:
        """Return a query for all stored columns and for these columns that are not stored."""
        kept = (_read(column) for column in COLUMNS if column.name not in MADE)
        read = ", ".join((*kept, *(column.name for column in made), *_HIDDEN))
        rows = f"SELECT {read} FROM {self._rows()}"
        if not made:
            return rows
        self._make(database, made)
        return f"{rows} JOIN {MADE_TABLE} USING ({PLACE})"

    def _make(self, database: Database, made: Sequence[Column]) -> None:
        """Make a table of columns that are not stored."""
        types = ", ".join(f"{column.name} {column.type}" for column in (_PLACE, *made))
        database.asked(f"CREATE TABLE {MADE_TABLE} ({types})")
        insert = f"INSERT INTO {MADE_TABLE} {rows_given((_PLACE, *made))}"
        with self._lent() as reading:
            # Read without order: sorting the bodies would need the memory of all of them.
            are_told_in_bodies = any(column.name in _TOLD_IN_BODIES for column in made)
            stored = _STORED if are_told_in_bodies else _STORED_WITHOUT_BODY
            found = reading.asked(f"SELECT {PLACE}, {stored} FROM {self._rows()}")
            while some := found.fetchmany(_AT_A_TIME):
                messages = [_message_of(raw, is_sent=False) for _, *raw in some]
                values = [[column.read(message) for message in messages] for column in made]
                database.asked(insert, [[place for place, *_ in some], *values])

    def _rows(self) -> str:
        """Return the rows to read as SQL: only the oldest ones if there is a limit."""
        rows = rows_of_parquet(self._files)
        if self._changes.hidden:
            rows = f"(FROM {rows} WHERE {PLACE} NOT IN (FROM {HIDDEN}))"
        return rows if self._limit is None else f"(FROM {rows} WHERE {PLACE} < {self._limit})"

    def _lent(self) -> contextlib.AbstractContextManager[Database]:
        """Lend a database that can read the files."""
        now = None if self._filter.where is None else self._filter.now
        return lent(self._index.folder, now, self._changes.hidden)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise IndexUnusable(
                f"the index of {self._look.queue!r} needs more memory than it may use: "
                "the queue is read again"
            ) from error
        except (duckdb.Error, ValueError) as error:
            raise self._index.unusable(self._look.queue, "is damaged", self._look.file) from error

    def _need_bodies(self, columns: Collection[Column]) -> None:
        if not any(column.name in BODIES for column in columns):
            return
        if not self._index.keeps_bodies:
            raise ConfigurationError(
                "the question needs bodies, and none were kept",
                "Use other columns, or ask where bodies are not hidden.",
            )
        if self._lack_a_body():
            raise self._too_large()

    def _lack_a_body(self) -> bool:
        """Return whether the body of any message was too large to keep."""
        sql = f"SELECT 1 FROM {self._rows()} WHERE {IS_WHOLE} = 0 LIMIT 1"
        with self._reading(), self._lent() as database:
            return database.asked(sql).fetchone() is not None

    def _too_large(self) -> BodyNotKept:
        return BodyNotKept(
            f"the index of {self._look.queue!r} has no bodies over {MOST_OF_A_BODY // 1024} "
            "KiB, and one is needed: the queue is read again"
        )


def _message_of(raw: Sequence[object], *, is_sent: bool = True) -> FailedMessage:
    """Return the stored message."""
    *stored, told = raw
    message = message_of(stored, is_sent=is_sent)
    return message if told is None else with_told(message, str(told))


def _made(columns: Collection[Column]) -> list[Column]:
    """Return those of the columns that are not stored."""
    return [column for column in COLUMNS if column.name in MADE and column in columns]


def _read(column: Column) -> str:
    """Return the SQL for a column of the filter language, from the columns of the file."""
    name = column.name
    if name == "body":
        return f"CASE WHEN {IS_JSON} = 1 THEN decode(coalesce({PLAIN}, {BODY}))::JSON END AS body"
    if name == "body_text":
        return f"CASE WHEN {IS_TEXT} = 1 THEN decode(coalesce({PLAIN}, {BODY})) END AS body_text"
    return f"{name}::{column.type} AS {name}"


def _keys_of(by: Column) -> str:
    """Return the SQL of the values to group by."""
    if by.name == "group_id":
        return f"coalesce(error_type, ''), {CAUSE_MESSAGE}, {CAUSE_FRAME}"
    # Use numbers for times, because DuckDB returns them in a zone of its own.
    return f"epoch_us({by.name})" if by.type is SqlType.TIME else by.name


def _key_of(by: Column, values: Sequence[object]) -> Key:
    if by.name == "group_id":
        return Cause(*map(str, values))
    (value,) = values
    if by.type is SqlType.TIME:
        return _moment(value)
    return value if isinstance(value, str | int) else None


def _name_of(raw: object) -> str:
    assert isinstance(raw, bytes)
    return text_of(raw)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _moment(microseconds: object) -> datetime | None:
    """Return the time at a number of microseconds since 1970."""
    if microseconds is None:
        return None
    return _EPOCH + timedelta(microseconds=_number(microseconds))
