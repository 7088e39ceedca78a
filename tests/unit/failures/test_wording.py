"""What plans and jobs say, and that the numbers of a job make up the whole, or it is told."""

from dataclasses import replace

import pytest

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.message.route import Verdict
from redrive.failures.wording import (
    JobTotals,
    PlannedCause,
    causes_of,
    not_included,
    possible_duplicates,
    result_facts,
    shared_ids,
    state_in_words,
    too_often,
)

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


def test_the_causes_of_a_job_are_those_of_its_plan() -> None:
    cause = {"count": 60, "group_id": "a1", "error_type": "KeyError", "message": None}
    assert causes_of(replace(RECORD, plan={"causes": [cause]})) == [
        PlannedCause(60, "a1", "KeyError")
    ]


def test_a_plan_that_somebody_has_made_up_is_shown_as_far_as_it_goes() -> None:
    for made_up in (None, "x", 7, {"count": 1}):
        assert causes_of(replace(RECORD, plan={"causes": made_up})) == []
    odd = [None, "x", {}, {"count": -1, "group_id": {"a": []}}, {"count": True}]
    found = causes_of(replace(RECORD, plan={"causes": odd}))
    assert [one.count for one in found] == [0, 0, 0]
    assert result_facts(replace(RECORD, plan={"causes": odd, "stay": [1]}))


def test_a_plan_of_the_journal_is_told_by_cause_and_what_stays_with_the_reason() -> None:
    causes = [
        {"count": 60, "group_id": "a1", "error_type": "KeyError", "message": "'sku'"},
        {"count": 2, "group_id": "b2", "error_type": "", "message": ""},
        {"count": 1, "group_id": "c3", "error_type": "OSError", "message": ""},
    ]
    stay = {"requeued_too_often": 1, "no_way_back": 2, "contradicted": 1}
    plan = {"causes": causes, "other_causes": 4, "stay": stay, "not_meant": 7}
    lines = [text for name, text in result_facts(replace(RECORD, plan=plan), 2) if not name]
    assert lines == [
        "60 a1  KeyError: 'sku'",
        "2 b2  no error recorded",
        "and 5 further causes",
        "1 message not included: requeued too often before.",
        "2 messages not included: nothing says which queue they failed in.",
        "1 message not included: what it says about its way back is contradicted.",
        "7 others that the filter does not match",
    ]


def test_the_results_of_a_requeue_add_up_to_what_was_planned() -> None:
    job = replace(RECORD, sent=40, handled=30, failed_told=5, not_sent=2)
    facts = {name: text for name, text in result_facts(job) if name}
    assert facts == {
        "planned": "100",
        "requeued": "40",
        "succeeded": "30",
        "retrying": "0",
        "failed again": "5",
        "unknown": "5",
        "not sent": "2",
        "not tried": "58",
    }


def test_another_job_says_what_it_did() -> None:
    job = replace(RECORD, kind="discard", sent=100, possible_duplicates=3, duplicate_ids=["a"])
    assert dict(result_facts(job)) == {
        "planned": "100",
        "deleted": "100",
        "maybe twice": "3, 1 with a known id",
    }


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (too_often(1), "1 message not included: requeued 5 times before."),
        (
            not_included(Verdict.UNCHECKED, 3),
            "3 messages not included: the broker could not confirm their way back.",
        ),
        (
            possible_duplicates(1),
            "1 possible duplicate: the connection or the process was lost while it was in flight.",
        ),
        (
            possible_duplicates(2, "a task or a connection"),
            "2 possible duplicates: a task or a connection was lost while they were in flight.",
        ),
        (
            shared_ids(1),
            (
                "1 failure id is shared by messages that differ; at most one message with it is "
                "genuine. Each message is handled separately."
            ),
        ),
    ],
)
def test_sentences_agree_with_their_numbers(sentence: str, words: str) -> None:
    assert sentence == words


def test_each_state_has_words() -> None:
    words = {state: state_in_words(state) for state in State}
    assert words[State.ASKED] == "waiting for approval"
    assert words[State.WAITING] == "waiting to start"
    assert words[State.DONE] == "done"
