"""Messages whose failure ids are copies of others': each is sent, and each is counted."""

from typing import TYPE_CHECKING

import pytest

from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.archive_reader import messages
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.topology.headers import Delivery, failure_id
from spark.support import QUEUE, Failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = "0b6f9c1e-6a9c-4a55-8c3e-2f1f8f4f5a10"
QUICK = JobOptions(sending=SendSettings(timeout=20, batch=50))


def message(body: bytes, id_: str | None = ID, error: str = "KeyError") -> Delivery:
    own = {} if id_ is None else {"redrive-failure-id": id_}
    headers = Table.of({**own, "redrive-error-type": error, "x-orig-routing-key": "order.made"})
    return Delivery(
        QUEUE, "master.failed", QUEUE, Properties(headers=headers, delivery_mode=2), body
    )


def set_aside(url: str, *deliveries: Delivery) -> Failures:
    failures = Failures(url).fill(0)
    FailedQueue(url, QUEUE).restore(deliveries)
    return failures


def in_main(failures: Failures) -> list[bytes]:
    return sorted(found.body for found in failures.in_main())


def test_a_message_with_a_copied_id_is_sent_beside_the_genuine_one(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    # One also looks as the second message of the id does, one as a peer's, and one is a copy.
    foreign = message(b"peer", None)
    several = [b"genuine", b"attacker", b"looks numbered", b"another", b"pretends to be the peer's"]
    failures = set_aside(
        rabbitmq_url,
        message(several[0]),
        message(several[1]),
        message(several[2], f"{ID}~2"),
        message(several[3], f"{ID}~2"),
        foreign,
        message(several[4], failure_id(foreign)),
        message(several[0]),
    )
    identity = requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert str(identity) == "6 drained = 6 requeued + 0 restored + 0 kept + 0 discarded"
    assert (identity.holds, identity.rows, identity.shared_ids) == (True, 7, 3)
    assert in_main(failures) == sorted([*several, b"peer"])
    assert failures.depths() == (0, 0)
    assert {bytes(row.body_bytes) for row in messages(spark, archive).collect()} == {
        *several,
        b"peer",
    }


@pytest.mark.nightly("the first of these is tried each time")
def test_only_the_one_that_is_chosen_is_sent_and_the_other_is_restored(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = set_aside(rabbitmq_url, message(b"genuine"), message(b"attacker", error="Spam"))
    identity = requeue(
        spark, archive, rabbitmq_url, [QUEUE], where="error_type = 'Spam'", options=QUICK
    )
    assert (identity.holds, identity.requeued, identity.restored) == (True, 1, 1)
    assert in_main(failures) == [b"attacker"]
    assert [found.body for found in failures.in_failed()] == [b"genuine"]


@pytest.mark.nightly("the first of these is tried each time")
def test_what_another_run_has_sent_under_a_copied_id_is_sent_all_the_same(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = set_aside(rabbitmq_url, message(b"attacker"), message(b"both"))
    assert requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK).requeued == 2
    set_aside(rabbitmq_url, message(b"genuine"), message(b"both"))
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.send(run, Selection())
    identity = job.verify(run)
    # What is the same in all it holds was sent by the first run, and is not sent again.
    assert (identity.holds, identity.drained, identity.requeued) == (True, 2, 2)
    assert in_main(failures) == [b"attacker", b"both", b"genuine"]
