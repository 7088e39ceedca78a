"""What Spark says of a failed task, as an error of ours."""

import pytest

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.spark_reprocess.prerequisites import check_java
from redrive.spark_reprocess.spark_errors import error_of

_SPARK = """\
Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    task.take()
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:1)
Driver stacktrace:
"""


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnavailable(
            "amqp://guest@localhost:5672/%2F", "nothing listens there (connection refused)"
        ),
        ConfigurationError(
            "the archive can't be written: /a/b: No space left on device", "Make room."
        ),
        PermissionDenied("access refused", "Grant it."),
    ],
)
def test_the_error_that_a_task_raised_is_raised_again(error: RedriveError) -> None:
    found = error_of(_SPARK.format(error=f"redrive.errors.{type(error).__name__}: {error}"))
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_what_somebody_else_raised_is_named() -> None:
    found = error_of(_SPARK.format(error="ValueError: no such colour"))
    assert "the Spark job failed: ValueError: no such colour" in str(found)


_JAVA = """\
An error occurred while calling o40.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult: 
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)
Caused by: {cause}
\tat org.apache.spark.sql.execution.SparkPlan.executeTake(SparkPlan.scala:1)
"""


def test_what_java_names_as_the_cause_is_told() -> None:
    found = str(error_of(_JAVA.format(cause="java.io.IOException: No space left on device")))
    assert found.startswith("the Spark job failed: IOException: No space left on device")


def test_a_file_that_spark_can_not_read_is_named() -> None:
    cause = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while "
        "reading file file:///srv/ledger/run=1/part-0.parquet.  SQLSTATE: KD001"
    )
    found = error_of(_JAVA.format(cause=cause))
    assert (
        str(found)
        .splitlines()[0]
        .startswith("/srv/ledger/run=1/part-0.parquet is damaged, or can't be read")
    )


def test_a_text_without_an_error_is_told_by_its_first_line() -> None:
    assert "Answer from Java side is empty" in str(error_of("Answer from Java side is empty"))


def test_no_password_comes_through() -> None:
    assert "secret-word" not in str(error_of("ValueError: can't reach amqp://me:secret-word@host/"))


def test_a_missing_java_is_told_of_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="there is no java on PATH") as raised:
        check_java()
    assert "openjdk-17-jre-headless" in raised.value.remedy


def test_a_java_home_without_java_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigurationError, match="JAVA_HOME"):
        check_java()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ('openjdk version "11.0.2" 2019', "is Java 11"),
        ('java version "1.8.0_292"', "is Java 8"),
        ("?", "does not say its version"),
    ],
)
def test_an_old_java_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, says: str, told: str
) -> None:
    from pathlib import Path

    program = Path(str(tmp_path)) / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=told):
        check_java()
