"""What pages are told of the jobs that a console's worker runs."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from redrive.failures.queue.order import Order
from redrive.web.console_settings import ConsoleSettings
from redrive.web.job_worker import JobWorker
from redrive.web.page_request import QueuePlace
from waiting import wait_until

NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:9/"


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[JobWorker]:
    """A worker whose broker is not there: its jobs end, and say why."""
    settings = ConsoleSettings(url=NOBODY_LISTENS, journal=tmp_path / "journal")
    with closing(JobWorker(settings)) as worker:
        yield worker


def test_how_a_job_stands_does_not_change_for_who_has_asked(worker: JobWorker) -> None:
    id_ = worker.begin(QueuePlace("shop@orders"), Order(), "fixed")
    asked = worker.job(id_)
    assert asked is not None
    before = asked.encode()
    wait_until(lambda: (now := worker.job(id_)) and now.problem, "it says why")
    assert asked.encode() == before
