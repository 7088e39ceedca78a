"""The messages of a job that are known one by one."""

from redrive.failures.jobs.job_record import JobRecord
from redrive.web.job_messages import Row, json_of, rows_of

RECORD = JobRecord(
    "3f2a",
    "requeue",
    "shop@orders",
    "amqp://localhost/",
    planned=10,
    sent=8,
    handled=5,
    not_sent=1,
    not_sent_ids=["stuck"],
    possible_duplicates=2,
    duplicate_ids=["twice"],
)
AGAIN: Row = {"failure_id": "f1", "message_id": "m1", "failed_at": None, "error_type": "KeyError"}


def test_each_has_its_id_and_what_became_of_it() -> None:
    found = [(one["failure_id"], one["outcome"]) for one in rows_of(RECORD, [AGAIN])]
    assert found == [
        ("f1", "failed again"),
        ("stuck", "could not be sent"),
        ("twice", "possible duplicate"),
    ]


def test_all_have_the_same_columns() -> None:
    columns = {"failure_id", "message_id", "outcome", "failed_at", "error_type"}
    assert {frozenset(one) for one in rows_of(RECORD, [AGAIN])} == {frozenset(columns)}


def test_how_many_there_are_in_all_stands_beside_those_that_are_known() -> None:
    told = json_of(RECORD, rows_of(RECORD, []))
    assert told["sum"] == {
        "planned": 10,
        "succeeded": 5,
        "failed_again": 0,
        "on_the_way": 3,
        "not_sent": 1,
        "not_tried": 1,
    }
    assert told["possible_duplicates"] == 2
