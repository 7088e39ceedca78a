"""The data source on DataFrames and streams of anybody's."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.spark_reprocess.row_message import check_columns
from redrive.spark_reprocess.spark_errors import explained
from redrive.spark_reprocess.writer import register
from spark.support import QUEUE, Failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = "routing_key string, body string, message_id string, headers map<string,string>"


def messages(spark: "SparkSession", count: int, routing_key: str = QUEUE) -> "DataFrame":
    """So many messages for a queue."""
    return spark.createDataFrame(
        [
            (routing_key, f'{{"id": {number}}}', f"m{number}", {"tenant": "a"})
            for number in range(count)
        ],
        MESSAGES,
    )


def test_a_dataframe_of_messages_is_published(spark: "SparkSession", rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url).fill(0)
    register(spark)
    messages(spark, 100).write.format("rabbitmq").options(url=rabbitmq_url, exchange="").mode(
        "append"
    ).save()
    found = failures.in_main()
    assert sorted(Properties.parse(one.properties).message_id or "" for one in found) == sorted(
        f"m{number}" for number in range(100)
    )
    assert {one.headers["tenant"] for one in found} == {"a"}
    assert {one.headers["x-orig-routing-key"] for one in found} == {QUEUE}
    with pytest.raises(ConfigurationError, match="no queue is bound"), explained():
        messages(spark, 3, "nobody").write.format("rabbitmq").options(
            url=rabbitmq_url, exchange=""
        ).mode("append").save()


def test_what_can_not_be_sent_is_an_error_in_the_end_and_all_others_are_there_once(
    spark: "SparkSession", rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(0)
    register(spark)
    both = messages(spark, 99).union(messages(spark, 1, "nobody")).coalesce(2)
    with (
        pytest.raises(
            ConfigurationError, match="1 of the messages could not be sent, all others were"
        ),
        explained(),
    ):
        both.write.format("rabbitmq").options(url=rabbitmq_url, exchange="").mode("append").save()
    found = [Properties.parse(one.properties).message_id for one in failures.in_main()]
    assert sorted(map(str, found)) == sorted(f"m{number}" for number in range(99))


@pytest.mark.nightly("a frame is written each time")
def test_a_stream_is_published(spark: "SparkSession", rabbitmq_url: str, tmp_path: Path) -> None:
    failures = Failures(rabbitmq_url).fill(0)
    register(spark)
    messages(spark, 40).coalesce(1).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema(MESSAGES).json(str(tmp_path / "in"))
    query = (
        stream.writeStream.format("rabbitmq")
        .options(url=rabbitmq_url, exchange="", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert failures.depths()[0] == 40


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"body": "string"}, "no column 'routing_key'"),
        (
            {"routing_key": "string", "body": "int"},
            "'body' is int, not binary or string",
        ),
        (
            {"routing_key": "string", "body": "binary", "colour": "string"},
            "the unknown column 'colour'",
        ),
        (
            {"routing_key": "string", "body": "binary", "headers": "string"},
            "not map<string,string>",
        ),
    ],
)
def test_columns_that_make_no_message_are_named(columns: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        check_columns(columns)
