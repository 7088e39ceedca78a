"""The Spark session that a job runs on, where the caller has none."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError
from redrive.redaction import redact
from redrive.spark_reprocess.java import check_java
from redrive.spark_reprocess.prerequisites import check_libraries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.spark_reprocess.storage import Storage

LOCAL = "local[*,4]"
"""This machine with all its cores; a task that fails is tried again, as on a cluster."""
_QUIET = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Large bodies must not gather: a batch is what a task holds at a time.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
}
"""What a job needs of a session. A session of the caller's keeps its own settings; its time zone is
read and heeded."""

_FOR_ONE_MACHINE = {"spark.sql.shuffle.partitions": "8"}
"""What is shuffled are ids and counts: Spark's 200 partitions cost more than what is in them."""


def session_for(
    master: str | None,
    *,
    name: str = "redrive",
    settings: dict[str, str] | None = None,
    log: str | None = None,
) -> "SparkSession":
    """The session that is there, or a new one."""
    check_libraries()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    # Workers would otherwise be whatever python3 is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None or not _is_submitted():
        builder = builder.master(master or LOCAL)
    small = _FOR_ONE_MACHINE if (master or LOCAL).startswith("local") else {}
    for key, value in {**SETTINGS, **small, **_quiet(), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log):
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"Spark does not start: {_first_line(error)}",
            "Check --master, and that its hosts can be reached.",
        ) from error


def check_reads(spark: "SparkSession", storage: "Storage") -> None:
    """Looks whether Spark can read where an archive is: tasks write there past Spark, which may
    lack the jars for it."""
    from py4j.protocol import Py4JError

    if storage.is_local:
        return
    context = spark.sparkContext
    try:
        context._jvm.org.apache.hadoop.fs.Path(storage.uri).getFileSystem(  # type: ignore[union-attr]
            context._jsc.hadoopConfiguration()
        )
    except Py4JError as error:
        raise ConfigurationError(
            f"Spark can't read {storage.uri}: {_first_line(error)}",
            "Give it Hadoop's jars for this store, such as spark.jars.packages "
            "org.apache.hadoop:hadoop-aws:… for s3a.",
        ) from error


@contextlib.contextmanager
def _stderr_to(log: str | None) -> Iterator[None]:
    """What is started inside writes to a file what it would write to stderr: Java says things
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
    """Whether `spark-submit` or the environment says where Spark runs."""
    return (
        "SPARK_MASTER" in os.environ
        or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
        or "PYSPARK_GATEWAY_PORT" in os.environ
    )


def _quiet() -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_QUIET} "
        "--enable-native-access=ALL-UNNAMED"
    }


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    causes = [
        line.removeprefix(": ") for line in lines if "Exception: " in line or "Error: " in line
    ]
    return (causes or lines or [type(error).__name__])[0][:300]
