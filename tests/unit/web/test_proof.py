"""The proof of a job has what the journal has of it, and says what it does not know."""

from dataclasses import replace

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.queue.order import Order
from redrive.web.proof import json_of, text_of

RECORD = JobRecord(
    "3f2a",
    "requeue",
    "shop@orders",
    "amqp://localhost/",
    order=Order(limit=100).as_json(),
    who="anna on laptop",
    reason="fixed in 2.3.1",
    state=State.DONE,
    planned=100,
    sent=100,
    handled=100,
)


def facts_of(record: JobRecord, not_settled: int = 0) -> dict[str, str]:
    lines = text_of(record, not_settled).splitlines()
    return {line[:13].strip(): line[14:] for line in lines if line[:13].strip()}


def test_it_says_who_has_done_what_and_why() -> None:
    facts = facts_of(RECORD)
    assert facts["action"] == "requeue"
    assert facts["queue"] == "shop@orders"
    assert facts["why"] == "fixed in 2.3.1"
    assert "anna on laptop" in facts["who"]
    assert facts["command"].startswith("redrive failed requeue shop@orders")
    assert (facts["planned"], facts["succeeded"], facts["adds up"]) == ("100", "100", "yes")


def test_it_says_loudly_that_numbers_do_not_add_up() -> None:
    assert facts_of(replace(RECORD, sent=101))["adds up"] == "NO"


def test_what_there_is_none_of_has_no_line() -> None:
    assert not {"not settled", "problem", "approved by"} & facts_of(RECORD).keys()


def test_possible_duplicates_are_named_as_far_as_they_are_known() -> None:
    record = replace(RECORD, possible_duplicates=3, duplicate_ids=["a", "b"])
    assert facts_of(record)["maybe twice"] == "3, 2 with a known id"
    assert "maybe twice: a\n" in text_of(record, 0)
    whole = replace(record, possible_duplicates=2)
    assert facts_of(whole)["maybe twice"] == "2"


def test_what_may_not_be_settled_is_counted() -> None:
    assert facts_of(RECORD, 4)["not settled"] == "4"
    assert json_of(RECORD, 4)["not_settled"] == 4


def test_a_line_of_a_stranger_is_no_second_line() -> None:
    forged = replace(RECORD, reason="x\nadds up       yes", sent=101)
    assert text_of(forged, 0).count("\nadds up") == 1
    assert facts_of(forged)["adds up"] == "NO"


def test_its_json_has_the_journals_values_and_the_sum() -> None:
    found = json_of(RECORD, 0)
    assert found["id"] == "3f2a"
    assert found["adds_up"] is True
    assert found["sum"] == {
        "planned": 100,
        "succeeded": 100,
        "failed_again": 0,
        "on_the_way": 0,
        "not_sent": 0,
        "not_tried": 0,
    }
