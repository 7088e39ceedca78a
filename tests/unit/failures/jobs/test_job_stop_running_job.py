"""Who requeues messages of a queue now, as the journal has it."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.job_stop import check_alone, in_words, running_on
from redrive.failures.jobs.local_journal import LocalJournal

JOB = JobRecord(
    "3f2a", "requeue", "shop@orders", "amqp://localhost/", planned=1200, reason="fixed", who="alice"
)


def test_a_requeue_that_runs_is_named_with_who_began_it_and_why() -> None:
    order: dict[str, object] = {"selection": {"groups": ["0123"], "where": "reason = 'x'"}}
    words = in_words(replace(JOB, order=order))
    assert words.startswith("job 3f2a of this queue is running, begun by alice at ")
    assert words.endswith("1,200 messages of group 0123 where reason = 'x', because: fixed")


@pytest.mark.parametrize("selection", [None, [], "x", {"groups": "all"}, {"where": None}])
def test_an_order_that_somebody_made_up_is_named_as_far_as_it_can_be(selection: object) -> None:
    assert "1,200 messages, because: fixed" in in_words(
        replace(JOB, order={"selection": selection})
    )


def test_what_a_stranger_has_written_into_the_journal_is_one_line_and_short() -> None:
    words = in_words(replace(JOB, who="a\x1b]0;x\x07\nb", reason="y\n" * 5000))
    assert words.isprintable()
    assert len(words) < 1000


def test_where_nobody_requeues_one_is_alone(tmp_path: Path) -> None:
    with closing(LocalJournal(tmp_path / "journal")) as journal:
        assert running_on(journal, "shop@orders") is None
        check_alone(journal, "shop@orders")


def test_the_second_is_told_who_began_and_others_are_alone_at_other_queues(
    tmp_path: Path,
) -> None:
    with closing(LocalJournal(tmp_path / "journal")) as journal:
        # Another process runs it: what this one runs, its own threads keep apart.
        journal.update(replace(journal.begin(JOB), process=os.getppid()))
        check_alone(journal, "shop@returns")
        with pytest.raises(ConfigurationError, match="job 3f2a of this queue is running"):
            check_alone(journal, "shop@orders")
