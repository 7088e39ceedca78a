"""An in-memory DuckDB for the expressions and queries that users write, without access to files,
the network or settings.

A table `failed` has the columns of `columns.py`. The clock is fixed: `now()` returns a given time,
so that an expression matches the same messages in the plan, while they are sent, and when a job is
resumed.
"""

import contextlib
import json
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import duckdb

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import COLUMNS, Column, Row, SqlType
from redrive.failures.store.file_sql import paths_allowed

if TYPE_CHECKING:
    import pyarrow

HIDDEN = "hidden_places"
"""The table of messages that are in the files of an index but no longer in its queue."""
MADE_TABLE = "made_of_messages"
"""A table, for the duration of a query, of columns that are in no file of an index."""
BATCH = 1000
_BYTES_IN_A_BATCH = 8 * 1024 * 1024
"""The maximum size of a batch of rows that is inserted at once."""
_MEMORY = "128MB"
_CLOCKS = {
    "TIMESTAMPTZ": ("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp"),
    "TIMESTAMP": ("current_localtimestamp", "localtimestamp"),
    "DATE": ("current_date", "today"),
    "TIME": ("current_localtime", "current_time", "localtime"),
}
_LOCKS = (
    "SET TimeZone = 'UTC'",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_MOST_OF_A_CONSTANT = 1_000_000
_GROWING = frozenset(
    {"repeat", "range", "generate_series", "lpad", "rpad", "list_resize", "array_resize"}
)
"""Functions that make a large value of a small constant. DuckDB computes it before it reads a row,
beyond its memory limit, and can't be interrupted while it does. Source: tried on DuckDB 2.0:
list_sum(range(30000000)) takes 1.9 GB, repeat('x', 100000000) a minute."""
_CHECK_SECONDS = 20.0
_NUMBER = re.compile(r"\d+(\.\d*)?([eE]\+?\d{1,3})?")
_PLACE = Column("place_in_batch", SqlType.NUMBER, False, "which row it is", lambda _: None)
_BATCH = "batch_of_rows"
_CUT = "..."
_SHOWN = 30
_KIND = re.compile(r"^[A-Z]\w+(?: [A-Z]\w+)* Error: ")
HOW = (
    "It is DuckDB's SQL over the columns of a failed message; `redrive failed columns` lists them."
)


class AnswerLimits(NamedTuple):
    """Limits on the size of a query's answer.

    Args:
        rows: the maximum number of rows.
        size: the maximum number of bytes, as JSON.
    """

    rows: int
    size: int


class Database:
    """A private database; a context manager."""

    def __init__(
        self,
        now: datetime | None = None,
        columns: Sequence[Column] = COLUMNS,
        rows: str | None = None,
        *,
        folder: Path | None = None,
        hidden: Sequence[int] = (),
    ) -> None:
        self._columns = columns
        self._spill = tempfile.TemporaryDirectory(prefix="redrive-")
        self._duckdb = duckdb.connect(
            ":memory:",
            config={"threads": 1, "memory_limit": _MEMORY, "temp_directory": self._spill.name},
        )
        self._hidden: Sequence[int] = ()
        self.set_clock(now or datetime.now(UTC))
        self._duckdb.execute(
            "CREATE TABLE failed "
            f"({', '.join(f'{column.name} {column.type}' for column in columns)})"
        )
        if rows is not None:
            self.hide(hidden)
            self._duckdb.execute(f"INSERT INTO failed {rows}")
            self._duckdb.execute(f"DROP TABLE IF EXISTS {HIDDEN}")
        elif folder is not None:
            # File contents stay in the operating system's page cache, which can be reclaimed.
            self._duckdb.execute("SET enable_external_file_cache = false")
            self._duckdb.execute(f"SET allowed_directories = {paths_allowed([folder])}")
        for lock in _LOCKS:
            self._duckdb.execute(lock)

    def set_clock(self, now: datetime) -> None:
        """Set the time that `now()` returns."""
        moment = now.astimezone(UTC).isoformat()
        self._duckdb.execute(
            ";".join(
                f"CREATE OR REPLACE MACRO {name}() AS CAST(TIMESTAMPTZ '{moment}' AS {kind})"
                for kind, names in _CLOCKS.items()
                for name in names
            )
        )

    def hide(self, places: Sequence[int]) -> None:
        """Set the places in the table of messages that are gone."""
        if places != self._hidden:
            self._duckdb.execute(
                f"CREATE OR REPLACE TABLE {HIDDEN} AS SELECT unnest(?::BIGINT[]) AS place",
                [list(places)],
            )
            self._hidden = places

    def drop_made(self) -> None:
        """Drop the table of columns made for a query, if there is one."""
        self._duckdb.execute(f"DROP TABLE IF EXISTS {MADE_TABLE}")

    def insert(self, rows: Iterable[Row]) -> int:
        """Insert rows into the table `failed`; return how many."""
        count = 0
        for some in in_batches(rows):
            values = [[row[column.name] for row in some] for column in self._columns]
            self._duckdb.execute(f"INSERT INTO failed {rows_given(self._columns)}", values)
            count += len(some)
        return count

    def columns_of(self, expression: str) -> tuple[Column, ...]:
        """Check an expression; return the columns that it uses."""
        if not expression.strip():
            raise ConfigurationError("the expression is empty", HOW)
        node = self._parsed(f"SELECT\n{expression}\n", expression)
        if not _is_one_expression(node):
            raise ConfigurationError(f"{expression!r} is more than one expression", HOW)
        kinds = {found["class"] for found in _nodes(node)}
        self._check_named(node, expression)
        for kind, what in (("SUBQUERY", "a subquery"), ("PARAMETER", "a parameter")):
            if kind in kinds:
                raise ConfigurationError(
                    f"{expression!r} contains {what}, but is evaluated for each message by itself",
                    "`redrive failed query` looks at several messages together.",
                )
        self._check(f"SELECT 1 FROM failed WHERE (\n{expression}\n)", node, expression)
        return _columns_in(node)

    def columns_of_query(self, sql: str) -> tuple[Column, ...]:
        """Check a query; return the columns that it uses."""
        node = self._parsed(sql, sql)
        self._check_named(node, sql)
        self._check(sql, node, sql)
        return _columns_in(node)

    def meant(self, expression: str, rows: Iterable[Row], columns: Sequence[Column]) -> list[bool]:
        """Return for each row with these columns whether a checked expression is true."""
        found: list[bool] = []
        for some in in_batches(rows):
            values = [
                list(range(len(some))),
                *([row[column.name] for row in some] for column in columns),
            ]
            found += self._meant(expression, rows_given([_PLACE, *columns]), values, len(some))
        return found

    def meant_in(
        self, expression: str, batch: "pyarrow.RecordBatch", columns: Sequence[Column]
    ) -> list[bool]:
        """Return for each row of an Arrow batch with these columns whether a checked expression is
        true."""
        import pyarrow

        places = pyarrow.array(range(batch.num_rows), pyarrow.int64())
        self._duckdb.register(_BATCH, batch.append_column(_PLACE.name, places))
        try:
            rows = f"SELECT {_read([_PLACE, *columns])} FROM {_BATCH}"
            return self._meant(expression, rows, [], batch.num_rows)
        finally:
            self._duckdb.unregister(_BATCH)

    def _meant(
        self, expression: str, rows: str, values: Sequence[object], count: int
    ) -> list[bool]:
        sql = f"SELECT {_PLACE.name} FROM ({rows}) AS failed WHERE (\n{expression}\n)"
        meant = {place for (place,) in self._run(sql, values, expression)}
        return [place in meant for place in range(count)]

    def asked(self, sql: str, values: Sequence[object] = ()) -> duckdb.DuckDBPyConnection:
        """Run one of redrive's own statements."""
        return self._duckdb.execute(sql, list(values))

    def query(
        self, sql: str, limits: AnswerLimits | None = None
    ) -> tuple[list[str], list[dict[str, object]]]:
        """Run a checked query; return its column names, and its rows as JSON values."""
        names = [
            str(name)
            for (name,) in self._run(f"SELECT column_name FROM (DESCRIBE\n{sql}\n)", [], sql)
        ]
        texts: list[str] = []
        with self._refusing(sql):
            rows = self._duckdb.execute(
                f"SELECT to_json(result)::VARCHAR FROM (\n{sql}\n) AS result"
            )
            size = 0
            # DuckDB computes the rows as they are fetched.
            while some := rows.fetchmany(BATCH):
                texts += [str(text) for (text,) in some]
                size += sum(len(text) for text in texts[-len(some) :])
                if limits is not None and (len(texts) > limits.rows or size > limits.size):
                    raise ConfigurationError(
                        f"the answer to {sql!r:.200} is more than {limits.rows:,} rows or "
                        f"{limits.size // 1024 // 1024} MiB",
                        "Ask for fewer rows, as with LIMIT 1000, or use redrive failed query.",
                    )
        found = [json.loads(text) for text in texts]
        return (list(found[0]) if found else names), found

    def close(self) -> None:
        """Discard everything."""
        self._duckdb.close()
        self._spill.cleanup()

    def _parsed(self, sql: str, given: str) -> dict[str, Any]:
        ((text,),) = self._run("SELECT json_serialize_sql(?)", [sql], given)
        answer = json.loads(str(text))
        if answer["error"]:
            place = int(answer["position"]) - sql.index(given) if "position" in answer else None
            raise ConfigurationError(_sentence(answer["error_message"], given, place), HOW)
        if len(answer["statements"]) != 1:
            raise ConfigurationError(
                f"{given!r} is {len(answer['statements'])} statements", "Give one."
            )
        node: dict[str, Any] = answer["statements"][0]["node"]
        return node

    def _check_named(self, node: dict[str, Any], given: str) -> None:
        """Check that columns are used by name: a column number means another column if more columns
        are read."""
        if any(found["class"] == "POSITIONAL_REFERENCE" for found in _nodes(node)):
            raise ConfigurationError(f"{given!r} refers to a column by its number", HOW)

    def _check(self, sql: str, node: dict[str, Any], given: str) -> None:
        """Let DuckDB check whether a statement can run."""
        for found in _nodes(node):
            largest = max(_numbers_given_to(found), default=0)
            if largest > _MOST_OF_A_CONSTANT:
                raise ConfigurationError(
                    f"{given!r} asks for {found['function_name']} of {largest:,.0f}, which would "
                    "be computed before any message is read",
                    f"Give at most {_MOST_OF_A_CONSTANT:,}.",
                )
        with self._interrupted_after(_CHECK_SECONDS):
            self._run(f"EXPLAIN {sql}", [], given)

    @contextlib.contextmanager
    def _interrupted_after(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, self._duckdb.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _run(self, sql: str, values: Sequence[object], given: str) -> list[tuple[object, ...]]:
        with self._refusing(given):
            return self._duckdb.execute(sql, list(values)).fetchall()

    @contextlib.contextmanager
    def _refusing(self, given: str) -> Iterator[None]:
        try:
            yield
        except duckdb.InterruptException as error:
            raise ConfigurationError(
                f"{given!r} takes too long to compute, before any message is read",
                "Simplify the part that does not depend on a message.",
            ) from error
        except duckdb.Error as error:
            raise refused(error, given) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refused(error: duckdb.Error, given: str) -> ConfigurationError:
    """Return the error for an expression or query that DuckDB refused."""
    return ConfigurationError(_told(str(error), given), HOW)


def in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split rows into batches for one statement each. Batches are smaller if the rows are large, as
    a decompressed body may be."""
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += sum([len(value) for value in row.values() if isinstance(value, str | bytes)])
        if len(some) >= BATCH or size >= _BYTES_IN_A_BATCH:
            yield some
            some, size = [], 0
    if some:
        yield some


def rows_given(columns: Sequence[Column]) -> str:
    """Return a query that yields the given rows from one list per column, which costs a hundredth
    of one INSERT per row."""
    given = ", ".join(
        f"unnest(?::{SqlType.TEXT if column.type is SqlType.JSON else column.type}[]) AS "
        f"{column.name}"
        for column in columns
    )
    return f"SELECT {_read(columns)} FROM (SELECT {given})"


def _read(columns: Sequence[Column]) -> str:
    """Select columns that were passed as texts, numbers and times, and convert JSON columns to
    JSON.

    What Python accepts as JSON and DuckDB does not becomes null: a query must not fail because of
    one message.
    """
    return ", ".join(
        f"CASE WHEN json_valid({name}) THEN {name}::JSON END AS {name}"
        if column.type is SqlType.JSON
        else name
        for column in columns
        for name in (column.name,)
    )


def _is_one_expression(node: dict[str, Any]) -> bool:
    return (
        node["type"] == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and node["from_table"]["type"] == "EMPTY"
        and not any(
            node[part]
            for part in (
                "modifiers",
                "where_clause",
                "group_expressions",
                "having",
                "qualify",
                "sample",
            )
        )
    )


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield every expression in a parsed statement."""
    if isinstance(tree, list):
        for inner in tree:
            yield from _nodes(inner)
    elif isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for inner in tree.values():
            yield from _nodes(inner)


def _numbers_given_to(node: dict[str, Any]) -> Iterator[float]:
    """Yield the numbers passed to a function that makes large values."""
    if node.get("function_name") in _GROWING:
        for inner in _nodes(node):
            literal = inner.get("literal") or {}
            if (
                inner["class"] == "CONSTANT"
                and literal.get("kind") != "STRING"
                and _NUMBER.fullmatch(str(literal.get("text")))
            ):
                yield float(literal["text"])


_MOST_LIKE = 3


def _columns_in(tree: dict[str, Any]) -> tuple[Column, ...]:
    named: set[str] = set()
    for node in _nodes(tree):
        if node["class"] == "STAR":
            return COLUMNS
        named.update(str(name).lower() for name in node.get("column_names", ()))
    if "failed" in named:  # the whole row
        return COLUMNS
    return tuple(column for column in COLUMNS if column.name in named)


_NO_COLUMN = re.compile(r'Referenced column "([^"]*)" not found in FROM clause!(?: Candidate.*)?')
_CANDIDATE = re.compile(r'"(\w+)"')


def _no_column(found: re.Match[str]) -> str:
    """Return DuckDB's message about an unknown column in plain words."""
    like = ", ".join(_CANDIDATE.findall(found[0].partition("Candidate")[2])[:_MOST_LIKE])
    closest = f" (similar: {like})" if like else ""
    return f"there is no column {found[1]}{closest}; a text is in single quotes: '{found[1]}'"


def _told(text: str, given: str) -> str:
    """Return DuckDB's message on one line, with the position in the given text."""
    problem, _, rest = text.partition("\n\nLINE ")
    if not rest:
        return _sentence(problem, given, None)
    excerpt, _, caret = rest.partition("\n")
    number, _, shown = excerpt.partition(": ")
    column = len(caret) - len(caret.lstrip(" ")) - len(f"LINE {number}: ")
    if shown.startswith(_CUT):
        shown, column = shown[len(_CUT) :], column - len(_CUT)
    start = given.find(shown.removesuffix(_CUT))
    return _sentence(problem, given, start + column if start >= 0 else None)


def _sentence(problem: str, given: str, place: int | None) -> str:
    problem = _NO_COLUMN.sub(_no_column, _KIND.sub("", " ".join(problem.split())))
    if place is None or not 0 <= place <= len(given):
        return f"{given!r} can't be used: {problem}"
    return (
        f"{given!r} is wrong at character {place + 1}, {given[place : place + _SHOWN]!r}: {problem}"
    )
