"""The command that continues a job on Spark: what stands in a journal is quoted, and nothing of it
is believed."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from redrive.cli.spark_command import command_of, is_on_spark, run_of
from redrive.failures.jobs.job_record import JobRecord
from redrive.topology.names import ExchangeFamily

RUN = "20260102T030405Z-abcdef"


def job(kind: str, file: str = "/srv/redrive", **order: object) -> JobRecord:
    return JobRecord("1", kind, "a, b", "amqp://guest@host:5672/%2F", order, file=file)


@pytest.mark.parametrize(
    ("kind", "order", "command"),
    [
        (
            "spark requeue",
            {"command": "requeue", "queues": ["a", "b"], "keep": True, "to": "c", "force": True},
            "requeue a b --archive /srv/redrive --to c --force --keep",
        ),
        (
            "spark requeue",
            {"command": "requeue", "queues": ["a"], "from": "dead.parquet", "via": True},
            "requeue --archive /srv/redrive --from dead.parquet --via",
        ),
        (
            "spark requeue",
            {"command": "send", "run": RUN, "patch": "{}", "transform": "shop:mend"},
            f"send --archive /srv/redrive --run {RUN} --transform shop:mend --patch FILE",
        ),
        (
            "spark drain",
            {"queues": ["a"], "literal": True},
            "drain a --archive /srv/redrive --literal",
        ),
        ("spark restore", {"run": RUN}, f"restore --archive /srv/redrive --run {RUN}"),
        (
            "spark discard",
            {"run": RUN, "selection": {"where": "retries > 2", "groups": []}},
            f"discard --archive /srv/redrive --run {RUN} --where 'retries > 2'",
        ),
    ],
)
def test_each_kind_is_continued_by_its_command(
    kind: str, order: dict[str, Any], command: str
) -> None:
    assert is_on_spark(job(kind))
    assert command_of(job(kind, **order)) == f"redrive spark {command}"


def test_a_hostile_entry_runs_nothing_where_it_is_pasted() -> None:
    hostile = job(
        "spark requeue",
        "/srv; rm -rf ~",
        command="requeue",
        queues=["$(id)", "`id`", 5, None],
        selection={"where": "true' && id\n#"},
        to=["x"],
        via="yes",
    )
    command = command_of(hostile)
    assert "\n" not in command
    words = shlex.split(command)
    assert words[:6] == ["redrive", "spark", "requeue", "$(id)", "`id`", "5"]
    assert "/srv; rm -rf ~" in words
    assert not {"--to", "--via"} & set(words)


@pytest.mark.parametrize("order", [{}, {"queues": "a"}, {"selection": 5, "run": 5}])
def test_an_entry_that_says_nothing_makes_nothing_raise(order: dict[str, Any]) -> None:
    assert command_of(job("spark requeue", **order)).startswith("redrive spark requeue")
    assert run_of(job("spark requeue", **order)) == ""


def test_other_jobs_are_none_of_sparks() -> None:
    assert not any(is_on_spark(job(kind)) for kind in ("requeue", "discard", "restore", "expire"))


def test_the_exchange_family_is_named_where_it_is_not_the_usual_one() -> None:
    family = ExchangeFamily("orders", "@retry", ".failed").as_json()
    drained = replace(job("spark drain", queues=["a"]), exchanges=family)
    assert command_of(drained) == (
        "redrive spark drain --exchange orders --retry-suffix @retry a --archive /srv/redrive"
    )
    usual = replace(drained, exchanges=ExchangeFamily().as_json())
    assert command_of(usual) == "redrive spark drain a --archive /srv/redrive"
