"""How far a run of a job has got, as others on the machine read it."""

import os
from collections import Counter
from pathlib import Path

import pytest

from redrive.failures.jobs.job_record import RunProgress
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.jobs.requeue_job import OutcomeCounts
from redrive.failures.jobs.run_reporter import RunReporter
from redrive.failures.message.cause import Cause
from redrive.pubsub.reports import RequeueProgress
from redrive.topology.outcome_events import OutcomeTotals


@pytest.fixture
def journal(tmp_path: Path) -> LocalJournal:
    return LocalJournal(tmp_path / "journal")


def shown(journal: LocalJournal) -> RunProgress:
    return journal._progress("3f2a", os.getpid())


def test_everything_that_a_run_tells_is_read_by_whoever_asks(journal: LocalJournal) -> None:
    reporter = RunReporter(journal, "3f2a")
    reporter.planned(12)
    for sent in (0, 7):
        reporter.progress(RequeueProgress(10, sent, sent))
    cause = Cause("KeyError", "plan", "shop.py:price")
    reporter.outcome(OutcomeCounts(OutcomeTotals(3, 3, 1), Counter({cause: 1})))
    reporter.notice("the canary is watched")
    now = shown(journal)
    assert (now.planned, now.sent, now.looked_at) == (12, 7, 7)
    assert (now.succeeded, now.retrying, now.failed_again) == (3, 2, 1)
    assert [tuple(one) for one in now.causes] == [(cause.group_id, cause.what, 1)]
    assert (now.notices, now.rate > 0) == (["the canary is watched"], True)
    reporter.end(7)
    assert shown(journal).rate == 0.0


def test_what_another_process_has_told_is_of_another_run(journal: LocalJournal) -> None:
    RunReporter(journal, "3f2a").planned(12)
    assert journal._progress("3f2a", 1) == RunProgress()


def test_of_many_notices_the_last_are_kept(journal: LocalJournal) -> None:
    reporter = RunReporter(journal, "3f2a")
    for number in range(100):
        reporter.notice(str(number))
    assert shown(journal).notices == [str(number) for number in range(80, 100)]


def test_a_file_that_can_not_be_written_stops_no_job(journal: LocalJournal) -> None:
    journal.close()
    journal.path.unlink()
    RunReporter(journal, "3f2a").notice("nobody reads this")
