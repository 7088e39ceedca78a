"""The guards of a sending on Spark: what lets it go on, what stops it, and what is sent by then,
message by message."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cli_support import redrive
from contract.shells import BLOCKING, Shell
from contract.support import Recorder, always_fails, mostly
from redrive import FailedQueue, RetryPolicy
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.failed_queue_base import whereabouts_of
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.spark_reprocess.archive import Archive, Run
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.send import StoppedEarly
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.testing import Broker
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily
from spark.support import QUEUE
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60
CANARY = 20
QUICK = JobOptions(sending=SendSettings(timeout=20, batch=50))
CAREFUL = replace(QUICK, guards=Guards(canary=CANARY))
CAREFUL_ELSEWHERE = replace(CAREFUL, exchanges=ExchangeFamily())
HOUR = RetryPolicy(3, timedelta(hours=1))


def set_aside(
    url: str,
    numbers: range = range(COUNT),
    *,
    exchange: str = "master",
    retry: RetryPolicy = HOUR,
    headers: dict[str, FieldValue] | None = None,
) -> None:
    """Declares the subscription, and puts numbered messages into its failed queue."""
    BLOCKING.declare(url, QUEUE, routing_keys=["order.*"], retry=retry, exchange=exchange)
    report = FailedQueue(url, QUEUE, exchange).restore(
        Delivery(
            QUEUE,
            f"{exchange}.failed",
            QUEUE,
            Properties(
                headers=Table.of({"redrive-failure-id": f"{number:05d}", **(headers or {})}),
                delivery_mode=2,
                message_id=str(number),
            ),
            b"{}",
        )
        for number in numbers
    )
    assert report.confirmed == len(numbers)


@contextlib.contextmanager
def worker(
    url: str,
    handler: Callable[..., object],
    *,
    shell: Shell = BLOCKING,
    exchange: str = "master",
    retry: RetryPolicy = HOUR,
) -> Iterator[Recorder]:
    """A worker that consumes, and what it has tried."""
    recorder = Recorder(handler)
    with shell.subscriber(
        recorder, url, QUEUE, routing_keys=["order.*"], retry=retry, exchange=exchange
    ):
        wait_until(lambda: consumers(url) == 1, "it consumes")
        yield recorder


def consumers(url: str) -> int:
    found = whereabouts_of(FailedQueue(url, QUEUE)).main
    return 0 if found is None else found.consumers


def depth(url: str, queue: str) -> int:
    with declaring(Connector(url, "test")) as declarer:
        found = declarer.depth(queue)
    assert found is not None
    return found.messages


def succeeds(_: object) -> None:
    """A handler that succeeds."""


def ids(numbers: range) -> set[str]:
    return set(map(str, numbers))


def drained(
    spark: "SparkSession",
    archive: Archive,
    url: str,
    options: JobOptions = CAREFUL,
    **calls: object,
) -> tuple[SparkJob, Run]:
    job = SparkJob(spark, archive, url, options, **calls)  # type: ignore[arg-type]
    return job, job.drain([QUEUE])


@mostly(BLOCKING)
def test_with_the_default_policy_a_canary_that_fails_stops_the_job_at_its_first_attempt(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, shell: Shell
) -> None:
    set_aside(rabbitmq_url, retry=RetryPolicy())
    job, run = drained(spark, archive, rabbitmq_url)
    with worker(rabbitmq_url, always_fails, shell=shell, retry=RetryPolicy()) as tried:
        # By what it has heard, and not by a timer: the retries, after thirty seconds, are still to
        # come.
        with pytest.raises(
            StoppedEarly, match=r"\d+ of the first 20 (is|are) failing and retrying"
        ):
            job.send(run, Selection())
        wait_until(lambda: len(tried.tried) == CANARY, "all of the canary are tried")
    identity = job.verify(run)
    assert (identity.requeued, identity.kept) == (CANARY, COUNT - CANARY)
    assert set(tried.tried) == ids(range(CANARY))


@pytest.mark.nightly("another canary that fails is tried each time")
def test_the_same_command_once_more_stops_again_while_all_fails(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url)
    with worker(rabbitmq_url, always_fails) as tried:
        for times in (1, 2):
            with pytest.raises(StoppedEarly, match="failing and retrying"):
                requeue(spark, archive, rabbitmq_url, [QUEUE], options=CAREFUL)
            wait_until(
                lambda times=times: len(tried.tried) == times * CANARY,  # type: ignore[misc]
                "all of the canary are tried",
            )
    assert depth(rabbitmq_url, f"{QUEUE}@retry") == 2 * CANARY
    assert set(tried.tried.values()) == {1}


@pytest.mark.nightly("another canary that fails is tried each time")
def test_a_canary_in_another_exchange_family_stops_the_job_alike(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, exchange="shop")
    job, run = drained(
        spark, archive, rabbitmq_url, replace(CAREFUL, exchanges=ExchangeFamily("shop"))
    )
    with (
        worker(rabbitmq_url, always_fails, exchange="shop"),
        pytest.raises(StoppedEarly, match="failing and retrying"),
    ):
        job.send(run, Selection())
    assert job.verify(run).requeued == CANARY
    # The run has its family, so that nobody need name it again.
    assert SparkJob(spark, archive, rabbitmq_url).archive.run(run.id).family.main == "shop"
    with pytest.raises(ConfigurationError, match="was begun with --exchange shop"):
        SparkJob(spark, archive, rabbitmq_url, CAREFUL_ELSEWHERE).begun([QUEUE])


def test_all_of_a_canary_succeeded_lets_the_rest_follow(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url)
    notes: list[str] = []
    seen: list[str] = []
    job, run = drained(
        spark,
        archive,
        rabbitmq_url,
        on_note=notes.append,
        on_progress=lambda phase, done, total: seen.append(phase),
    )
    with worker(rabbitmq_url, succeeds) as tried:
        job.send(run, Selection())
        tried.wait_for_handled(ids(range(COUNT)))
    assert job.verify(run).requeued == COUNT
    assert notes == [
        "20 sent; waiting until each has succeeded, at most 1h.",
        "All 20 succeeded; going on.",
    ]
    assert "watching the canary" in seen


@pytest.mark.nightly("another canary that fails is tried each time")
def test_messages_that_nobody_tells_of_stop_the_job_and_are_looked_for(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url)
    guards = Guards(CANARY, timedelta(milliseconds=500))
    job, run = drained(spark, archive, rabbitmq_url, replace(QUICK, guards=guards))
    with pytest.raises(StoppedEarly) as stopped:
        job.send(run, Selection())
    assert stopped.value.reason == (
        "20 of 20 are unknown after 500ms (0 succeeded, none is failing): shop@orders has 0 "
        "consumers and 20 waiting messages, "
        "shop@orders@retry 0, shop@orders@failed 0; messages in none of them are held by consumers"
    )
    assert (job.verify(run).requeued, depth(rabbitmq_url, QUEUE)) == (CANARY, CANARY)


@pytest.mark.nightly("another canary that fails is tried each time")
def test_going_on_without_knowing_has_to_be_asked_for(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url)
    guards = Guards(CANARY, timedelta(milliseconds=500), unknown=Unknown.GO_ON)
    job, run = drained(spark, archive, rabbitmq_url, replace(QUICK, guards=guards))
    job.send(run, Selection())
    assert depth(rabbitmq_url, QUEUE) == COUNT


def test_a_share_of_failures_stops_the_tasks(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, range(2000))
    # Most of a minute.
    slowly = SendSettings(rate=40, timeout=20, batch=50)
    job, run = drained(
        spark, archive, rabbitmq_url, JobOptions(Guards(stop_at=0.05), sending=slowly)
    )
    with (
        worker(rabbitmq_url, always_fails),
        pytest.raises(StoppedEarly, match=r"failing and retrying, which is more than 5\.0%"),
    ):
        job.send(run, Selection())
    identity = job.verify(run)
    assert identity.holds
    assert 20 <= identity.requeued < 2000


def test_the_commands_words_and_exit_code_are_those_of_a_requeue_on_one_machine(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url)
    command = [
        "spark",
        "requeue",
        QUEUE,
        "--archive",
        archive.storage.uri,
        "--yes",
        "--canary",
        str(CANARY),
    ]
    done = redrive(*command, url=rabbitmq_url)
    assert done.code == 1
    assert "Nobody consumes shop@orders, so no outcome would be seen." in done.out
    assert depth(rabbitmq_url, f"{QUEUE}@failed") == COUNT
    with worker(rabbitmq_url, always_fails):
        done = redrive(
            *command, "--watch", "10m", "--stop-at", "5%", "--unknown", "stop", url=rabbitmq_url
        )
    assert done.code == 1
    assert "shop@orders has 1 consumer and 0 waiting messages." in done.out
    assert "of the first 20 are failing" in done.out or "of the first 20 is failing" in done.out
    assert depth(rabbitmq_url, f"{QUEUE}@failed") == 0
    with worker(rabbitmq_url, succeeds):
        done = redrive(*command, "--canary-wait", "10m", url=rabbitmq_url)
    assert (done.code, "All 20 succeeded; going on." in done.err) == (0, True), done.err


def test_what_was_requeued_too_often_stays_and_is_counted(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, range(10))
    set_aside(rabbitmq_url, range(10, 13), headers={"redrive-count": 5})
    identity = requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert (identity.requeued, identity.restored, identity.too_often) == (10, 3, 3)
    assert (depth(rabbitmq_url, QUEUE), depth(rabbitmq_url, f"{QUEUE}@failed")) == (10, 3)
    forced = requeue(spark, archive, rabbitmq_url, [QUEUE], force=True, options=QUICK)
    assert (forced.requeued, forced.too_often) == (3, 0)


@pytest.mark.nightly("the choice of a run is tried each time")
def test_a_run_that_was_forced_is_taken_up_with_force_alone(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    set_aside(rabbitmq_url, range(3), headers={"redrive-count": 5})
    job, run = drained(spark, archive, rabbitmq_url)
    job.choose(run, Selection(force=True))
    with pytest.raises(ConfigurationError, match="and force"):
        job.chosen(run, Selection())
    assert job.chosen(run, Selection(force=True)).force


@pytest.mark.nightly("restarts a broker")
def test_a_broker_that_restarts_while_a_canary_is_watched_is_waited_for(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker
) -> None:
    set_aside(rabbitmq_url)
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as held:
        restarts: list[Future[None]] = []

        def restarts_once(phase: str, done: int, total: int) -> None:
            if phase == "watching the canary" and not restarts:
                restarts.append(pool.submit(rabbitmq_broker.restart))
            if restarts and restarts[0].done() and len(restarts) == 1:
                restarts.append(restarts[0])
                tried.append(held.enter_context(worker(rabbitmq_url, succeeds)))

        tried: list[Recorder] = []
        patient = replace(CAREFUL, sending=SendSettings(timeout=180, batch=50))
        job, run = drained(spark, archive, rabbitmq_url, patient, on_progress=restarts_once)
        job.send(run, Selection())
        restarts[0].result()
        tried[0].wait_for_handled(ids(range(COUNT)))
    assert job.verify(run).requeued == COUNT
