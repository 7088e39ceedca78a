"""The phases of the job on a broker: each message ends where it should, and the identity says
so."""

import re
import time
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.failures.message.columns import COLUMNS
from redrive.failures.queue.canary import Guards
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess import archived_messages
from redrive.spark_reprocess.archive import Archive, messages_folder
from redrive.spark_reprocess.archive_reader import messages, stored
from redrive.spark_reprocess.archived_messages import ArchivedMessages
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.ledger import ArchiveLedger, Entry, Event
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.send import StoppedEarly
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.topology import headers
from redrive.topology.model import Queue
from spark.support import QUEUE, Failures, numbers
from spark.test_tasks import kill_once
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
QUICK = JobOptions(sending=SendSettings(timeout=20, batch=50))


def test_what_was_drained_goes_back_with_a_fresh_budget(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    both = [
        Failures(rabbitmq_url).fill(COUNT),
        Failures(rabbitmq_url, "shop@classic", "classic").fill(COUNT),
    ]
    identity = requeue(
        spark, archive, rabbitmq_url, [failures.queue for failures in both], options=QUICK
    )
    assert str(identity) == "600 drained = 600 requeued + 0 restored + 0 kept + 0 discarded"
    assert [failures.depths() for failures in both] == [(COUNT, 0), (COUNT, 0)]
    found = [failures.in_main() for failures in both]
    assert [numbers(some) for some in found] == [list(range(COUNT))] * 2
    for one in chain(*found):
        assert one.headers[headers.COUNT] == 1
        assert one.headers[headers.ORIG_ROUTING_KEY] == "sample.made"
        assert not {headers.X_DEATH, headers.FAILURE_ID, headers.RETRIES} & one.headers.keys()


def test_a_whole_run_is_three_jobs_of_spark(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(20)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = set(jobs(None))
    assert requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK).requeued == 20
    assert len(set(jobs(None)) - before) <= 3


def test_what_is_not_chosen_is_restored_byte_for_byte(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE], file_rows=40)
    before = {
        (row["body_bytes"], bytes(row["properties"]))
        for row in stored(spark, archive, run).collect()
    }
    job.restore(run)
    assert failures.depths() == (0, COUNT)
    found = failures.in_failed()
    assert {(one.body, one.properties) for one in found} == before
    assert all((one.exchange, one.routing_key) == ("master.failed", QUEUE) for one in found)
    assert str(job.verify(run)) == "300 drained = 0 requeued + 300 restored + 0 kept + 0 discarded"


def test_an_expression_picks_and_the_rest_goes_back_into_its_failed_queue(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    identity = requeue(
        spark,
        archive,
        rabbitmq_url,
        [QUEUE],
        where="error_type = 'TimeoutError' and failed_at < now()",
        options=QUICK,
    )
    assert identity.holds
    assert identity.requeued + identity.restored == COUNT
    assert failures.depths() == (identity.requeued, identity.restored)
    assert not [
        one for one in failures.in_failed() if one.headers.get(headers.ERROR_TYPE) == "TimeoutError"
    ]


def test_a_second_run_sends_nothing_again(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(50)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.send(run, Selection())
    job.send(run, Selection())
    identity = requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert identity.requeued == 50
    assert failures.depths() == (50, 0)


@pytest.mark.nightly("a second run is tried each time")
def test_a_run_whose_sending_has_begun_keeps_its_choice(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.choose(run, Selection("error_type is null"))
    with pytest.raises(ConfigurationError, match="was begun with where='error_type is null'"):
        requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert (
        requeue(
            spark, archive, rabbitmq_url, [QUEUE], where="error_type is null", options=QUICK
        ).requeued
        == 4
    )


@pytest.mark.nightly("a second run is tried each time")
def test_the_page_shows_the_whole_run_also_where_it_was_taken_up_again(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(50)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.choose(run, Selection())
    job.send(run, Selection())
    assert requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK).requeued == 50
    page = Path(archive.storage.uri, "reports", f"{run.id}.html").read_text()
    assert "<title>Failed messages of shop@orders, 20" in page
    assert page.index("All 50 messages are accounted for") < page.index("<svg ")
    assert "<b>50</b><span>requeued</span>" in page
    assert {"KeyError", "shop.PaymentError"} <= set(re.findall(r"[\w.]+Error", page))
    assert page.count("<svg ") == 1
    assert page.count("<rect ") >= 1


def test_equal_messages_of_a_peer_are_all_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(10)
    # The same seed: what PHP set aside is there three times, and has no id of its own.
    failures.fill(10).fill(10)
    identity = requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert (identity.rows, identity.drained) == (30, 8 + 3 * 2)
    assert numbers(failures.in_main()) == sorted([*range(10), 0, 0, 5, 5])


def test_a_poisoned_message_is_kept_and_told_of_while_the_others_are_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    good, lost = Failures(rabbitmq_url).fill(100), Failures(rabbitmq_url, "billing@gone").fill(5)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE, "billing@gone"])
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        declarer.delete(Queue("billing@gone"))
    job.send(run, Selection())
    identity = job.verify(run)
    assert (identity.requeued, identity.kept, identity.refused) == (100, 5, 5)
    assert identity.holds
    assert {one["id"] for one in identity.refusals} == set(lost.ids(5))
    assert all("no queue is bound" in one["error"] for one in identity.refusals)
    assert good.depths() == (100, 0)
    job.restore(run)
    assert job.verify(run).restored == 5


def test_a_job_stops_where_too_few_messages_are_confirmed(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(1000)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        declarer.delete(Queue(QUEUE))
    with pytest.raises(StoppedEarly, match="only 0 of the last"):
        job.send(run, Selection())
    identity = job.verify(run)
    assert identity.kept == 1000
    assert 100 <= identity.refused < 1000


@pytest.mark.nightly("a job that stops is tried each time")
def test_a_job_stops_where_a_queue_goes_away_in_its_middle(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(3000)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])

    def goes_away(phase: str, done: int, total: int) -> None:
        if done >= 1000:
            with declaring(Connector(rabbitmq_url, "test")) as declarer:
                declarer.delete(Queue(QUEUE))

    with pytest.raises(StoppedEarly, match="of the last"):
        SparkJob(
            spark,
            archive,
            rabbitmq_url,
            options=JobOptions(sending=SendSettings(rate=1000, batch=100, timeout=20)),
            on_progress=goes_away,
        ).send(run, Selection())
    identity = job.verify(run)
    assert identity.holds
    assert identity.requeued >= 1000
    assert identity.kept > identity.refused >= 10


@pytest.mark.nightly("a job that stops is tried each time")
def test_a_canary_that_can_not_be_sent_stops_the_job(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(200)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        declarer.delete(Queue(QUEUE))
    with pytest.raises(
        StoppedEarly,
        match=r"20 of the canary's 20 messages could not be sent; .*no queue is bound",
    ):
        SparkJob(spark, archive, rabbitmq_url, replace(QUICK, guards=Guards(canary=20))).send(
            run, Selection()
        )
    assert job.verify(run).refused == 20


@pytest.mark.nightly("a job that stops is tried each time")
def test_a_file_that_is_gone_from_the_archive_makes_the_identity_wrong(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(100)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE], file_rows=20)
    next(Path(archive.storage.uri, messages_folder(QUEUE, run.id)).glob("*.parquet")).unlink()
    identity = job.verify(run)
    assert not identity.holds
    assert identity.drained == 100 > identity.kept
    assert "≠" in str(identity)


@pytest.mark.nightly("what is refused is told by the same code each time")
def test_messages_do_not_go_to_another_broker_unasked(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = replace(job.drain([QUEUE]), address="amqp://guest@before:5672/%2F")
    for send in (job.restore, lambda run: job.send(run, Selection())):
        with pytest.raises(
            ConfigurationError,
            match=r"was drained from amqp://guest@before:5672/%2F, but this is amqp://guest@",
        ):
            send(run)
    assert failures.depths() == (0, 0)
    SparkJob(spark, archive, rabbitmq_url, JobOptions(another_broker=True)).send(run, Selection())
    assert failures.depths() == (20, 0)


@pytest.mark.nightly("a second run is tried each time")
def test_equal_messages_of_a_peer_that_a_broken_off_draining_left_in_both_places_are_all_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url)
    # What PHP set aside is there twice, and has no id of its own; of redrive's, the same failure id
    # is the same failure.
    failures.fill(200).fill(200)
    run = archive.begin(BrokerURL.parse(rabbitmq_url).address, {QUEUE: 400})
    kill_once(
        lambda: rows_drained(archive, run) >= 60,
        "drain",
        rabbitmq_url,
        archive.storage.uri,
        run.id,
        "400",
        "0",
    )
    wait_until(
        lambda: failures.depths()[1] >= 400 - rows_drained(archive, run),
        "the broker has back what was not acked",
    )
    identity = requeue(spark, archive, rabbitmq_url, [QUEUE], options=QUICK)
    assert identity.holds
    times = Counter(one.number for one in failures.in_main())
    assert {
        number for number, count in times.items() if count < (2 if number % 5 == 0 else 1)
    } == set()
    assert sorted(times) == list(range(200))


def test_discarded_messages_are_neither_sent_nor_restored(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    discarded = job.discard(run, Selection("error_type is null"))
    job.send(run, Selection())
    job.restore(run)
    assert discarded == COUNT // 5
    assert str(job.verify(run)) == "300 drained = 240 requeued + 0 restored + 0 kept + 60 discarded"
    assert failures.depths() == (240, 0)


def test_the_driver_and_spark_count_what_became_of_messages_alike(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failures(rabbitmq_url).fill(COUNT)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.discard(run, Selection("error_type is null"))
    job.send(run, Selection("error_type = 'TimeoutError'"))
    ledger = ArchiveLedger(archive.storage, run.id, "another")
    kept = Failures(rabbitmq_url).ids(COUNT)[1:]
    told = [Entry("no such message", Event.SENT), Entry(kept[0], Event.SENDING)]
    ledger.write("part", 0, 0, [*told, *(Entry(one, Event.REFUSED, "no") for one in kept[:9])])
    by_the_driver = job.verify(run)
    monkeypatch.setattr(archived_messages, "_FEW", -1)
    assert job.verify(run) == by_the_driver
    assert by_the_driver.unknown == 1
    assert by_the_driver.refused
    assert by_the_driver.requeued


def test_the_driver_counts_in_the_memory_of_one_thread(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(20)
    run = SparkJob(spark, archive, rabbitmq_url, QUICK).drain([QUEUE])
    kept = ArchivedMessages(spark, archive, run)
    assert kept._ask("select current_setting('threads'), count(*) from {states}") == [(1, 20)]


def test_a_damaged_file_of_the_ledger_is_named_when_messages_are_counted(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.send(run, Selection())
    (file,) = archive.storage.files_below("ledger")[:1]
    archive.storage.write(f"ledger/{file}", b"PAR1, or not")
    with pytest.raises(ConfigurationError, match="is damaged") as by_spark:
        job.verify(run)
    with pytest.raises(ConfigurationError, match="is damaged") as by_the_driver:
        ArchivedMessages(spark, archive, run).counts()
    for raised in (by_spark, by_the_driver):
        assert file in str(raised.value)
        assert len(str(raised.value).splitlines()) == 2


def test_an_archive_may_be_in_a_folder_of_any_name(
    spark: "SparkSession", tmp_path: Path, rabbitmq_url: str
) -> None:
    (tmp_path / "incident1").mkdir()
    Failures(rabbitmq_url).fill(20)
    archive = Archive(str(tmp_path / "incident[1] *?#%20:"))
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.send(run, Selection("error_type = 'TimeoutError'"))
    job.restore(run)
    identity = job.verify(run)
    assert identity.holds
    assert (identity.requeued + identity.restored, identity.kept) == (20, 0)
    assert identity.requeued
    assert identity.restored


@pytest.mark.nightly("the rate is tried without Spark each time")
def test_a_rate_is_never_exceeded(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(200)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    seen: list[int] = []
    begun = time.monotonic()
    SparkJob(
        spark,
        archive,
        rabbitmq_url,
        options=JobOptions(sending=SendSettings(rate=200, batch=20)),
        on_progress=lambda _, done, __: seen.append(done),
    ).send(run, Selection())
    assert seen[-1] == 200
    # 200 messages at 200 a second can't be through in less, whatever the machine does.
    assert time.monotonic() - begun > 0.8


def test_the_plan_has_the_causes_and_what_would_be_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(COUNT)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    plan = job.plan(run, Selection("error_type = 'KeyError'"))
    assert plan.count == COUNT
    assert sum(group.count for group in plan.groups) == COUNT
    assert {group.error_type for group in plan.groups} == {
        None,
        "KeyError",
        "TimeoutError",
        "shop.PaymentError",
    }
    assert (
        plan.chosen
        == sum(group.count for group in plan.groups if group.error_type == "KeyError")
        > 0
    )
    # What another library has set aside says by its x-death when.
    assert sum(count for _, count in plan.times) == COUNT


def test_looking_takes_nothing(spark: "SparkSession", archive: Archive, rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url).fill(100)
    plan = SparkJob(spark, archive, rabbitmq_url, QUICK).plan_by_looking([QUEUE], Selection())
    assert plan.count == plan.chosen == 100
    assert archive.runs() == []
    assert numbers(failures.in_failed()) == list(range(100))


@pytest.mark.nightly("what is refused is told by the same code each time")
def test_what_arrives_meanwhile_is_left(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(100)
    late: list[int] = []

    def arrives(phase: str, done: int, total: int) -> None:
        if not late:
            late.append(1)
            failures.fill(30, seed=1)

    run = SparkJob(spark, archive, rabbitmq_url, QUICK, on_progress=arrives).drain([QUEUE])
    assert stored(spark, archive, run).count() == 100
    assert failures.depths() == (0, 30)


def test_a_queue_that_is_not_there_is_named(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    with pytest.raises(ConfigurationError, match="there is no queue 'nobody@here@failed'"):
        requeue(spark, archive, rabbitmq_url, ["nobody@here"])
    assert archive.runs() == []


@pytest.mark.nightly("what is refused is told by the same code each time")
def test_an_unfinished_draining_of_other_queues_is_refused(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(5)
    archive.begin("amqp://guest@elsewhere:5672/%2F", {"other@queue": 7})
    with pytest.raises(
        ConfigurationError, match=r"unfinished drain .* of other@queue at amqp://guest@elsewhere"
    ):
        requeue(spark, archive, rabbitmq_url, [QUEUE])


def test_a_broker_that_is_not_there_is_told_of_in_two_lines(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    Failures(rabbitmq_url).fill(5)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    nowhere = "amqp://guest:secret-word@127.0.0.1:1/"
    with pytest.raises(BrokerUnavailable) as raised:
        SparkJob(
            spark,
            archive,
            nowhere,
            JobOptions(sending=SendSettings(timeout=1), another_broker=True),
        ).send(run, Selection())
    assert "127.0.0.1:1" in str(raised.value)
    assert "secret-word" not in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2


def test_the_archive_answers_what_is_asked_after_an_incident(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    from pyspark.sql import functions as F

    Failures(rabbitmq_url).fill(60)
    SparkJob(spark, archive, rabbitmq_url, QUICK).drain([QUEUE])
    failed = messages(spark, archive)
    by_cause = (
        failed.groupBy("group_id", "error_type")
        .agg(F.min("failed_at").alias("since"), F.count("*").alias("n"))
        .collect()
    )

    assert failed.columns == [*(column.name for column in COLUMNS), "run"]
    assert failed.count() == sum(row.n for row in by_cause) == 60
    assert {row.error_type for row in by_cause} >= {"TimeoutError", None}  # PHP names no type
    assert failed.where(F.get_json_object("body", "$.id") == "7").count() == 1


def test_states_tell_what_became_of_each_id(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(20)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([QUEUE])
    job.send(run, Selection("retries = 3 and error_type is not null"))
    states = {
        row["id"]: row["state"]
        for row in ArchivedMessages(spark, archive, run).with_states().collect()
    }
    expected = {
        id_: "kept" if number % 5 == 0 else Event.SENT
        for number, id_ in enumerate(failures.ids(20))
    }
    assert states == expected
