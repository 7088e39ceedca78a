"""Edit bodies before sending, with a JSON patch or a user function.

The edit is applied once; its result is stored, and checked before anything is sent.
"""

import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.message.edit import Edit, calling, function_named
from redrive.failures.store.stored_message import BODY, DEAD_LETTER_QUEUE, NEEDED, message_of
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.row_message import ID, SENT_COLUMNS
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.storage import is_written, read_frame, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]
_RULE = "A transform changes body_bytes, and leaves the other columns and the rows as they are."
_SHOWN = 3
_GIVEN = tuple(name for name in SENT_COLUMNS if name != DEAD_LETTER_QUEUE)
"""Columns that a transform's result must have. Others may be missing: only the bodies are used."""


def transform_named(name: str) -> Transform:
    """Return the transform that `module:function` names; modules in the current folder are found.

    The function is called with each failed message and returns its new body, as in a requeue on one
    machine. If its parameter is annotated as a `DataFrame`, it is called once, with all messages,
    and returns a DataFrame with new `body_bytes`.
    """
    from pyspark import cloudpickle

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    function = function_named(name)
    module = sys.modules[name.partition(":")[0]]
    # Executors need not have the module: what the transform uses of it is sent with the job.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    if not _takes_a_frame(function):
        return of_each(calling(name))

    def transform(messages: "DataFrame") -> "DataFrame":
        # What it returns is checked when it is applied.
        changed: DataFrame = function(messages)  # type: ignore[assignment]
        return changed

    return transform


def of_each(edit: Edit) -> Transform:
    """Return the transform that applies an edit to each message, as a requeue on one machine
    does."""

    def body_of(*values: object) -> bytes:
        # Spark passes bytes as bytearrays.
        return edit(
            message_of([bytes(one) if isinstance(one, bytearray) else one for one in values])
        )

    def transform(messages: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        changed = F.udf(body_of, "binary", useArrow=False)
        return messages.withColumn(BODY, changed(*map(F.col, (*NEEDED, DEAD_LETTER_QUEUE))))

    return transform


def _takes_a_frame(function: Callable[..., object]) -> bool:
    """Tell whether a function's first parameter is annotated as a DataFrame."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in may have no signature
        return False
    kind = parameters[0].annotation if parameters else None
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    return name.strip("\"'").rpartition(".")[2] == "DataFrame"


def check(messages: "DataFrame", transform: Transform) -> None:
    """Apply a transform to the messages and check its result, without storing it."""
    _check_rows(messages, _applied(transform, messages))


def transformed(
    spark: "SparkSession",
    archive: Archive,
    run: Run,
    choice: str,
    messages: "DataFrame",
    transform: Transform,
) -> "DataFrame":
    """Return the transformed messages, read from the archive. The transform is applied only once
    per choice, even if the job is resumed."""
    folder = f"transformed/run={run.id}/choice={choice}"
    schema = messages.select(*_GIVEN).schema
    if not is_written(archive.storage, folder):
        write_frame(_applied(transform, messages), archive.storage, folder)
        try:
            _check_rows(messages, read_frame(spark, archive.storage, folder, schema))
        except BaseException:
            archive.storage.delete_folder(folder)
            raise
    return read_frame(spark, archive.storage, folder, schema)


def _applied(transform: Transform, messages: "DataFrame") -> "DataFrame":
    from pyspark.sql import DataFrame

    try:
        changed = transform(messages)
    except RedriveError:
        raise
    except Exception as error:  # the user's function may raise anything
        text = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ConfigurationError(
            f"the transform raised {type(error).__name__}: {text[:200]}", "Nothing was sent."
        ) from error
    if not isinstance(changed, DataFrame):
        raise ConfigurationError(
            f"the transform returned a {type(changed).__name__}, not a DataFrame", _RULE
        )
    wanted = {name: messages.schema[name].dataType.simpleString() for name in _GIVEN}
    for name, kind in wanted.items():
        if name not in changed.columns:
            raise ConfigurationError(f"the transform's result has no column {name!r}", _RULE)
        found = changed.schema[name].dataType.simpleString()
        if found != kind:
            raise ConfigurationError(
                f"the transform's result has the column {name!r} as {found}, not {kind}", _RULE
            )
    return changed.select(*_GIVEN)


def _check_rows(before: "DataFrame", after: "DataFrame") -> None:
    """Check that each id is still there exactly once, and that only bodies have changed."""
    from pyspark.sql import functions as F

    untouched = [name for name in _GIVEN if name not in (ID, BODY)]
    with explained():
        old = before.select(ID, F.xxhash64(*untouched).alias("was"))
        new = after.groupBy(ID).agg(
            F.count(F.lit(1)).alias("rows"),
            F.min(F.xxhash64(*untouched)).alias("is"),
            F.min(F.col(BODY).isNotNull()).alias("full"),
        )
        both = old.join(new, ID, "full_outer").select(
            ID,
            F.when(F.col("rows").isNull(), "dropped")
            .when(F.col("was").isNull(), "added")
            .when(F.col("rows") > 1, "duplicated")
            .when(~F.col("full"), "left without a body")
            .when(F.col("was") != F.col("is"), "changed in more than the body")
            .alias("wrong"),
        )
        wrong = (
            both.where(F.col("wrong").isNotNull())
            .groupBy("wrong")
            .agg(F.count(F.lit(1)).alias("count"), F.min(ID).alias("one"))
            .collect()
        )
    if wrong:
        found = ", ".join(
            f"{row['count']} {row['wrong']} (such as {row['one']})" for row in wrong[:_SHOWN]
        )
        raise ConfigurationError(
            f"the transform's result can't be sent: {found}", f"{_RULE} Nothing was sent."
        )
