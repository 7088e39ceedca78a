"""The messages of one key are sent one after another, by the time at which they failed."""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow
import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.queue.canary import Guards, Unknown
from redrive.spark_reprocess import send_task
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.ledger import ArchiveLedger, Event
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.row_message import ORDER_KEY, Mode
from redrive.spark_reprocess.send_task import SendTask
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.topology import headers
from redrive.topology.headers import Delivery
from spark.support import QUEUE, Failures, take_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT, KEYS = 120, 7
BEGAN = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)


def fill(failures: Failures) -> None:
    """Set messages of several customers aside, in another order than they failed in."""
    failures.fill(0)
    FailedQueue(failures.url, QUEUE).restore(
        Delivery(
            QUEUE,
            "master.failed",
            QUEUE,
            Properties(
                "application/json",
                None,
                Table.of(
                    {
                        headers.FAILURE_ID: f"id-{number}",
                        headers.ORIG_ROUTING_KEY: "a",
                        headers.FAILED_AT: (BEGAN + timedelta(seconds=number)).isoformat(),
                    }
                ),
                2,
            ),
            json.dumps({"customer": number % KEYS, "number": number}).encode(),
        )
        for number in sorted(range(COUNT), key=lambda number: (number * 37) % COUNT)
    )


def by_key(failures: Failures) -> dict[int, list[int]]:
    """Take what was sent: the numbers of each customer, as they arrived."""
    found: dict[int, list[int]] = {}
    for one in failures.in_main():
        body = json.loads(one.body)
        found.setdefault(body["customer"], []).append(body["number"])
    return found


IN_ORDER = {key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}


def test_the_messages_of_one_key_arrive_in_the_order_in_which_they_failed(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url)
    fill(failures)
    guards = Guards(canary=10, watch=timedelta(), unknown=Unknown.GO_ON)
    options = JobOptions(guards, SendSettings(batch=40), tasks=3)
    identity = requeue(
        spark, archive, rabbitmq_url, [QUEUE], order_by="$.customer", options=options
    )
    assert (
        str(identity) == f"{COUNT} drained = {COUNT} requeued + 0 restored + 0 kept + 0 discarded"
    )
    assert by_key(failures) == IN_ORDER


def test_a_task_that_dies_in_the_middle_leaves_the_order_to_what_continues_it(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures(rabbitmq_url)
    fill(failures)
    died = archive.storage.uri + "-died"
    sent_part = send_task.sent_part

    def dying(task: SendTask, names: list[str], batches: "Iterator[pyarrow.RecordBatch]") -> object:
        def until_it_dies() -> "Iterator[pyarrow.RecordBatch]":
            for batch in batches:
                yield from (batch.slice(start, 10) for start in range(0, 40, 10))
                try:
                    os.close(os.open(died, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    yield batch.slice(40)
                else:
                    os._exit(1)  # as an executor that is killed

        return sent_part(task, names, until_it_dies())

    monkeypatch.setattr("redrive.spark_reprocess.send.sent_part", dying)
    options = JobOptions(sending=SendSettings(batch=20), tasks=1)

    def requeued() -> Reconciliation:
        return requeue(
            spark, archive, rabbitmq_url, [QUEUE], order_by="$.customer", options=options
        )

    with pytest.raises(ConfigurationError, match="Run it again"):
        requeued()
    assert 0 < failures.depths()[0] < COUNT
    identity = requeued()
    assert (identity.holds, identity.requeued) == (True, COUNT)
    for key, numbers in by_key(failures).items():
        # What was in flight is sent again, in its order.
        assert list(dict.fromkeys(numbers)) == IN_ORDER[key]
        assert len(numbers) - len(IN_ORDER[key]) <= identity.possible_duplicates


def test_after_a_message_that_can_not_be_sent_its_key_is_left_and_the_others_are_sent(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(0)
    made: list[Mapping[str, object]] = [
        {
            "id": str(number),
            "routing_key": "nobody@here" if number == 8 else QUEUE,
            "body": str(number).encode(),
            ORDER_KEY: f"key {number % 4}",
        }
        for number in range(40)
    ]
    ledger = ArchiveLedger(archive.storage, "run", "job")
    task = SendTask(rabbitmq_url, Mode.PUBLISH, "job", ledger, batch=10, exchange="")
    for attempt in range(2):
        # The second attempt finds in the ledger which key is left.
        task.send(iter(made[: (attempt + 1) * 20]), "part-00000", attempt)
    sent = [int(one.body) for one in take_all(rabbitmq_url, QUEUE, failures.depths()[0])]
    assert {number % 4 for number in sent} == {0, 1, 2, 3}
    for key in range(4):
        expected = [n for n in range(40) if n % 4 == key and (key or n < 8)]
        assert [number for number in sent if number % 4 == key] == expected
    refused = {one.id: one.detail for one in ledger.entries() if one.event is Event.REFUSED}
    assert set(refused) == {str(number) for number in range(8, 40, 4)}
    assert refused["12"] == "an earlier message with its key could not be sent"


def test_a_key_that_is_none_is_refused_before_anything_is_taken(
    spark: "SparkSession", archive: Archive
) -> None:
    with pytest.raises(ConfigurationError, match="order_by is 'customer'"):
        requeue(spark, archive, "amqp://nowhere", [QUEUE], order_by="customer")
