"""What pages are told of the jobs that a console runs."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.order import Order
from redrive.web import job_worker
from redrive.web.console_settings import ConsoleSettings
from redrive.web.job_worker import JobWorker, _problem_of
from waiting import wait_until

NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:9/"
SAYS = """
import json, os, sys
os.dup2(int(sys.argv[-1]), 0)
error = {"kind": "", "problem": sys.argv[1] + sys.stdin.readline().strip(), "remedy": None}
print(json.dumps({"error": error}), file=sys.stderr)
"""


@pytest.fixture
def record(tmp_path: Path) -> JobRecord:
    """A job that was written down."""
    with LocalJournal(tmp_path / "journal") as journal:
        return journal._write_down(
            JobRecord(
                "3f2a9c1e", "requeue", "shop@orders", "amqp://127.0.0.1:9/", Order().as_json()
            )
        )


@pytest.fixture
def worker(tmp_path: Path, record: JobRecord) -> Iterator[JobWorker]:
    """A worker whose broker is not there: its jobs end, and say why."""
    settings = ConsoleSettings(url=NOBODY_LISTENS, journal=tmp_path / "journal")
    with closing(JobWorker(settings)) as worker:
        yield worker


def test_a_job_that_can_not_be_done_ends_says_why_and_still_waits(
    worker: JobWorker, record: JobRecord, tmp_path: Path
) -> None:
    worker.run(record)
    asked = worker.job(record.id)
    assert asked is not None
    assert not asked.has_ended
    wait_until(lambda: (now := worker.job(record.id)) and now.has_ended, "it ends")
    ended = worker.job(record.id)
    assert ended is not None
    assert "127.0.0.1:9" in ended.problem
    assert not asked.has_ended
    with LocalJournal(tmp_path / "journal") as journal:
        assert journal.job(record.id).state is State.WAITING


def test_its_process_is_told_the_address_and_nothing_else_on_its_command_line(
    worker: JobWorker, record: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_worker, "_COMMAND", (sys.executable, "-c", SAYS))
    worker.run(record)
    wait_until(lambda: (now := worker.job(record.id)) and now.has_ended, "it ends")
    ended = worker.job(record.id)
    assert ended is not None
    assert ended.problem.startswith(record.id)
    told = json.loads(ended.problem.removeprefix(record.id))
    assert told == {"url": NOBODY_LISTENS, "management_url": None, "operator": ""}


@pytest.mark.parametrize("ends", ["stop", "close"])
def test_a_job_that_was_stopped_before_it_began_has_no_problem(
    worker: JobWorker, record: JobRecord, ends: str
) -> None:
    worker.run(record)
    if ends == "stop":
        assert worker.stop(record.id)
        wait_until(lambda: (now := worker.job(record.id)) and now.has_ended, "it ends")
    else:
        worker.close()
    ended = worker.job(record.id)
    assert ended is not None
    assert (ended.has_ended, worker.stop(record.id)) == (True, False)


@pytest.mark.parametrize(
    ("code", "printed", "problem"),
    [
        (0, "", ""),
        (130, '{"error": {"kind": "Interrupted", "problem": "x", "remedy": null}}', ""),
        (-signal.SIGINT, "Traceback", ""),
        (2, 'a note\n{"error": {"kind": "X", "problem": "no", "remedy": "do"}}\n', "no\ndo"),
        (1, '{"error": {"kind": "X", "problem": "no", "remedy": null}}', "no"),
        (-9, '{"error": "cut', "the process that ran this job ended (killed by signal 9)"),
        (3, "[]", "the process that ran this job ended (exit code 3)"),
    ],
)
def test_the_problem_of_a_job_is_the_error_that_its_process_printed(
    code: int, printed: str, problem: str
) -> None:
    said = _problem_of(code, printed)
    assert said.removesuffix("\nResume the job: the journal knows what it sent.") == problem


def test_a_job_that_nobody_knows_is_none(worker: JobWorker) -> None:
    assert (worker.job("x"), worker.stop("x"), worker.process) == (None, False, None)
