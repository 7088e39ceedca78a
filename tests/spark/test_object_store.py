"""An archive on S3, in a session that has no jars for it: Arrow reads and writes it."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import redrive.spark
from redrive.errors import ConfigurationError
from redrive.spark_reprocess import storage
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.archive_reader import messages
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.spark_job import SparkJob
from spark.s3_server import BUCKET, KEY, SECRET, S3Server, s3_server
from spark.support import QUEUE, Failures, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60
WHERE = "error_type = 'KeyError'"


@pytest.fixture
def s3(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that this process and the session's tasks find in their environment."""
    with s3_server() as server:
        tasks = spark.sparkContext.environment
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(tasks, name, value)
        storage._filesystem_at.cache_clear()
        yield server
        storage._filesystem_at.cache_clear()


def test_all_phases_work_on_s3_with_lost_connections_and_partial_files(
    spark: "SparkSession", rabbitmq_url: str, s3: S3Server
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    archive = Archive(f"s3a://{BUCKET}/redrive")
    s3.faults.cut, s3.faults.shorten = 1, 1
    choice = Selection(WHERE, patch='[{"op": "add", "path": "/fixed", "value": true}]')
    with pytest.raises(ConfigurationError) as partial:
        SparkJob(spark, archive, rabbitmq_url).drain([QUEUE], file_rows=20)
    # The connection was tried again; half a file is none, and its messages are in their queue.
    assert s3.faults.done == ["cut", "shortened"]
    assert "bytes arrived" in str(partial.value)
    assert len(str(partial.value).splitlines()) == 2
    assert rows_drained(archive, archive.run()) == 0

    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE], file_rows=20)
    assert rows_drained(archive, run) == COUNT
    assert {row["queue"] for row in messages(spark, archive).collect()} == {QUEUE}
    planned = job.plan(run, choice)
    assert (planned.count, 0 < planned.chosen < COUNT) == (COUNT, True)
    identity = job.send_and_verify(run, choice, chosen=planned.chosen)
    assert (identity.holds, identity.requeued) == (True, planned.chosen)
    job.restore(run)
    identity = job.verify(run)
    assert (identity.requeued, identity.restored) == (planned.chosen, COUNT - planned.chosen)
    sent = failures.in_main()
    assert all(json.loads(one.body)["fixed"] for one in sent)
    assert sorted([*numbers(sent), *numbers(failures.in_failed())]) == list(range(COUNT))
    assert archive.storage.exists(f"reports/{run.id}.html")
    assert json.loads(archive.storage.read(f"reports/{run.id}.json") or b"")["holds"]


@pytest.mark.nightly("what a transform makes is kept the same way")
def test_what_a_dataframe_decides_is_kept_on_s3(
    spark: "SparkSession", rabbitmq_url: str, s3: S3Server
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    half = spark.createDataFrame([(one,) for one in failures.ids(COUNT)[::2]], "failure_id string")
    identity = redrive.spark.requeue(half, rabbitmq_url, f"s3://{BUCKET}/decided", QUEUE)
    assert str(identity) == "60 drained = 30 requeued + 30 restored + 0 kept + 0 discarded"
    assert numbers(failures.in_main()) == list(range(0, COUNT, 2))


def test_an_error_of_the_store_has_two_lines_and_no_credentials(
    spark: "SparkSession", rabbitmq_url: str, s3: S3Server
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    with pytest.raises(ConfigurationError, match="NO_SUCH_BUCKET") as error:
        redrive.spark.drain(spark, rabbitmq_url, QUEUE, "s3a://nobodys/redrive")
    assert len(str(error.value).splitlines()) == 2
    assert not [word for word in (KEY, SECRET) if word in str(error.value)]
    assert failures.depths() == (0, COUNT)
