"""A transform of the user's: what it may do, and what is found before anything is sent."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from redrive.errors import ConfigurationError, RedriveError
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.spark_reprocess.transform import Transform, transform_named, transformed
from spark.support import QUEUE, Failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODULE = """
from pyspark.sql.functions import udf

@udf("binary")
def shout(body):
    return bytes(body).upper()

def mends(messages: "DataFrame"):
    return messages.withColumn("body_bytes", shout("body_bytes"))

def mends_one(message):
    return message.body.lower() + message.routing_key.encode()

def stumbles(message):
    return message.colour
"""
SCHEMA = (
    "id string, queue string, delivered_exchange binary, delivered_routing_key binary, "
    "properties binary, body_bytes binary"
)


@pytest.fixture(autouse=True)
def transforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's in the current folder."""
    (tmp_path / "shop_mends.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_mends", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def _raises(messages: "DataFrame") -> "DataFrame":
    raise ValueError("no such thing")


def _to_nothing(messages: "DataFrame") -> "DataFrame":
    return None  # type: ignore[return-value]


WRONG: "list[tuple[Transform, str]]" = [
    (lambda messages: messages.where("id <> 'm1'"), "1 dropped (such as m1)"),
    (lambda messages: messages.union(messages), "3 duplicated"),
    (lambda messages: messages.withColumn("id", F.concat("id", F.lit("x"))), "added"),
    (
        lambda messages: messages.withColumn("queue", F.lit("other@queue")),
        "3 changed in more than the body",
    ),
    (
        lambda messages: messages.withColumn("body_bytes", F.lit(None).cast("binary")),
        "3 left without a body",
    ),
    (
        lambda messages: messages.withColumn("body_bytes", F.lit("text")),
        "has the column 'body_bytes' as string, not binary",
    ),
    (lambda messages: messages.drop("properties"), "has no column 'properties'"),
    (_raises, "raised ValueError: no such thing"),
    (_to_nothing, "returned a NoneType"),
]


def test_a_result_that_can_not_be_sent_is_refused_and_not_kept(
    spark: "SparkSession", archive: Archive
) -> None:
    run = archive.begin("amqp://test", {QUEUE: 3})
    messages = spark.createDataFrame(
        [(f"m{number}", QUEUE, b"e", b"k", b"p", b"{}") for number in range(3)], SCHEMA
    )
    for transform, why in WRONG:
        with pytest.raises(ConfigurationError) as raised:
            transformed(spark, archive, run, "choice", messages, transform)
        assert why in str(raised.value)
        assert not archive.storage.exists(f"transformed/run={run.id}/choice=choice")


def test_a_changed_body_is_what_is_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE])
    job.send(run, Selection(transform="shop_mends:mends"))
    assert job.verify(run).requeued == 20
    found = failures.in_main()
    assert len(found) == 20
    assert all(one.body == one.body.upper() for one in found)


def test_a_patch_and_a_function_of_one_message_change_bodies_as_on_one_machine(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE])
    with pytest.raises(RedriveError, match=r"shop_mends:stumbles failed with the message"):
        job.plan(run, Selection(transform="shop_mends:stumbles"))
    job.send(run, Selection("error_type is null", patch='{"note": null, "mended": true}'))
    job.send(run, Selection("error_type is not null", "shop_mends:mends_one"))
    assert job.verify(run).requeued == 20
    found = [one.body for one in failures.in_main()]
    patched = [json.loads(body) for body in found if body.endswith(b"}")]
    assert sorted(body["body"]["id"] for body in patched) == list(range(0, 20, 5))
    assert all(body["mended"] is True for body in patched)
    assert sum(body.endswith(b"sample.made") for body in found) == 16


@pytest.mark.nightly("a changed body is tried each time")
def test_a_run_that_was_begun_with_a_patch_is_continued_with_the_same_alone(
    spark: "SparkSession", archive: Archive
) -> None:
    run = archive.begin("amqp://test", {QUEUE: 3})
    job, choice = SparkJob(spark, archive, "amqp://test"), Selection(patch='{"a": 1}')
    job.choose(run, choice)
    assert job.chosen(run, Selection(patch='{"a": 1}')) == choice
    with pytest.raises(ConfigurationError, match="was begun with"):
        job.chosen(run, Selection())


@pytest.mark.nightly("a changed body is tried each time")
def test_a_plan_keeps_nothing_of_a_transform_that_is_mended_afterwards(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE])
    job.plan(run, Selection(transform="shop_mends:mends"))
    Path("shop_mends.py").write_text(
        MODULE.replace("bytes(body).upper()", "bytes(body).swapcase()")
    )
    monkeypatch.delitem(sys.modules, "shop_mends")
    job.send(run, Selection(transform="shop_mends:mends"))
    bodies = [json.loads(one.body.swapcase()) for one in failures.in_main()]
    assert sorted(body.get("body", body)["id"] for body in bodies) == list(range(20))


@pytest.mark.nightly("a changed body is tried each time")
def test_each_choice_is_transformed_for_itself(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE])
    job.send(run, Selection("error_type is null", "shop_mends:mends"))
    job.send(run, Selection("error_type is not null", "shop_mends:mends"))
    assert failures.depths() == (20, 0)
    assert all(one.body == one.body.upper() for one in failures.in_main())


def test_a_transform_that_raises_in_a_task_is_told_of_in_the_plan(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(5)
    Path("shop_mends.py").write_text(MODULE.replace("bytes(body).upper()", "bytes(body)[10**6]"))
    job = SparkJob(spark, archive, rabbitmq_url)
    run = job.drain([QUEUE])
    with pytest.raises(RedriveError, match="IndexError"):
        job.plan(run, Selection(transform="shop_mends:mends"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shop_mends", "does not name a function"),
        ("nowhere:mends", "No module named 'nowhere'"),
        ("shop_mends:dreams", "no attribute 'dreams'"),
    ],
)
def test_a_transform_that_is_not_there_is_told_of(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        transform_named(name)
