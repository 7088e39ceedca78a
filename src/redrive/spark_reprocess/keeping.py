"""What is in the archive, message by message: each once, with its id and what became of it."""

from typing import TYPE_CHECKING

from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.ledger import Event
from redrive.spark_reprocess.publishing import ID
from redrive.spark_reprocess.reading import FILE, ROW, RUN, stored, with_columns
from redrive.spark_reprocess.stored import REDELIVERED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

STATE = "state"
KEPT = "kept"
"""The state of what is in the archive and nowhere else."""
_FINGERPRINT = "^[0-9a-f]{64}$"
_LEDGER = "id string, event string, detail string, again boolean, run string, job string"


class Kept:
    """A run as DataFrames. What is in the archive more than once is looked for when it is asked first, and not again.

    Args:
        spark: the session.
        archive: where it is.
        run: which.
    """

    def __init__(self, spark: "SparkSession", archive: Archive, run: Run) -> None:
        self._spark = spark
        self._archive = archive
        self._run = run
        self._repeated: list[Row] | None = None

    def messages(self) -> "DataFrame":
        """Each message once, with its id and all columns.

        The id is the failure id. Of a peer's messages, which have none, several may be the same in all they hold: the second one's id is
        its fingerprint followed by ~2, and so on.
        """
        from pyspark.sql import functions as F

        frame = with_columns(stored(self._spark, self._archive, self._run))
        places = self._places_of_repeated()
        if not places:
            return frame.withColumn(ID, F.col("failure_id"))
        # Only the places travel: a join of whole messages would move every body.
        marked = self._spark.createDataFrame(places, f"{FILE} string, {ROW} bigint, keep boolean, numbered string")
        joined = frame.join(F.broadcast(marked), [FILE, ROW], "left")
        kept = joined.where(F.coalesce(F.col("keep"), F.lit(True)))
        return kept.withColumn(ID, F.coalesce(F.col("numbered"), F.col("failure_id"))).drop("keep", "numbered")

    def copies(self) -> int:
        """How many rows are no messages of their own."""
        return sum(not place["keep"] for place in self._places_of_repeated())

    def ledger(self) -> "DataFrame":
        """What was written down of this run's messages, and what other runs have sent of the same failures."""
        from pyspark.sql import functions as F

        if not self._archive.storage.exists("ledger"):
            return self._spark.createDataFrame([], _LEDGER)
        ledger = self._spark.read.schema(_LEDGER).parquet(self._archive.storage.uri_of("ledger"))
        # A failure id is one failure's, in whatever run; two failures of a peer may have the same fingerprint.
        elsewhere = (F.col("event") == Event.SENT) & ~F.col(ID).rlike(_FINGERPRINT)
        return ledger.where((F.col(RUN) == self._run.id) | elsewhere)

    def states(self) -> "DataFrame":
        """The last word on each id that the ledger has: its state, and whether it may have been sent twice."""
        from pyspark.sql import functions as F

        def has(event: Event) -> "Column":
            return F.max(F.col("event") == event)

        intended = F.sum((F.col("event").isin(Event.SENDING, Event.RESTORING)).cast("int"))
        state = (
            F.when(has(Event.SENT), Event.SENT)
            .when(has(Event.RESTORED), Event.RESTORED)
            .when(has(Event.DISCARDED), Event.DISCARDED)
            .when(has(Event.REFUSED), Event.REFUSED)
            .otherwise(KEPT)
        )
        # Noted as being sent more often than as settled: an attempt ended between the sending and the confirm.
        settled = F.sum((~F.col("event").isin(Event.SENDING, Event.RESTORING, Event.DISCARDED)).cast("int"))
        # Sent by two jobs at the same time, neither of which knew of the other.
        twice = F.sum((F.col("event") == Event.SENT).cast("int")) > 1
        return (
            self.ledger()
            .groupBy(ID)
            .agg(
                state.alias(STATE),
                (F.max("again") | (intended > settled) | twice).alias("unsure"),
                F.max(F.when(F.col("event") == Event.REFUSED, F.col("detail"))).alias("detail"),
                F.max(F.col(RUN) == self._run.id).alias("mine"),
            )
        )

    def with_states(self) -> "DataFrame":
        """Each message once, with its state."""
        from pyspark.sql import functions as F

        if not self._archive.storage.exists("ledger"):
            return self.messages().withColumns({STATE: F.lit(KEPT), "detail": F.lit(None).cast("string"), "unsure": F.lit(False)})
        joined = self.messages().join(self.states().drop("mine"), ID, "left")
        return joined.withColumn(STATE, F.coalesce(F.col(STATE), F.lit(KEPT))).withColumn(
            "unsure", F.coalesce(F.col("unsure"), F.lit(False))
        )

    def open(self) -> "DataFrame":
        """What can still be sent or put back: in the archive, and not sent, put back or discarded."""
        from pyspark.sql import functions as F

        return self.with_states().where(F.col(STATE).isin(KEPT, Event.REFUSED))

    def _places_of_repeated(self) -> "list[Row]":
        """Of what is in the archive more than once: the place of each, its numbered id, and whether it is a message of its own.

        One failure id is one failure. Of the same fingerprint there may be several messages; but one that was delivered again, where a
        session that had archived it was broken off before its ack, is that one.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        if self._repeated is not None:
            return self._repeated
        narrow = stored(self._spark, self._archive, self._run).select("failure_id", FILE, ROW, REDELIVERED)
        repeated = narrow.groupBy("failure_id").count().where(F.col("count") > 1).select("failure_id")
        settled = self._archive.storage.names(f"runs/{self._run.id}/settled")
        marks = self._spark.createDataFrame([(name,) for name in settled], "session string")
        rows = (
            narrow.join(F.broadcast(repeated), "failure_id")
            .withColumn("session", F.regexp_extract(FILE, r"^(.*)-\d+-\d+\.parquet$", 1))
            .join(F.broadcast(marks).withColumn("settled", F.lit(True)), "session", "left")
        )
        everywhere = Window.partitionBy("failure_id")
        broken_off = F.sum(F.col("settled").isNull().cast("int")).over(everywhere)
        in_order = Window.partitionBy("failure_id", "candidate").orderBy(FILE, ROW)
        numbered = Window.partitionBy("failure_id", "keep").orderBy(FILE, ROW)
        own = ~F.col("failure_id").rlike(_FINGERPRINT)
        places = (
            rows.withColumn("broken_off", broken_off)
            .withColumn("candidate", F.col("settled").isNotNull() & F.col(REDELIVERED))
            .withColumn("copy", F.when(F.col("candidate"), F.row_number().over(in_order) <= F.col("broken_off")).otherwise(F.lit(False)))
            .withColumn("keep", F.when(own, F.row_number().over(everywhere.orderBy(FILE, ROW)) == 1).otherwise(~F.col("copy")))
            .withColumn("number", F.row_number().over(numbered))
            .select(
                FILE,
                ROW,
                "keep",
                F.when(F.col("number") > 1, F.concat_ws("~", "failure_id", F.col("number").cast("string")))
                .otherwise(F.col("failure_id"))
                .alias("numbered"),
            )
        )
        self._repeated = places.collect()
        return self._repeated
