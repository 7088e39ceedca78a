"""Which jobs have meant a cause, and what its messages look like."""

import pytest

from redrive.amqp.properties import Properties
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.message.failed_message import FailedMessage
from redrive.topology.headers import Delivery
from redrive.web.cause_page import jobs_of, shape_of

GROUP = "0123456789ab"


def job(id_: str, **more: dict[str, object]) -> JobRecord:
    return JobRecord(id_, "requeue", "q", "amqp://host", **more)  # type: ignore[arg-type]


def test_a_job_is_known_by_its_plan_or_by_its_order() -> None:
    jobs = [
        job("planned", plan={"causes": [{"group_id": GROUP, "count": 2}]}),
        job("ordered", order={"selection": {"groups": [GROUP]}}),
        job("other", plan={"causes": [{"group_id": "else"}]}),
    ]
    assert [one.id for one in jobs_of(jobs, {GROUP})] == ["planned", "ordered"]


@pytest.mark.parametrize("damage", [{"causes": 3}, {"causes": [3]}, {"causes": None}, {}])
def test_a_plan_that_is_damaged_names_none(damage: dict[str, object]) -> None:
    assert list(jobs_of([job("x", plan=damage, order={"selection": 3})], {GROUP})) == []


def test_the_shape_of_a_body_names_its_fields_and_their_types() -> None:
    body = b'{"id": 7, "lines": [{"sku": "x", "gift": null}, {}], "deep": {"a": {"b": {"c": 1}}}}'
    assert shape_of(FailedMessage(Delivery("q", "", "q", Properties(), body))) == (
        "{id: number, lines: [{sku: string, gift: true, false or null}, …], deep: {a: {b: object}}}"
    )
