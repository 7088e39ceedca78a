"""DataFrame in, DataFrame out: failed messages are read, joined, edited in SQL and requeued."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import redrive.spark
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.columns import COLUMNS
from redrive.failures.queue.canary import Guards
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.spark_reprocess.archive import Archive
from redrive.topology import headers
from spark.support import QUEUE, Failures, numbers

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

COUNT = 60


def number() -> "Column":
    """Which sample a message is; PHP's have an envelope."""
    return F.coalesce(
        F.get_json_object("body", "$.id"), F.get_json_object("body", "$.body.id")
    ).cast("int")


def test_reading_shows_the_columns_of_everywhere_and_takes_nothing(
    spark: "SparkSession", rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    failed = redrive.spark.read(spark, rabbitmq_url, QUEUE)
    assert failed.columns == [column.name for column in COLUMNS]
    rows = failed.collect()
    assert [row["failure_id"] for row in rows] == failures.ids(COUNT)
    assert failures.depths() == (0, COUNT)
    plan = redrive.spark.plan(failed, Order(Filter("error_type = 'KeyError'")))
    assert (plan.count, plan.ways) == (COUNT, {QUEUE: plan.chosen})
    assert plan.chosen == sum(row["error_type"] == "KeyError" for row in rows) > 0
    assert sum(count for _, count in plan.times) == COUNT
    failed.unpersist()
    # In their order, byte for byte, each once.
    assert [one.body for one in failures.in_failed()] == [bytes(row["body_bytes"]) for row in rows]


def test_what_is_decided_row_by_row_is_done_row_by_row(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    Failures(rabbitmq_url, "shop@elsewhere").fill(0)
    failed = redrive.spark.read(spark, rabbitmq_url, QUEUE)
    decided = (
        failed.where(number() < 50)
        .withColumn(
            "decision",
            F.when(number() < 10, "discard")
            .when(number() < 20, "keep")
            .when(number() < 30, "restore"),
        )
        .withColumn("to", F.when(number() >= 40, "shop@elsewhere"))
        .withColumn("body", F.when(number() % 2 == 0, F.lit("fixed: ö")).otherwise(F.col("body")))
    )
    identity = redrive.spark.requeue(decided, rabbitmq_url, archive, QUEUE)
    assert identity is not None
    assert str(identity) == "60 drained = 20 requeued + 20 restored + 10 kept + 10 discarded"
    in_main = failures.in_main()
    elsewhere = Failures(rabbitmq_url, "shop@elsewhere").in_main()
    for found, whole in ((in_main, range(30, 40)), (elsewhere, range(40, 50))):
        bodies = Counter(one.body for one in found)
        assert bodies.pop("fixed: ö".encode()) == 5
        # What was not changed is sent byte for byte, also where it is not plain JSON.
        assert numbers(one for one in found if one.body in bodies) == list(whole)[1::2]
    assert numbers(failures.in_failed()) == [*range(20, 30), *range(50, 60)]


def test_a_notebook_of_a_few_lines_joins_edits_and_requeues(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    spark.createDataFrame([(7, 70), (8, 80)], "wrong int, right int").createOrReplaceTempView(
        "fixed_customers"
    )
    url = rabbitmq_url
    # The notebook: fourteen lines with their imports.
    failed = redrive.spark.read(spark, url, QUEUE)
    fixes = spark.table("fixed_customers")
    mended = failed.join(fixes, F.get_json_object("body", "$.id") == fixes.wrong).select(
        "failure_id",
        F.regexp_replace("body", r'"id": \d+', F.concat(F.lit('"id": '), "right")).alias("body"),
    )
    identity = redrive.spark.requeue(mended, url, archive, QUEUE)
    print(identity)
    # The end of the notebook.
    assert str(identity) == "60 drained = 2 requeued + 58 restored + 0 kept + 0 discarded"
    found = failures.in_main()
    assert numbers(found) == [70, 80]
    assert all(one.headers[headers.COUNT] == 1 for one in found)
    assert numbers(failures.in_failed()) == [one for one in range(COUNT) if one not in (7, 8)]


def test_the_same_dataframe_continues_a_run_and_another_is_refused(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    ids = failures.ids(COUNT)
    half = spark.createDataFrame([(one,) for one in [*ids[::2], "nobody's"]], "failure_id string")
    notes: list[str] = []

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    guarded = Order(guards=replace(Guards(), stop_at=0.5))
    with pytest.raises(KeyboardInterrupt):
        redrive.spark.requeue(half, rabbitmq_url, archive, QUEUE, approve=interrupted)
    assert failures.depths() == (0, 0)
    identity = redrive.spark.requeue(
        half, rabbitmq_url, archive, order=guarded, keep=True, on_note=notes.append
    )
    assert str(identity) == "60 drained = 30 requeued + 0 restored + 30 kept + 0 discarded"
    assert [note for note in notes if note.startswith("1 of the DataFrame's failure ids")]
    other = spark.createDataFrame([(ids[1],)], "failure_id string")
    with pytest.raises(ConfigurationError, match="was begun with"):
        redrive.spark.requeue(other, rabbitmq_url, archive)


def test_a_compressed_body_is_sent_as_it_came_unless_it_was_changed(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    import gzip

    from redrive import FailedQueue
    from redrive.topology.headers import Delivery

    failures = Failures(rabbitmq_url).fill(0)
    FailedQueue(rabbitmq_url, QUEUE).restore(
        Delivery(
            QUEUE,
            "master.failed",
            QUEUE,
            Properties(
                "application/json",
                "gzip",
                Table.of({headers.FAILURE_ID: id_, headers.ORIG_ROUTING_KEY: "a"}),
                2,
            ),
            gzip.compress(b'{"id": 1}'),
        )
        for id_ in ("same", "changed")
    )
    failed = redrive.spark.drain(spark, rabbitmq_url, QUEUE, archive)
    assert {row["body"] for row in failed.collect()} == {'{"id": 1}'}
    body = F.when(F.col("failure_id") == "changed", '{"id": 2}').otherwise(F.col("body"))
    redrive.spark.requeue(failed.withColumn("body", body), rabbitmq_url, archive)
    sent = {
        Properties.parse(one.properties).content_encoding: one.body for one in failures.in_main()
    }
    assert sent == {"gzip": gzip.compress(b'{"id": 1}'), None: b'{"id": 2}'} or (
        sent[None] == b'{"id": 2}' and gzip.decompress(sent["gzip"]) == b'{"id": 1}'
    )


@pytest.mark.parametrize(
    ("rows", "schema", "why"),
    [
        ([("a",)], "id string", "has no column 'failure_id'"),
        ([("a",), ("a",)], "failure_id string", "has the failure_id 'a' more than once"),
        ([("a", "throw away")], "failure_id string, decision string", "'throw away' is unknown"),
        ([("a", 1)], "failure_id string, body int", "'body' is int, not string or binary"),
    ],
)
def test_a_dataframe_that_decides_nothing_clear_is_refused_before_anything_is_taken(
    spark: "SparkSession",
    archive: Archive,
    rabbitmq_url: str,
    rows: "list[tuple[object, ...]]",
    schema: str,
    why: str,
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        redrive.spark.requeue(
            spark.createDataFrame(rows, schema), rabbitmq_url, archive, "nobody@here"
        )
    assert archive.runs() == []


def test_an_order_that_only_one_machine_can_carry_out_is_refused(
    spark: "SparkSession", archive: Archive
) -> None:
    frame = spark.createDataFrame([("a",)], "failure_id string")
    with pytest.raises(ConfigurationError, match="can't have limit"):
        redrive.spark.requeue(frame, "amqp://nowhere", archive, QUEUE, order=Order(limit=5))


def test_a_drain_also_writes_a_table_of_a_format_that_the_session_has(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    with pytest.raises(ConfigurationError, match="has no format 'delta'") as error:
        redrive.spark.drain(spark, rabbitmq_url, QUEUE, archive, format="delta")
    assert len(str(error.value).splitlines()) == 2
    assert failures.depths() == (0, COUNT)
    failed = redrive.spark.drain(spark, rabbitmq_url, QUEUE, archive, format="orc")
    assert failed.inputFiles()[0].endswith(".orc")
    identity = redrive.spark.requeue(failed.where(number() < 20), rabbitmq_url, archive)
    assert str(identity) == "60 drained = 20 requeued + 40 restored + 0 kept + 0 discarded"
    assert numbers(failures.in_main()) == list(range(20))
