"""Stopping a job that somebody else runs: what is asked, who is told, and who heeds it."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.jobs import job_stop
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.job_stop import Stopper, stop
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.store.operator_name import whoami
from waiting import wait_until

JOB = JobRecord("job-1", "requeue", "ucenter@user", "amqp://host/")


class RunElsewhere(LocalJournal):
    """The journal as another process has it open, while somebody else runs the job."""

    def _is_running(self, job: JobRecord) -> bool:
        return job.state is State.RUNNING


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[LocalJournal]:
    """The journal of who runs the job."""
    with LocalJournal(tmp_path / "journal.sqlite3") as journal:
        yield journal


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalJournal]:
    """The same file, opened by somebody else."""
    with RunElsewhere(tmp_path / "journal.sqlite3") as journal:
        yield journal


def test_a_run_that_somebody_asks_to_stop_stops_and_says_who_asked(
    journal: LocalJournal, other: LocalJournal
) -> None:
    job = journal.begin(JOB)
    with Stopper(journal, job, threading.Event()) as stopper:
        assert not stopper.is_set()
        other.ask_to_stop(job)
        wait_until(stopper.is_set, "it is told")
        assert stopper.problem == f"stopped by {whoami()}"


def test_a_run_that_is_cancelled_by_whoever_runs_it_was_stopped_by_nobody_else(
    journal: LocalJournal,
) -> None:
    cancel = threading.Event()
    with Stopper(journal, journal.begin(JOB), cancel) as stopper:
        cancel.set()
        assert stopper.is_set()
        assert stopper.problem == ""


def test_a_later_run_of_the_job_is_not_the_one_that_was_asked_to_stop(
    journal: LocalJournal, other: LocalJournal
) -> None:
    other.ask_to_stop(journal.begin(JOB))
    resumed = journal.begin(JOB)
    assert journal.stop_asked_by(resumed) == ""


def test_stopping_returns_when_the_job_has_stopped(
    journal: LocalJournal, other: LocalJournal
) -> None:
    job = journal.begin(JOB)

    def run() -> None:
        with Stopper(journal, job, threading.Event()) as stopper:
            wait_until(stopper.is_set, "it is told")
        journal.update(replace(job, state=State.INTERRUPTED, problem=stopper.problem))

    running = threading.Thread(target=run)
    running.start()
    stop(other, job)
    running.join()
    assert other.job(JOB.id).state is State.INTERRUPTED


def test_a_job_that_nobody_runs_is_not_stopped(journal: LocalJournal, other: LocalJournal) -> None:
    job = journal.begin(JOB)
    journal.update(replace(job, state=State.DONE))
    with pytest.raises(ConfigurationError, match="job job-1 is done: nobody runs it"):
        stop(other, job)


def test_a_job_that_asks_nobody_is_stopped_only_where_it_runs(
    journal: LocalJournal, other: LocalJournal
) -> None:
    job = journal.begin(replace(JOB, kind="discard"))
    with pytest.raises(
        ConfigurationError, match=r"\(discard\) is not a requeue, and can only be stopped"
    ):
        stop(other, job)


def test_a_job_that_does_not_heed_it_is_asked_again_and_told_of(
    journal: LocalJournal, other: LocalJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_stop, "_STOPS_WITHIN", 0.5)
    monkeypatch.setattr(job_stop, "_ASKED_AGAIN_EVERY", 0.0)
    asked: list[str] = []
    monkeypatch.setattr(other, "ask_to_stop_again", lambda job: asked.append(job.id))
    with pytest.raises(ConfigurationError, match="was asked to stop, but did not within"):
        stop(other, journal.begin(JOB))
    assert JOB.id in asked


def test_a_journal_that_can_not_be_read_for_a_moment_is_read_again(
    journal: LocalJournal, other: LocalJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_stop, "_AFTER_TROUBLE", 0.01)
    read = journal.stop_asked_by
    troubles = iter([BrokerUnavailable("amqp://host/", "gone", "Wait.")])

    def asked(job: JobRecord) -> str:
        for trouble in troubles:
            raise trouble
        return read(job)

    monkeypatch.setattr(journal, "stop_asked_by", asked)
    job = journal.begin(JOB)
    with Stopper(journal, job, threading.Event()) as stopper:
        other.ask_to_stop(job)
        wait_until(stopper.is_set, "it is told")
