"""The process of a console's jobs: what it is told, and what it tells."""

import io
import json
import os
from pathlib import Path

import pytest

from redrive.failures.queue.order import Order
from redrive.pubsub.reports import RequeueProgress
from redrive.topology.names import ExchangeFamily
from redrive.web.console_job import Task, TaskKind
from redrive.web.worker_process import Worker, WorkerRun

NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:9/"


@pytest.fixture
def begin(tmp_path: Path) -> Task:
    """A job whose broker is not there: it ends, and says why."""
    return Task(
        kind=TaskKind.BEGIN,
        id="3f2a9c1e",
        url=NOBODY_LISTENS,
        queue="shop@orders",
        journal=str(tmp_path / "journal"),
        family=ExchangeFamily().as_json(),
        order=Order().as_json(),
        reason="fixed",
    )


def told_by(*tasks: Task) -> list[dict[str, object]]:
    """What a worker tells until its input ends."""
    told = io.BytesIO()
    Worker(io.BytesIO(b"".join(task.encode() for task in tasks)), told).run()
    return [json.loads(line) for line in told.getvalue().splitlines()]


def test_a_worker_without_a_console_ends() -> None:
    assert told_by() == []


def test_a_job_that_can_not_be_done_ends_and_says_why(begin: Task) -> None:
    last = told_by(begin)[-1]
    assert last["id"] == begin.id
    assert last["has_ended"] is True
    assert "127.0.0.1:9" in str(last["problem"])


def test_what_does_not_run_is_stopped_without_a_word() -> None:
    assert told_by(Task(kind=TaskKind.STOP, id="x")) == []


def test_a_worker_whose_console_has_ended_waits_until_its_jobs_have(begin: Task) -> None:
    told = io.BytesIO()
    worker = Worker(io.BytesIO(begin.encode()), told)
    worker.run()
    assert worker.ended.is_set()
    assert json.loads(told.getvalue().splitlines()[-1])["has_ended"] is True


def test_the_rate_is_that_of_the_last_seconds(begin: Task) -> None:
    told = io.BytesIO()
    run = WorkerRun(begin, told)
    for sent in (0, 100):
        run._progress(RequeueProgress(100, sent, sent))
    first = json.loads(told.getvalue().splitlines()[0])
    assert first["sent"] == 0
    run._notice("the canary is watched")
    last = json.loads(told.getvalue().splitlines()[-1])
    assert last["sent"] == 100
    assert last["rate"] > 0
    assert last["notices"] == ["the canary is watched"]


def test_a_console_that_is_gone_stops_no_job(begin: Task) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as told:
        WorkerRun(begin, told)._notice("nobody reads this")
