"""A job on Spark in the journal: how it begins, goes on and ends there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.spark_reprocess.archive import Run, new_run
from redrive.spark_reprocess.recorded_job import JobRecorder, Kind

BROKER = "amqp://guest@host:5672/%2F"
ARCHIVE = "/srv/redrive"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[LocalJournal]:
    with LocalJournal(tmp_path / "journal.sqlite3") as opened:
        yield opened


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def recorder(journal: LocalJournal, notes: list[str]) -> JobRecorder:
    return JobRecorder(journal, BROKER, ARCHIVE, "the bank is back", notes.append)


def run_of(*dead: str, subscriptions: tuple[str, ...] = ()) -> Run:
    return new_run(BROKER, dict.fromkeys((*subscriptions, *dead), 5), dead_letter_queues=dead)


def the_job(journal: LocalJournal) -> JobRecord:
    (job,) = journal.jobs()
    return job


def test_a_job_that_ends_is_done_with_what_it_was_asked_and_what_it_did(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    run = run_of("orders.dlq")
    order = {"selection": {"where": "true", "groups": []}}
    with recorder.recording(Kind.REQUEUE, run, order, planned=5) as job:
        # It runs in this process, which would be dead without it.
        assert (the_job(journal).sent, the_job(journal).planned) == (0, 5)
        job.counted(4, possible_duplicates=1, not_sent=1)
    found = the_job(journal)
    assert (found.kind, found.state, found.reason) == (
        "spark requeue",
        State.DONE,
        "the bank is back",
    )
    assert (found.queue, found.literal, found.file) == ("orders.dlq", True, ARCHIVE)
    assert (found.sent, found.possible_duplicates, found.not_sent) == (4, 1, 1)
    assert (found.order["run"], found.order["selection"]) == (run.id, order["selection"])


def test_several_queues_are_named_and_are_no_dead_letter_queue_where_one_is_a_subscriptions(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    with recorder.recording(Kind.DRAIN, run_of("a.dlq", subscriptions=("shop@b",)), {}):
        pass
    assert (the_job(journal).queue, the_job(journal).literal) == ("shop@b, a.dlq", False)


def test_progress_of_each_stage_is_added_up(journal: LocalJournal, recorder: JobRecorder) -> None:
    with recorder.recording(Kind.REQUEUE, run_of("a.dlq"), {}) as job:
        job.progress(3, 10)
        job.stage_ended()
        job.progress(2, 20)
        assert (the_job(journal).sent, the_job(journal).planned) == (5, 10)
        job.progress(1, 20)
        assert the_job(journal).sent == 5


@pytest.mark.parametrize(
    ("stopped", "state", "problem"),
    [("", State.FAILED, "it is gone"), ("too many failed", State.STOPPED, "too many failed")],
)
def test_a_job_that_can_not_go_on_or_stops_says_why(
    journal: LocalJournal, recorder: JobRecorder, stopped: str, state: State, problem: str
) -> None:
    def end_early() -> None:
        with recorder.recording(Kind.REQUEUE, run_of("a.dlq"), {}) as job:
            job.stopped = stopped
            raise ConfigurationError("it is gone", "Look for it.")

    with pytest.raises(RedriveError):
        end_early()
    assert (the_job(journal).state, the_job(journal).problem) == (state, problem)


def test_what_nobody_foresaw_is_an_interruption(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    with pytest.raises(KeyboardInterrupt), recorder.recording(Kind.DRAIN, run_of("a.dlq"), {}):
        raise KeyboardInterrupt
    assert the_job(journal).state is State.INTERRUPTED


def test_a_run_that_is_taken_up_goes_on_as_the_same_job(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    run = run_of("a.dlq")

    def interrupted() -> None:
        with recorder.recording(
            Kind.REQUEUE, run, {}, planned=9, counted_before=lambda: 7
        ) as first:
            first.progress(4, 9)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    first_id = the_job(journal).id
    with recorder.recording(Kind.REQUEUE, run, {}, planned=5, counted_before=lambda: 11) as second:
        assert (second.record.id, second.record.sent) == (first_id, 4)
        assert second.counted_before == 7
        second.progress(5, 5)
    assert (the_job(journal).state, the_job(journal).sent, the_job(journal).planned) == (
        State.DONE,
        9,
        9,
    )


def test_another_run_and_another_kind_and_what_is_done_are_jobs_of_their_own(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    run = run_of("a.dlq")
    for kind, one in (
        (Kind.DRAIN, run),
        (Kind.REQUEUE, run),
        (Kind.REQUEUE, run),
        (Kind.REQUEUE, run_of("a.dlq")),
    ):
        with recorder.recording(kind, one, {}):
            pass
    assert journal.count() == 4


def test_a_count_that_somebody_else_has_made_up_counts_for_nothing(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    run = run_of("a.dlq")
    order: dict[str, object] = {"run": run.id, "counted_before": "many"}
    forged = JobRecord("1", "spark requeue", "a.dlq", BROKER, order, state=State.INTERRUPTED)
    journal.begin(forged)
    journal.update(forged)
    with recorder.recording(Kind.REQUEUE, run, {}) as job:
        assert (job.record.id, job.counted_before) == ("1", 0)


def test_without_a_journal_nothing_is_written(notes: list[str]) -> None:
    recorder = JobRecorder(None, BROKER, ARCHIVE, "", notes.append)
    with recorder.recording(Kind.DRAIN, run_of("a.dlq"), {}) as job:
        job.progress(3, 5)
        job.counted(5)
    assert (recorder.is_on, job.record.sent, notes) == (False, 5, [])


def test_a_journal_that_is_gone_before_it_begins_is_told_of_once(
    journal: LocalJournal, recorder: JobRecorder, notes: list[str]
) -> None:
    journal.close()
    for _ in range(2):
        with recorder.recording(Kind.DRAIN, run_of("a.dlq"), {}) as job:
            job.progress(3, 5)
    (note,) = notes
    assert note.startswith("The journal can't be used (")
    assert note.endswith("): the job continues, but is no longer recorded.")


def test_a_journal_that_goes_away_meanwhile_is_told_of_once(
    journal: LocalJournal, recorder: JobRecorder, notes: list[str]
) -> None:
    with recorder.recording(Kind.DRAIN, run_of("a.dlq"), {}) as job:
        journal.close()
        for done in (1, 2, 3):
            job.progress(done, 5)
    assert len(notes) == 1


def test_what_is_chosen_otherwise_is_another_job(
    journal: LocalJournal, recorder: JobRecorder
) -> None:
    run = run_of("a.dlq")

    def interrupted(order: dict[str, object]) -> None:
        with recorder.recording(Kind.REQUEUE, run, order):
            raise KeyboardInterrupt

    orders: list[dict[str, object]] = [
        {"selection": {"where": "a"}},
        {"selection": {"where": "b"}},
        {"to": "c"},
    ]
    for order in orders:
        with pytest.raises(KeyboardInterrupt):
            interrupted(order)
    with recorder.recording(Kind.REQUEUE, run, {"to": "c", "rate": 5}) as job:
        before = job.record.order
    assert journal.count() == 3
    assert (before["to"], "rate" in before) == ("c", False)  # as it was begun
