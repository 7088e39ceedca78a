"""The parts of a job make up the whole, or the page says that they do not."""

from dataclasses import replace

from redrive.failures.job_record import JobRecord
from redrive.web.job_page import JobTotals

RECORD = JobRecord("3f2a", "requeue", "shop@orders", "amqp://localhost/", planned=100)


def test_what_was_not_sent_was_not_tried() -> None:
    of_job = JobTotals.of(replace(RECORD, sent=30, handled=10, failed_told=5, not_sent=2))
    assert of_job == JobTotals(100, 10, 5, 15, 2, 68)
    assert of_job.adds_up


def test_more_than_was_planned_does_not_add_up() -> None:
    of_job = JobTotals.of(replace(RECORD, sent=101))
    assert of_job.not_tried == 0
    assert not of_job.adds_up


def test_a_job_that_sent_all_adds_up() -> None:
    of_job = JobTotals.of(replace(RECORD, sent=100, handled=100))
    assert of_job == JobTotals(100, 100, 0, 0, 0, 0)
    assert of_job.adds_up
