"""A function of the user's that changes bodies before they are sent: applied once, kept, and checked before anything is sent."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, RedriveError
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.failing import explained
from redrive.spark_reprocess.publishing import ID
from redrive.spark_reprocess.sending import SENT_COLUMNS
from redrive.spark_reprocess.stored import BODY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]
_RULE = "A transform changes body_bytes, and leaves the other columns and the rows as they are."
_SHOWN = 3


def transform_named(name: str) -> Transform:
    """The function that `module:function` names; modules in the current folder are found.

    Raises:
        ConfigurationError: there is none.
    """
    from pyspark import cloudpickle

    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigurationError(f"the transform {name!r} names no function", "Write module:function.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything
        raise ConfigurationError(
            f"the module {module_name!r} of the transform can't be imported: {error!r}", "Check its name, and that it is here."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"the module {module_name!r} has no function {function_name!r}", "Check the name behind the colon.")
    # Executors need not have the module: what a transform takes of it travels with the job.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    transform: Transform = function
    return transform


def check(messages: "DataFrame", transform: Transform) -> None:
    """Applies a transform to the messages and looks at its result; nothing is kept.

    Raises:
        ConfigurationError: it raises, or its result has other columns, types, ids or rows.
    """
    _check_rows(messages, _applied(transform, messages))


def transformed(spark: "SparkSession", archive: Archive, run: Run, choice: str, messages: "DataFrame", transform: Transform) -> "DataFrame":
    """The messages as a transform makes them, out of the archive: it is applied once for a choice, also where that is taken up again.

    Args:
        spark: the session.
        archive: where the run is.
        run: the run.
        choice: a name for what of the run is sent, and how it is changed.
        messages: what is sent.
        transform: what changes it.

    Raises:
        ConfigurationError: it raises, or its result has other columns, types, ids or rows.
    """
    folder = f"transformed/run={run.id}/choice={choice}"
    if not archive.storage.exists(f"{folder}/_SUCCESS"):
        changed = _applied(transform, messages)
        with explained():
            archive.storage.make_folder("transformed")
            changed.write.mode("overwrite").parquet(archive.storage.uri_of(folder))
        try:
            _check_rows(messages, spark.read.parquet(archive.storage.uri_of(folder)))
        except BaseException:
            archive.storage.delete_folder(folder)
            raise
    return spark.read.parquet(archive.storage.uri_of(folder))


def _applied(transform: Transform, messages: "DataFrame") -> "DataFrame":
    from pyspark.sql import DataFrame

    try:
        changed = transform(messages)
    except RedriveError:
        raise
    except Exception as error:  # the user's function may raise anything
        text = next((line for line in str(error).splitlines() if line.strip()), "")
        raise ConfigurationError(f"the transform raised {type(error).__name__}: {text[:200]}", "Nothing was sent.") from error
    if not isinstance(changed, DataFrame):
        raise ConfigurationError(f"the transform gave a {type(changed).__name__}, not a DataFrame", _RULE)
    wanted = {name: messages.schema[name].dataType.simpleString() for name in SENT_COLUMNS}
    for name, kind in wanted.items():
        if name not in changed.columns:
            raise ConfigurationError(f"the transform's result has no column {name!r}", _RULE)
        found = changed.schema[name].dataType.simpleString()
        if found != kind:
            raise ConfigurationError(f"the transform's result has the column {name!r} as {found}, not {kind}", _RULE)
    return changed.select(*SENT_COLUMNS)


def _check_rows(before: "DataFrame", after: "DataFrame") -> None:
    """Each id once, as before, and only the body changed."""
    from pyspark.sql import functions as F

    untouched = [name for name in SENT_COLUMNS if name not in (ID, BODY)]
    with explained():
        old = before.select(ID, F.xxhash64(*untouched).alias("was"))
        new = after.groupBy(ID).agg(
            F.count(F.lit(1)).alias("rows"), F.min(F.xxhash64(*untouched)).alias("is"), F.min(F.col(BODY).isNotNull()).alias("full")
        )
        both = old.join(new, ID, "full_outer").select(
            ID,
            F.when(F.col("rows").isNull(), "dropped")
            .when(F.col("was").isNull(), "made up")
            .when(F.col("rows") > 1, "doubled")
            .when(~F.col("full"), "left without a body")
            .when(F.col("was") != F.col("is"), "changed in more than the body")
            .alias("wrong"),
        )
        wrong = (
            both.where(F.col("wrong").isNotNull()).groupBy("wrong").agg(F.count(F.lit(1)).alias("count"), F.min(ID).alias("one")).collect()
        )
    if wrong:
        found = ", ".join(f"{row['count']} {row['wrong']} (such as {row['one']})" for row in wrong[:_SHOWN])
        raise ConfigurationError(f"the transform's result can't be sent: {found}", f"{_RULE} Nothing was sent.")
