"""Read the archive as DataFrames."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import COLUMNS, SqlType
from redrive.failures.store.stored_message import BODY, EXCHANGE, PROPERTIES, ROUTING_KEY
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.archive_row import (
    BODY_KIND,
    COMPUTED,
    FAILED_IN,
    JSON_BODY,
    PLAIN_BODY,
    REDELIVERED,
    TEXT_BODY,
)
from redrive.spark_reprocess.spark_errors import explained, spark_errors
from redrive.spark_reprocess.storage import FILE, ROW, read_frame, reads_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RUN = "run"
WIRE = (BODY_KIND, EXCHANGE, ROUTING_KEY, PROPERTIES, REDELIVERED)
_PARQUET = "parquet"
_FORMATS = (_PARQUET, "orc", "delta", "iceberg")
_NO_FORMAT = "DATA_SOURCE_NOT_FOUND"
_NAMES = {
    SqlType.TEXT: "string",
    SqlType.NUMBER: "bigint",
    SqlType.TIME: "timestamp",
    SqlType.JSON: "string",
    SqlType.BYTES: "binary",
}


def columns_ddl(without: Collection[str] = ()) -> str:
    """Return the columns of the filter language as a Spark schema, but for some."""
    return ", ".join(
        f"`{column.name}` {_NAMES[column.type]}" for column in COLUMNS if column.name not in without
    )


def stored_schema(only: Collection[str] | None = None) -> "StructType":
    """Return the columns of the files plus those in their folders' names, or some of them, as a
    Spark schema."""
    wire = [
        f"{BODY_KIND} string",
        f"{EXCHANGE} binary",
        f"{ROUTING_KEY} binary",
        f"{PROPERTIES} binary",
        f"{REDELIVERED} boolean",
        f"{FAILED_IN} string",
        f"{PLAIN_BODY} binary",
    ]
    schema = schema_of(", ".join([columns_ddl(COMPUTED), *wire, "queue string", f"{RUN} string"]))
    return type(schema)([field for field in schema if only is None or field.name in only])


def schema_of(ddl: str) -> "StructType":
    """Return a Spark schema."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def stored(
    spark: "SparkSession",
    archive: Archive,
    run: Run | None = None,
    columns: "StructType | None" = None,
) -> "DataFrame":
    """Return every row of the archive, or of one run, with its file and index: all columns, or
    some. A message that was drained twice has two rows."""
    return read_frame(
        spark,
        archive.storage,
        "messages",
        columns or stored_schema(),
        run=None if run is None else run.id,
        numbered=True,
    )


def ids_stored(spark: "SparkSession", archive: Archive, run: Run | None = None) -> "DataFrame":
    """Return the failure id, the queue and the run of every row, with its file and index."""
    columns = schema_of(f"failure_id string, queue string, {RUN} string")
    return stored(spark, archive, run, columns)


def with_columns(frame: "DataFrame") -> "DataFrame":
    """Add the columns that are not stored: the result has all columns of the filter language, in
    their order, then those of the wire form."""
    from pyspark.sql import functions as F

    text = F.coalesce(F.col(PLAIN_BODY), F.col(BODY)).cast("string")
    frame = frame.withColumns(
        {
            "queue": F.coalesce(F.col(FAILED_IN), F.col("queue")),
            "body": F.when(F.col(BODY_KIND) == JSON_BODY, text),
            "body_text": F.when(F.col(BODY_KIND).isin(JSON_BODY, TEXT_BODY), text),
        }
    )
    return frame.select(*(column.name for column in COLUMNS), *WIRE, RUN, FILE, ROW)


def messages(spark: "SparkSession", archive: Archive, run: str | None = None) -> "DataFrame":
    """Return the messages of an archive for analysis: the columns of the filter language plus the
    run.

    Each message appears once per run that drained it: rows that differ only in the broker's
    counters count as one.

    Args:
        spark: the session.
        archive: the archive to read.
        run: return only the messages of this run; None for all runs.
    """
    rows = stored(spark, archive, None if run is None else archive.run(run))
    # The failure id alone is not enough, since another message may have copied it. The headers are
    # left out because they hold the broker's counters.
    told_apart = [column.name for column in COLUMNS if column.name not in {*COMPUTED, "headers"}]
    return (
        with_columns(rows)
        .dropDuplicates([RUN, "queue", *told_apart])
        .select(*(column.name for column in COLUMNS), RUN)
    )


def check_format(spark: "SparkSession", archive: Archive, format_: str) -> None:
    """Check that the session can write tables of a format into an archive."""
    if format_ not in _FORMATS:
        raise ConfigurationError(
            f"the format {format_!r} is unknown", f"Give one of {', '.join(_FORMATS)}."
        )
    if format_ == _PARQUET:
        return
    if not reads_by_spark(spark, archive.storage):
        raise ConfigurationError(
            f"Spark has no jars for {archive.storage.uri}, and can't write {format_} there",
            "Give it the jars, or leave out format=: Arrow writes Parquet.",
        )
    try:
        _ = spark.read.format(format_).load(archive.storage.uri_of(f"tables/{format_}")).schema
    except spark_errors() as error:
        if _NO_FORMAT in str(error):
            raise ConfigurationError(
                f"this Spark session has no format {format_!r}",
                "Start it with the jars of that format, or leave out format=: the archive is "
                "Parquet.",
            ) from error


def messages_as(spark: "SparkSession", archive: Archive, run: Run, format_: str) -> "DataFrame":
    """Return the messages of a run, read from a table of a format. Tables that an interrupted call
    left out are written, too."""
    if format_ == _PARQUET:
        return messages(spark, archive, run.id)
    for one in archive.runs():
        done = f"runs/{one.id}/written-{format_}"
        if archive.is_drained(one) and not archive.storage.exists(done):
            archive.storage.make_folder("tables")
            with explained():
                messages(spark, archive, one.id).write.format(format_).mode("overwrite").save(
                    _table_of(archive, one, format_)
                )
            archive.storage.write(done, b"")
    return spark.read.format(format_).load(_table_of(archive, run, format_))


def _table_of(archive: Archive, run: Run, format_: str) -> str:
    return archive.storage.uri_of(f"tables/{format_}/{run.id}")


def distinct_ids(spark: "SparkSession", archive: Archive, run: Run, queue: str) -> int:
    """Count the distinct failure ids that a run has of a queue."""
    from pyspark.sql import functions as F

    with explained():
        return (
            ids_stored(spark, archive, run)
            .where(F.col("queue") == queue)
            .select("failure_id")
            .distinct()
            .count()
        )
