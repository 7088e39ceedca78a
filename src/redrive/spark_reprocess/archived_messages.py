"""The messages of a run: each one once, with its id and its state."""

from typing import TYPE_CHECKING

import pyarrow
import pyarrow.compute as pc

from redrive.failures.store.archive_folder import FINGERPRINT, NUMBER
from redrive.failures.store.stored_message import BODY, PROPERTIES, ROUTING_KEY, text_of
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archive_reader import (
    RUN,
    ids_stored,
    schema_of,
    stored,
    with_columns,
)
from redrive.spark_reprocess.archive_row import REDELIVERED
from redrive.spark_reprocess.ledger import Event
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.storage import FILE, ROW, read_frame
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
        return _states_of(self._run.id, self.ledger())

    def reconciled(self) -> "DataFrame":
        """Return `states` of the ids in the ledger and of those in the archive, and whether each is
        in the archive. Lines of both are put together by id once: a join would move them twice."""
        from pyspark.sql import functions as F

        ids = self._once(ids_stored(self._spark, self._archive, self._run))
        lines = ids.select(ID, F.lit(True).alias("here"))
        return _states_of(
            self._run.id,
            lines.unionByName(self.ledger(), allowMissingColumns=True),
            F.coalesce(F.max("here"), F.lit(False)).alias("here"),
        )

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


def _states_of(run: str, lines: "DataFrame", *others: "Column") -> "DataFrame":
    """Return what lines of the ledger say of each id."""
    from pyspark.sql import functions as F

    def has(event: Event) -> "Column":
        return F.max(F.col("event") == event)

    intended = F.count_if(F.col("event").isin(Event.SENDING, Event.RESTORING))
    state = (
        F.when(has(Event.SENT), Event.SENT)
        .when(has(Event.RESTORED), Event.RESTORED)
        .when(has(Event.DISCARDED), Event.DISCARDED)
        .when(has(Event.REFUSED), Event.REFUSED)
        .otherwise(KEPT)
    )
    # More intentions than outcomes: an attempt ended after it announced the message and before the
    # confirm.
    settled = F.count_if(~F.col("event").isin(Event.SENDING, Event.RESTORING, Event.DISCARDED))
    # Sent by two concurrent jobs that did not know about each other.
    twice = F.count_if(F.col("event") == Event.SENT) > 1
    return lines.groupBy(ID).agg(
        state.alias(STATE),
        (F.coalesce(F.max("again"), F.lit(False)) | (intended > settled) | twice).alias("unsure"),
        F.max(F.when(F.col("event") == Event.REFUSED, F.col("detail"))).alias("detail"),
        F.coalesce(F.max(F.col(RUN) == run), F.lit(False)).alias("mine"),
        *others,
    )


def _name_of_failure() -> "Column":
    """Return the failure id as the id of the first message that has it."""
    from pyspark.sql import functions as F

    return F.replace(F.col("failure_id"), F.lit(NUMBER), F.lit(NUMBER * 2))


def id_of(failure_ids: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Return failure ids as the ids of the first messages that have them."""
    return pc.replace_substring(failure_ids, NUMBER, NUMBER * 2)


def _digest_column() -> "Column":
    """Return a column with the digest of each stored message."""
    from pyspark.sql import functions as F

    digest = F.udf(_digest, "string", useArrow=False)
    return digest(F.col(ROUTING_KEY), F.col(PROPERTIES), F.col(BODY))


def _digest(routing_key: bytes, properties: bytes, body: bytes) -> str:
    return digest_of(text_of(bytes(routing_key)), bytes(properties), bytes(body))
