"""Jobs on Spark in the team's journal: what was done, by whom, why, and how it ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli_support import find_the_management_api, redrive
from dead_letters import DeadLetters
from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.jobs.job_record import State
from redrive.failures.jobs.journal import Journal
from redrive.failures.queue.canary import Guards
from redrive.failures.store.operator_name import whoami
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.spark_reprocess import send
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.send import StoppedEarly
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.topology.model import Queue
from spark.support import QUEUE, Failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 40
QUICK = JobOptions(sending=SendSettings(timeout=20, batch=50))


@pytest.fixture(autouse=True)
def _management(rabbitmq_management_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What messages say of their way is checked by the management API."""
    find_the_management_api(monkeypatch, rabbitmq_management_url)


@pytest.fixture
def journal(rabbitmq_url: str, tmp_path: Path) -> Iterator[Journal]:
    """The journal at the broker."""
    with Journal(rabbitmq_url, tmp_path / "mine.sqlite3") as opened:
        yield opened


@pytest.fixture
def elsewhere(rabbitmq_url: str, tmp_path: Path) -> Iterator[Journal]:
    """The same on another machine: what it knows, it has read at the broker."""
    with Journal(rabbitmq_url, tmp_path / "theirs.sqlite3") as opened:
        yield opened


@pytest.mark.versions("streams")
def test_everybody_sees_what_was_drained_and_requeued_by_whom_and_why(
    spark: "SparkSession",
    archive: Archive,
    rabbitmq_url: str,
    journal: Journal,
    elsewhere: Journal,
) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    dead.fail(COUNT)
    where = "cast(message_id as int) < 10"
    identity = requeue(
        spark,
        archive,
        rabbitmq_url,
        [dead.place],
        where=where,
        options=QUICK,
        journal=journal,
        reason="the bank is back",
    )

    assert identity.requeued == 10
    sent, drained = elsewhere.jobs()
    assert [(job.kind, job.state, job.planned, job.sent) for job in (drained, sent)] == [
        ("spark drain", State.DONE, COUNT, COUNT),
        ("spark requeue", State.DONE, 10, 10),
    ]
    for job in (drained, sent):
        assert (job.queue, job.literal, job.reason) == (dead.place, True, "the bank is back")
        assert (job.who, job.user) == (whoami(), "guest")
        assert (job.file, job.order["run"]) == (archive.storage.uri, identity.run)
    assert sent.order["selection"] == {"where": where, "groups": []}


@pytest.mark.nightly("another job is written down each time")
def test_what_is_restored_and_discarded_is_written_down(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, journal: Journal
) -> None:
    Failures(rabbitmq_url).fill(COUNT)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK, journal=journal)
    run = job.drain([QUEUE])
    gone = job.discard(run, Selection("error_type = 'TimeoutError'"))
    job.restore(run)

    restored, discarded, drained = journal.jobs()
    assert (drained.kind, drained.sent) == ("spark drain", COUNT)
    assert (discarded.kind, discarded.state, discarded.sent) == ("spark discard", State.DONE, gone)
    assert (restored.kind, restored.state) == ("spark restore", State.DONE)
    assert (restored.planned, restored.sent) == (COUNT - gone, COUNT - gone)


@pytest.mark.nightly("another job is written down each time")
def test_a_job_that_its_canary_stopped_is_written_down_as_stopped_and_goes_on_as_the_same(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, journal: Journal
) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    dead.fail(COUNT)
    careful = JobOptions(Guards(canary=5), QUICK.sending)
    with dead.consumer(lambda _: False), pytest.raises(StoppedEarly):
        SparkJob(spark, archive, rabbitmq_url, careful, journal=journal).requeue([dead.place])
    stopped = journal.jobs()[0]
    assert (stopped.kind, stopped.state, stopped.sent) == ("spark requeue", State.STOPPED, 5)
    assert "failed again" in stopped.problem
    assert (stopped.planned, stopped.order["guards"]) == (COUNT, careful.guards.as_json())

    SparkJob(spark, archive, rabbitmq_url, QUICK, journal=journal).requeue([dead.place])
    done = journal.jobs()[0]
    assert (done.id, done.state, done.sent) == (stopped.id, State.DONE, COUNT)


@pytest.mark.nightly("another job is written down each time")
def test_a_job_that_could_not_go_on_says_why(
    spark: "SparkSession",
    archive: Archive,
    rabbitmq_url: str,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Failures(rabbitmq_url).fill(5)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK, journal=journal)
    run = job.drain([QUEUE])

    def away(*_: object, **__: object) -> str:
        raise BrokerUnavailable("the broker", "it went away")

    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(send, "send", away)
        with pytest.raises(BrokerUnavailable):
            job.send_and_verify(run, Selection())
        patch.setattr(send, "send", interrupted)
        failed = journal.jobs()[0]
        with pytest.raises(KeyboardInterrupt):
            job.send_and_verify(run, Selection())
    assert (failed.state, "it went away" in failed.problem) == (State.FAILED, True)
    assert journal.jobs()[0].state is State.INTERRUPTED


def test_of_two_who_go_on_with_one_run_the_second_is_told(
    spark: "SparkSession",
    archive: Archive,
    rabbitmq_url: str,
    journal: Journal,
    elsewhere: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = Failures(rabbitmq_url).fill(5)
    mine = SparkJob(spark, archive, rabbitmq_url, QUICK, journal=journal)
    theirs = SparkJob(spark, archive, rabbitmq_url, QUICK, journal=elsewhere)
    run = mine.drain([QUEUE])
    really_send = send.send
    told: list[str] = []

    def while_they_begin(*arguments: Any, **named: Any) -> str:
        with pytest.raises(ConfigurationError, match="is running, by") as refused:
            theirs.send_and_verify(run, Selection())
        told.append(str(refused.value))
        return really_send(*arguments, **named)

    monkeypatch.setattr(send, "send", while_they_begin)
    mine.send_and_verify(run, Selection())
    assert len(told) == 1
    assert failures.depths() == (5, 0)


@pytest.mark.nightly("another job is written down each time")
def test_where_the_journal_can_not_be_used_the_job_goes_on_and_says_so(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url).fill(5)
    # Somebody has a queue of another kind under the journal's name.
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        declarer.declare(Queue("redrive.journal", {"x-queue-type": "classic"}))
    notes: list[str] = []
    with Journal(rabbitmq_url, tmp_path / "mine.sqlite3", on_notice=notes.append) as journal:
        requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK, journal=journal)
        kinds = [job.kind for job in journal.jobs()]
    assert failures.depths() == (5, 0)
    assert [note for note in notes if "only the local file" in note]
    assert kinds == ["spark requeue", "spark drain"]


@pytest.mark.nightly("another job is written down each time")
def test_a_local_file_that_can_not_be_opened_does_not_keep_a_job_from_running(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url).fill(5)
    place = archive.storage.uri
    done = redrive(
        *("spark", "requeue", QUEUE, "--archive", place, "--yes"),
        *("--journal", str(tmp_path)),
        url=rabbitmq_url,
    )
    assert done.code == 0, done.err
    assert done.error_lines[0].startswith("The journal can't be used (")
    assert failures.depths() == (5, 0)


def test_the_commands_on_jobs_show_it_and_say_how_it_is_continued(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    dead.fail(COUNT)
    place = archive.storage.uri
    arguments = (
        *("spark", "requeue", dead.place, "--archive", place, "--yes"),
        *("--where", "message_id <> '3'", "--reason", "the bank is back"),
    )
    with dead.consumer(lambda _: False):
        stopped = redrive(*arguments, "--canary", "5", url=rabbitmq_url)
    assert stopped.code == 1, stopped.err
    listed = redrive("jobs", "list", "--output", "json", url=rabbitmq_url).json()
    job = next(one for one in listed if one["kind"] == "spark requeue")
    assert (job["state"], job["sent"], job["reason"]) == ("stopped", 5, "the bank is back")

    shown = redrive("jobs", "show", job["id"], url=rabbitmq_url)
    assert shown.code == 0, shown.err
    for line in (
        "action        spark requeue",
        "which         where message_id <> '3'",
        f"run           {Archive(place).run().id}",
        "requeued      5",
        f"archive       {place}",
    ):
        assert line in shown.out.splitlines()
    resumed = redrive("jobs", "resume", job["id"], "--yes", url=rabbitmq_url)
    assert resumed.code == 2
    command = (
        f"redrive spark requeue {dead.place} --archive {place} --where "
        """'message_id <> '"'"'3'"'"''"""
    )
    assert resumed.error_lines == [
        f"Error: job {job['id']} is a spark requeue: its messages are in the archive {place}",
        f"Continue it there: {command}",
    ]
    assert redrive(*arguments, url=rabbitmq_url).code == 0
    done = redrive("jobs", "show", job["id"], "--output", "json", url=rabbitmq_url).json()
    assert (done["state"], done["sent"]) == ("done", COUNT - 1)
    after = redrive("jobs", "resume", job["id"], "--yes", url=rabbitmq_url)
    assert (after.code, after.out.splitlines()[-1]) == (
        0,
        f"Job {job['id']} is done: nothing to resume.",
    )
