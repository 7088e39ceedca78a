"""The messages of a run: each one once, with its id and its state."""

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pyarrow
import pyarrow.compute as pc

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.store.archive_folder import FINGERPRINT, NUMBER
from redrive.failures.store.stored_message import BODY, PROPERTIES, ROUTING_KEY, text_of
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archive_reader import (
    RUN,
    ids_stored,
    schema_of,
    stored,
    stored_schema,
    with_columns,
)
from redrive.spark_reprocess.archive_row import COMPUTED, REDELIVERED, with_computed
from redrive.spark_reprocess.ledger import Event
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.spark_errors import first_line
from redrive.spark_reprocess.storage import BATCH_ROWS, FILE, ROW, StoredFiles, read_frame
from redrive.topology.digest import digest_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

STATE = "state"
KEPT = "kept"
"""The state of messages that are in the archive only."""
OPEN = (KEPT, Event.REFUSED)
"""States of messages that can still be sent or restored."""
STATES = (*OPEN, Event.SENT, Event.RESTORED, Event.DISCARDED)
_LEDGER = "id string, event string, detail string, again boolean, run string, job string"
_LINES = pyarrow.schema(
    [
        *((name, pyarrow.string()) for name in (ID, "event", "detail", RUN)),
        *((name, pyarrow.bool_()) for name in ("again", "here")),
    ]
)
_FEW = 10_000_000
"""Ids whose states the driver counts within seconds, and in bounded memory. Source: measured, with
three lines of each id: 1 s for a million, 9 s for ten, 310 MB in all."""
_MEMORY = "128MB"


class StateCount(NamedTuple):
    """How many ids have the same state.

    Args:
        here: whether they are in the archive.
        mine: whether this run's ledger has them.
        state: their state.
        ids: their number.
        unsure: how many of them may have been sent twice.
    """

    here: bool
    mine: bool
    state: str
    ids: int
    unsure: int


_COUNTS = f"""
    select here, mine, {STATE}, count(*), cast(count_if(unsure) as bigint)
    from {{states}} group by here, mine, {STATE}
"""
_REFUSALS = f"""
    select {ID}, detail from {{states}} where here and {STATE} = '{Event.REFUSED}'
    order by {ID} limit 20
"""


class ArchivedMessages:
    """The messages of a run, as DataFrames. Repeated rows are searched for on first use, and the
    result is cached."""

    def __init__(self, spark: "SparkSession", archive: Archive, run: Run) -> None:
        self._spark = spark
        self._archive = archive
        self._run = run
        self._repeated: list[Row] | None = None
        self._elsewhere: list[tuple[str, str, str, bool, str, str]] | None = None

    def messages(self) -> "DataFrame":
        """Return each message once, with its id and all columns.

        The id is the failure id. Several messages may share one: messages of peers have a
        fingerprint instead, which is the same for identical messages, and anyone who can write to a
        failed queue can copy an id. The id of the second message is the failure id followed by ~2,
        and so on.
        """
        return self._once(with_columns(stored(self._spark, self._archive, self._run)))

    def _once(self, frame: "DataFrame") -> "DataFrame":
        """Return the rows that are messages of their own, with their ids."""
        from pyspark.sql import functions as F

        places = self._places_of_repeated()
        own_name = _name_of_failure()
        if not places:
            return frame.withColumn(ID, own_name)
        # Only file names and row indexes are sent: joining whole messages would move every body.
        marked = self._spark.createDataFrame(
            [(place[FILE], place[ROW], place["keep"], place["numbered"]) for place in places],
            f"{FILE} string, {ROW} bigint, keep boolean, numbered string",
        )
        joined = frame.join(F.broadcast(marked), [FILE, ROW], "left")
        kept = joined.where(F.coalesce(F.col("keep"), F.lit(True)))
        return kept.withColumn(ID, F.coalesce(F.col("numbered"), own_name)).drop("keep", "numbered")

    def assume_distinct_ids(self) -> None:
        """Take it as known that no failure id is repeated."""
        self._repeated = []

    def has_repeated(self) -> bool:
        """Tell whether several rows have the same failure id."""
        return bool(self._places_of_repeated())

    def copies(self) -> int:
        """Count the rows that are copies of another row's message."""
        return sum(not place["keep"] for place in self._places_of_repeated())

    def shared_ids(self) -> int:
        """Count the failure ids that several different messages share. At most one of the messages
        is genuine."""
        digests: dict[str, set[str]] = {}
        for place in self._places_of_repeated():
            digests.setdefault(place["failure_id"], set()).add(place["digest"])
        return sum(len(different) > 1 for different in digests.values())

    def ledger(self) -> "DataFrame":
        """Return the ledger of this run, plus the lines of other runs that sent the same
        messages."""
        if not self._archive.storage.exists("ledger"):
            return self._spark.createDataFrame([], _LEDGER)
        mine = self._whole_ledger(self._run.id)
        elsewhere = self._sent_elsewhere()
        return (
            mine.unionByName(self._spark.createDataFrame(elsewhere, _LEDGER)) if elsewhere else mine
        )

    def states(self) -> "DataFrame":
        """Return the final state of each id in the ledger, and whether it may have been sent
        twice."""
        return _by_id(self.ledger(), _state_columns(self._run.id))

    def counts(self) -> list[StateCount]:
        """Count the ids in the ledger and in the archive by what became of them."""
        return [StateCount(*row) for row in self._ask(_COUNTS)]

    def refusals(self) -> list[tuple[str, str]]:
        """Return the first ids of the archive that were refused, each with the reason."""
        return [(id_, detail) for id_, detail in self._ask(_REFUSALS)]

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        """Return the answer to a question about `{states}`, in SQL that Spark and DuckDB read
        alike: `states` of the ids in the ledger and of those in the archive, and whether each is in
        the archive (`here`).

        Lines of both are put together by id once: a join would move them twice.
        """
        from pyspark.sql import functions as F

        columns = _state_columns(self._run.id) | {"here": "coalesce(max(here), false)"}
        if self._are_few:
            return self._ask_here(question, columns)
        ids = self._once(ids_stored(self._spark, self._archive, self._run))
        lines = ids.select(ID, F.lit(True).alias("here"))
        lines = lines.unionByName(self.ledger(), allowMissingColumns=True)
        found = self._spark.sql(question, states=_by_id(lines, columns))
        return [tuple(row) for row in found.collect()]

    @property
    def _are_few(self) -> bool:
        """Whether the driver sums up the lines sooner than Spark has begun to."""
        return (
            self._archive.storage.is_local
            and (rows := self._archive.rows_noted(self._run)) is not None
            and rows <= _FEW
            and not self.has_repeated()
        )

    def _ask_here(self, question: str, columns: Mapping[str, str]) -> list[tuple[Any, ...]]:
        of_each = ", ".join(f"{column} as {name}" for name, column in columns.items())
        states = f"(select {ID}, {of_each} from lines group by {ID})"
        unread: list[RedriveError] = []
        lines = pyarrow.RecordBatchReader.from_batches(_LINES, _noting(unread, self._lines()))
        with tempfile.TemporaryDirectory(prefix="redrive-") as spill:
            # Each further thread would take its share of the memory, and there is one source.
            try:
                with duckdb.connect(
                    config={"threads": 1, "memory_limit": _MEMORY, "temp_directory": spill}
                ) as database:
                    database.register("lines", lines)
                    return database.execute(question.format(states=states)).fetchall()
            except duckdb.Error as error:
                if unread:
                    raise unread[0] from error
                raise ConfigurationError(
                    f"what became of the messages can't be counted: {first_line(error)}",
                    f"Free some space in {tempfile.gettempdir()}, and run it again.",
                ) from error

    def _lines(self) -> Iterator[pyarrow.RecordBatch]:
        """Return the lines of `_ask` where no id is repeated. What Spark is asked for is known when
        this returns: who reads the lines may do so in another thread."""
        storage, run = self._archive.storage, self._run.id
        ledger = schema_of(_LEDGER)
        messages = StoredFiles.below(storage, "messages", schema_of("failure_id string"), run)
        noted = StoredFiles.below(storage, "ledger", ledger, run)
        elsewhere = self._sent_elsewhere() if storage.exists("ledger") else []

        def lines() -> Iterator[pyarrow.RecordBatch]:
            for table in messages.all_tables():
                here = pyarrow.repeat(True, table.num_rows)
                yield from _as_lines({ID: _ids_of(table["failure_id"]), "here": here})
            for table in noted.all_tables():
                yield from _as_lines({name: table[name] for name in table.column_names})
            for line in elsewhere:
                named = zip(ledger.names, line, strict=True)
                yield from _as_lines({name: pyarrow.array([value]) for name, value in named})

        return lines()

    def with_states(self) -> "DataFrame":
        """Return each message once, with its state."""
        from pyspark.sql import functions as F

        if not self._archive.storage.exists("ledger"):
            return self.messages().withColumns(
                {STATE: F.lit(KEPT), "detail": F.lit(None).cast("string"), "unsure": F.lit(False)}
            )
        joined = self.messages().join(self.states().drop("mine"), ID, "left")
        return joined.withColumn(STATE, F.coalesce(F.col(STATE), F.lit(KEPT))).withColumn(
            "unsure", F.coalesce(F.col("unsure"), F.lit(False))
        )

    def open(self) -> "DataFrame":
        """Return the messages that can still be sent or restored: those in the archive that were
        not sent, restored or discarded."""
        from pyspark.sql import functions as F

        return self.with_states().where(F.col(STATE).isin(*OPEN))

    def in_files(self, columns: Collection[str]) -> "FilesOfMessages | None":
        """Return the files of the run, from which tasks get the same messages as from `open`, but
        faster; None if they can't, because not every row is a message that is still to be sent."""
        if self._archive.storage.exists("ledger") or self.has_repeated():
            return None
        of_others = (name for column in columns for name in COMPUTED.get(column, ()))
        schema = stored_schema({*columns, *of_others, "failure_id"})
        files = StoredFiles.below(self._archive.storage, "messages", schema, self._run.id)
        return FilesOfMessages(files, list(columns)) if files.paths else None

    def _whole_ledger(self, run: str | None = None) -> "DataFrame":
        storage = self._archive.storage
        return read_frame(self._spark, storage, "ledger", schema_of(_LEDGER), run=run)

    def _sent_elsewhere(self) -> "list[tuple[str, str, str, bool, str, str]]":
        """Return the ledger lines of other runs that sent messages of this run, with this run's
        ids.

        An interrupted run may have archived messages that were then drained again. Two rows are the
        same message only if their contents match as well; the same id is not enough. Messages of
        peers are left out, since two failures of a peer may be identical.
        """
        from pyspark.sql import functions as F

        if self._elsewhere is not None:
            return self._elsewhere
        self._elsewhere = []
        if len(self._archive.runs()) < 2:
            return self._elsewhere
        everywhere = (
            ids_stored(self._spark, self._archive)
            .select("failure_id", RUN)
            .where(~F.col("failure_id").rlike(FINGERPRINT))
        )
        runs = (
            everywhere.groupBy("failure_id")
            .agg(F.collect_set(RUN).alias("runs"))
            .where((F.size("runs") > 1) & F.array_contains("runs", self._run.id))
        )
        shared = runs.select("failure_id", F.explode("runs").alias(RUN)).collect()
        if not shared:
            return self._elsewhere
        ids = self._spark.createDataFrame(
            [(one["failure_id"],) for one in shared if one[RUN] == self._run.id],
            "failure_id string",
        )
        mine = {
            (row["failure_id"], row["digest"]): row[ID] for row in self._digests_of(ids).collect()
        }
        sent = self._whole_ledger().where(F.col("event") == Event.SENT)
        for other in self._archive.runs():
            if other.id == self._run.id or not any(one[RUN] == other.id for one in shared):
                continue
            theirs = ArchivedMessages(self._spark, self._archive, other)._digests_of(ids)
            for row in sent.where(F.col(RUN) == other.id).join(theirs, ID).collect():
                id_ = mine.get((row["failure_id"], row["digest"]))
                if id_ is not None:
                    self._elsewhere.append(
                        (id_, row["event"], row["detail"], row["again"], row[RUN], row["job"])
                    )
        return self._elsewhere

    def _digests_of(self, failure_ids: "DataFrame") -> "DataFrame":
        """Return the ids and digests of the messages that have these failure ids."""
        from pyspark.sql import functions as F

        messages = self.messages().join(F.broadcast(failure_ids), "failure_id", "left_semi")
        return messages.select("failure_id", ID, _digest_column().alias("digest"))

    def _places_of_repeated(self) -> "list[Row]":
        """Return all rows whose failure id occurs more than once in the run: where each row is, its
        numbered id, and whether to keep it as a message of its own.

        A row can be a copy of another only if the messages are equal byte for byte. Equal messages
        of redrive are one failure. Equal messages of a peer may be several failures; but a
        redelivered one counts as a copy if a session that archived it was interrupted before its
        ack.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        if self._repeated is not None:
            return self._repeated
        rows_stored = stored(self._spark, self._archive, self._run)
        repeated = (
            ids_stored(self._spark, self._archive, self._run)
            .groupBy("failure_id")
            .count()
            .where(F.col("count") > 1)
            .select("failure_id")
        )
        if repeated.isEmpty():
            self._repeated = []
            return self._repeated
        # Bodies are read for these rows only.
        narrow = rows_stored.join(F.broadcast(repeated), "failure_id").select(
            "failure_id", _digest_column().alias("digest"), FILE, ROW, REDELIVERED
        )
        settled = self._archive.storage.names(f"runs/{self._run.id}/settled")
        marks = self._spark.createDataFrame([(name,) for name in settled], "session string")
        rows = narrow.withColumn(
            "session", F.regexp_extract(FILE, r"^(.*)-\d+-\d+\.parquet$", 1)
        ).join(F.broadcast(marks).withColumn("settled", F.lit(True)), "session", "left")
        everywhere = Window.partitionBy("failure_id", "digest")
        broken_off = F.sum(F.col("settled").isNull().cast("int")).over(everywhere)
        in_order = Window.partitionBy("failure_id", "digest", "candidate").orderBy(FILE, ROW)
        numbered = Window.partitionBy("failure_id", "keep").orderBy(FILE, ROW)
        own = ~F.col("failure_id").rlike(FINGERPRINT)
        own_name = _name_of_failure()
        places = (
            rows.withColumn("broken_off", broken_off)
            .withColumn("candidate", F.col("settled").isNotNull() & F.col(REDELIVERED))
            .withColumn(
                "copy",
                F.when(
                    F.col("candidate"), F.row_number().over(in_order) <= F.col("broken_off")
                ).otherwise(F.lit(False)),
            )
            .withColumn(
                "keep",
                F.when(own, F.row_number().over(everywhere.orderBy(FILE, ROW)) == 1).otherwise(
                    ~F.col("copy")
                ),
            )
            .withColumn("number", F.row_number().over(numbered))
            .select(
                FILE,
                ROW,
                "keep",
                F.when(
                    F.col("number") > 1,
                    F.concat_ws(NUMBER, own_name, F.col("number").cast("string")),
                )
                .otherwise(own_name)
                .alias("numbered"),
                "failure_id",
                "digest",
            )
        )
        self._repeated = places.collect()
        return self._repeated


@dataclass(frozen=True, slots=True)
class FilesOfMessages:
    """The files of a run of which each row is a message.

    Args:
        files: the files.
        columns: the columns that the messages are to have.
    """

    files: StoredFiles
    columns: Sequence[str]

    def messages(self, numbers: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages of the files with these numbers, within a task."""
        for table in self.files.tables(numbers):
            messages = as_messages(table, self.columns).select(self.columns)
            yield from messages.to_batches(max_chunksize=BATCH_ROWS)


def _state_columns(run: str) -> dict[str, str]:
    """Return what the lines of an id say of it, by column, in SQL that Spark and DuckDB read
    alike."""

    def has(event: Event) -> str:
        return f"max(event = '{event}')"

    intentions = f"'{Event.SENDING}', '{Event.RESTORING}'"
    # More intentions than outcomes: an attempt ended after it announced the message and before the
    # confirm.
    unsettled = (
        f"count_if(event in ({intentions})) "
        f"> count_if(event not in ({intentions}, '{Event.DISCARDED}'))"
    )
    # Sent by two concurrent jobs that did not know about each other.
    twice = f"count_if(event = '{Event.SENT}') > 1"
    ends = (Event.SENT, Event.RESTORED, Event.DISCARDED, Event.REFUSED)
    cases = " ".join(f"when {has(end)} then '{end}'" for end in ends)
    return {
        STATE: f"case {cases} else '{KEPT}' end",
        "unsure": f"coalesce(max(again), false) or {unsettled} or {twice}",
        "detail": f"max(case when event = '{Event.REFUSED}' then detail end)",
        "mine": f"coalesce(max({RUN} = '{run}'), false)",
    }


def _name_of_failure() -> "Column":
    """Return the failure id as the id of the first message that has it."""
    from pyspark.sql import functions as F

    return F.replace(F.col("failure_id"), F.lit(NUMBER), F.lit(NUMBER * 2))


def as_messages(rows: pyarrow.Table, wanted: Collection[str] = COMPUTED.keys()) -> pyarrow.Table:
    """Return stored rows as `open` would, if each is a message of its own and nothing was done with
    any: those of the wanted columns that are not stored are added, and the ids and states."""
    rows = with_computed(rows, wanted)
    return rows.append_column(ID, _ids_of(rows["failure_id"])).append_column(
        STATE, pyarrow.repeat(KEPT, rows.num_rows)
    )


def _ids_of(failure_ids: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Return failure ids as the ids of the first messages that have them."""
    return pc.replace_substring(failure_ids, NUMBER, NUMBER * 2)


def _by_id(lines: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql import functions as F

    return lines.groupBy(ID).agg(*(F.expr(made).alias(name) for name, made in columns.items()))


def _as_lines(columns: Mapping[str, pyarrow.Array]) -> list[pyarrow.RecordBatch]:
    """Return lines of the ledger, or ids in the archive, in the form in which they are summed
    up."""
    rows = len(columns[ID])
    batches: list[pyarrow.RecordBatch] = pyarrow.Table.from_arrays(
        [columns.get(field.name, pyarrow.nulls(rows, field.type)) for field in _LINES],
        schema=_LINES,
    ).to_batches()
    return batches


def _noting(
    errors: list[RedriveError], batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield batches; note what ends them early, since a database that reads them would only pass on
    its text."""
    try:
        yield from batches
    except RedriveError as error:
        errors.append(error)
        raise


def _digest_column() -> "Column":
    """Return a column with the digest of each stored message."""
    from pyspark.sql import functions as F

    digest = F.udf(_digest, "string", useArrow=False)
    return digest(F.col(ROUTING_KEY), F.col(PROPERTIES), F.col(BODY))


def _digest(routing_key: bytes, properties: bytes, body: bytes) -> str:
    return digest_of(text_of(bytes(routing_key)), bytes(properties), bytes(body))
