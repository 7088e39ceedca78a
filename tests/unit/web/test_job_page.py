"""A job's timeline, and how long it took."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.journal_entry import JobEvent, JobStep
from redrive.web.job_page import timeline_of, took

RECORD = JobRecord("3f2a", "requeue", "shop@orders", "amqp://localhost/", planned=100)


def test_the_time_that_a_job_took_is_that_of_its_runs() -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)

    def event(step: JobStep, seconds: int) -> JobEvent:
        return JobEvent(begun + timedelta(seconds=seconds), step, "anna", "stopped", "5 failed")

    events = [
        event(JobStep.BEGUN, 0),
        event(JobStep.STOPPED, 10),
        event(JobStep.RESUMED, 500),
        event(JobStep.ENDED, 510),
    ]
    assert took(replace(RECORD, sent=100), events) == "20s in 2 runs, 5 messages a second"
    assert [what for _, what, _ in timeline_of(RECORD, events)] == [
        *("started", "stopped: 5 failed", "resumed", "stopped: 5 failed")
    ]
    assert took(RECORD, []) == ""
    assert [what for _, what, _ in timeline_of(RECORD, [])] == ["started", "running"]
