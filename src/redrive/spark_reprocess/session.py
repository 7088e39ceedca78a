"""Start the Spark session of a job, if the caller has none."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.prerequisites import check_java, check_libraries
from redrive.spark_reprocess.spark_errors import explained, first_line, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""This machine with all its cores; up to four attempts per task, as on a cluster."""
_QUIET = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Limits memory for large bodies: a task holds one batch at a time.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
}
"""Settings for a session that redrive starts. A caller's session keeps its own settings, including
its time zone, which jobs respect."""

_FOR_ONE_MACHINE = {"spark.sql.shuffle.partitions": "8"}
"""Only ids and counts are shuffled: Spark's default of 200 partitions costs more than it gains."""
_COMPILE_LITTLE = "-XX:TieredStopAtLevel=1"
"""Most of a job's work is that of Python and the broker. Java's second compiler would compete with
them for the processors, and is through only when the job is nearly done."""


def session_for(
    master: str | None,
    *,
    name: str = "redrive",
    settings: dict[str, str] | None = None,
    log: str | None = None,
) -> "SparkSession":
    """Return the active session, or start one."""
    check_libraries()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    # Otherwise workers run whatever python3 is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None or not _is_submitted():
        builder = builder.master(master or LOCAL)
    is_local = (master or LOCAL).startswith("local")
    small = _FOR_ONE_MACHINE if is_local else {}
    java = {"spark.driver.extraJavaOptions": _java_options(is_local=is_local)}
    for key, value in {**SETTINGS, **small, **java, **(settings or {})}.items():
        builder = builder.config(key, value)
    errors: tuple[type[Exception], ...] = (OSError, ValueError, *spark_errors())
    try:
        with _stderr_to(log):
            return builder.getOrCreate()
    except errors as error:
        raise ConfigurationError(
            f"Spark does not start: {first_line(error)}",
            "Check --master, and that its hosts can be reached.",
        ) from error


def parallelism_of(spark: "SparkSession") -> int:
    """Return how many tasks the session runs at once. Spark Connect does not say: it is seen."""
    from pyspark.sql import functions as F

    with explained():
        rows = spark.range(0, 1024).select(F.spark_partition_id().alias("part")).collect()
    return len({row["part"] for row in rows})


@contextlib.contextmanager
def _stderr_to(log: str | None) -> Iterator[None]:
    """Redirect stderr to a file for processes started in the block, since Java prints messages
    before its logging is set up."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(
        log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600
    )
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _is_submitted() -> bool:
    """Tell whether `spark-submit` or the environment sets where Spark runs."""
    return (
        "SPARK_MASTER" in os.environ
        or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
        or "PYSPARK_GATEWAY_PORT" in os.environ
    )


def _java_options(*, is_local: bool) -> str:
    quiet = f"-Dlog4j2.configurationFile=file:{_QUIET} --enable-native-access=ALL-UNNAMED"
    return f"{quiet} {_COMPILE_LITTLE}" if is_local else quiet
