"""What a DataFrame says is done with which messages.

It is copied into the archive before anything is taken, since it may itself be a look at the queue,
and so that a resumed run does the same. Its name there is a digest of what it says.
"""

import uuid
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.failures.store.stored_message import BODY
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.archive_reader import schema_of
from redrive.spark_reprocess.row_message import AS_TEXT, EDITED
from redrive.spark_reprocess.selection import DECISION, TO, Decision
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.storage import is_written, read_frame, write_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILURE_ID, _NEW_BODY = "failure_id", "decided_body"
_SCHEMA = f"{FAILURE_ID} string, {DECISION} string, {TO} string, {_NEW_BODY} binary"
_KINDS = {
    FAILURE_ID: ("string",),
    "body": ("string", "binary"),
    "to": ("string",),
    DECISION: ("string",),
}
_REMEDY = "Give failure_id, and optionally body, to and decision."


def decided(archive: Archive, messages: "DataFrame") -> str:
    """Copy a DataFrame's decisions into the archive; return their digest."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType.simpleString() for field in messages.schema.fields}
    if FAILURE_ID not in kinds:
        raise ConfigurationError(f"the DataFrame has no column {FAILURE_ID!r}", _REMEDY)
    for name, allowed in _KINDS.items():
        if name in kinds and kinds[name] not in allowed:
            raise ConfigurationError(
                f"the column {name!r} is {kinds[name]}, not {' or '.join(allowed)}", _REMEDY
            )

    def given(name: str, kind: str = "string") -> "Column":
        return (F.col(f"`{name}`") if name in kinds else F.lit(None)).cast(kind)

    rows = messages.select(
        F.col(FAILURE_ID),
        F.coalesce(given(DECISION), F.lit(Decision.REQUEUE)).alias(DECISION),
        given("to").alias(TO),
        given("body", "binary").alias(_NEW_BODY),
    )
    folder = f"decisions/new-{uuid.uuid4().hex}"
    archive.mark()
    try:
        write_frame(rows, archive.storage, folder)
        stored = read_frame(messages.sparkSession, archive.storage, folder, schema_of(_SCHEMA))
        with explained():
            digest = _checked(stored)
        if not is_written(archive.storage, f"decisions/{digest}"):
            write_frame(stored, archive.storage, f"decisions/{digest}")
    finally:
        archive.storage.delete_folder(folder)
    return digest


def _checked(rows: "DataFrame") -> str:
    """Check decisions, and return their digest."""
    from pyspark.sql import functions as F

    known = [str(one) for one in Decision]
    by_id = rows.groupBy(FAILURE_ID).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bit_xor(F.xxhash64(FAILURE_ID, DECISION, TO, _NEW_BODY)).alias("hash"),
        F.min(F.when(~F.col(DECISION).isin(known), F.col(DECISION))).alias("unknown"),
    )
    (found,) = by_id.agg(
        F.sum("rows").alias("rows"),
        F.bit_xor("hash").alias("hash"),
        F.min("unknown").alias("unknown"),
        F.count_if(F.col(FAILURE_ID).isNull()).alias("without"),
        F.min(F.when(F.col("rows") > 1, F.col(FAILURE_ID))).alias("repeated"),
    ).collect()
    if found["without"]:
        raise ConfigurationError("a row of the DataFrame has no failure_id", _REMEDY)
    if found["repeated"] is not None:
        raise ConfigurationError(
            f"the DataFrame has the failure_id {found['repeated']!r} more than once",
            "Give each message once: dropDuplicates(['failure_id']).",
        )
    if found["unknown"] is not None:
        raise ConfigurationError(
            f"the decision {found['unknown']!r} is unknown", f"Give one of {', '.join(known)}."
        )
    return f"{found['rows'] or 0}-{(found['hash'] or 0) & (2**64 - 1):016x}"


def with_decisions(
    spark: "SparkSession", archive: Archive, digest: str, messages: "DataFrame"
) -> "DataFrame":
    """Add to messages what is done with them, which is null where the DataFrame does not say."""
    return messages.join(_read(spark, archive, digest), FAILURE_ID, "left")


def unmatched(spark: "SparkSession", archive: Archive, digest: str, messages: "DataFrame") -> int:
    """Count the ids of a DataFrame that none of these messages has."""
    rows = _read(spark, archive, digest)
    with explained():
        return rows.join(messages.select(FAILURE_ID), FAILURE_ID, "left_anti").count()


def _read(spark: "SparkSession", archive: Archive, digest: str) -> "DataFrame":
    return read_frame(spark, archive.storage, f"decisions/{digest}", schema_of(_SCHEMA))


def with_new_bodies(messages: "DataFrame") -> "DataFrame":
    """Replace the bodies that the DataFrame has changed. A body that is the same as it was read
    stays as it came, compressed or not."""
    from pyspark.sql import functions as F

    new = F.col(_NEW_BODY)
    read = F.coalesce(F.col("body"), F.col("body_text")).cast("binary")
    is_new = new.isNotNull() & (new != F.coalesce(read, F.col(BODY))) & (new != F.col(BODY))
    return messages.withColumns(
        {BODY: F.when(is_new, new).otherwise(F.col(BODY)), EDITED: F.when(is_new, F.lit(AS_TEXT))}
    ).drop(_NEW_BODY)
