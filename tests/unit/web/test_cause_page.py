"""Which jobs have meant a cause."""

import pytest

from redrive.failures.job_record import JobRecord
from redrive.web.cause_page import jobs_of

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
