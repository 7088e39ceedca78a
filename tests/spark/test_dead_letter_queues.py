"""The job on Spark on dead-letter queues that redrive did not make: each message goes to where it
failed, or stays, counted by its id."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pyarrow.parquet
import pytest

from cli_support import find_the_management_api, redrive
from contract.plain import RawProperties, plain_channel, properties_of
from dead_letters import BYSTANDER, EXCHANGE, KEY, Arrival, DeadLetters
from effort import nightly
from framework_messages import CELERY, DRAMATIQ, EASYNETQ, MASSTRANSIT, death
from management_proxy import FIELDS, REFUSED, UNCOUNTED, proxy_before
from redrive import FailedQueue
from redrive.errors import ConfigurationError
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.index import Index
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive import Archive, messages_folder
from redrive.spark_reprocess.archive_reader import messages
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.send import StoppedEarly
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.topology.headers import Delivery
from redrive.web import plan_page
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest
from spark.support import QUEUE, Failures
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60
QUICK = JobOptions(sending=SendSettings(timeout=20, batch=50))


@pytest.fixture(autouse=True)
def _management(rabbitmq_management_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What messages say of their way is checked by the management API."""
    find_the_management_api(monkeypatch, rabbitmq_management_url)


@pytest.fixture(params=["quorum", "classic"])
def dead(request: pytest.FixtureRequest, rabbitmq_url: str) -> DeadLetters:
    """`orders` and `undelivered`."""
    found = DeadLetters(rabbitmq_url, queue_type=request.param)
    found.declare()
    return found


@pytest.fixture
def quorum(rabbitmq_url: str) -> DeadLetters:
    """The same, of quorum queues."""
    found = DeadLetters(rabbitmq_url)
    found.declare()
    return found


def ids(found: Iterable[tuple[str, object]]) -> list[str]:
    return sorted((id_ for id_, _ in found), key=lambda id_: (len(id_), id_))


def put(url: str, queue: str, some: Iterable[tuple[str, Delivery]]) -> None:
    """Puts messages of a framework into a queue, under these ids."""
    with plain_channel(url) as channel:
        channel.queue_declare(queue, durable=True)
        for id_, delivery in some:
            given = properties_of(delivery.properties.headers, id_)
            channel.basic_publish("", queue, delivery.body, given)


@pytest.mark.parametrize(
    "left_out",
    [
        frozenset({"arguments"}),
        nightly(UNCOUNTED, why="what it leaves out is tried over all other readers each time"),
        *(nightly(frozenset({field}), why="one field each") for field in FIELDS),
    ],
    ids=lambda fields: "all" if len(fields) > 1 else min(fields),
)
def test_nothing_is_lost_whatever_the_management_api_does_not_tell(
    spark: "SparkSession",
    archive: Archive,
    quorum: DeadLetters,
    rabbitmq_management_url: str,
    left_out: frozenset[str],
) -> None:
    wanted = quorum.fail(COUNT)
    with proxy_before(rabbitmq_management_url) as proxy:
        proxy.left_out = left_out
        proxy.refused = REFUSED if left_out == UNCOUNTED else frozenset()
        options = replace(QUICK, management_url=proxy.address)
        identity = requeue(spark, archive, quorum.url, [quorum.place], options=options)
    sent = ids(quorum.drain())
    assert set(sent) <= set(wanted)
    assert len(sent) == identity.requeued
    assert (identity.drained, identity.kept) == (COUNT, COUNT - len(sent))


@pytest.mark.versions("x-death, which tells the way back")
def test_each_message_goes_to_the_queue_that_it_failed_in_and_nowhere_else(
    spark: "SparkSession", archive: Archive, dead: DeadLetters
) -> None:
    wanted = dead.fail(COUNT)
    before = dead.depth(BYSTANDER)
    identity = requeue(spark, archive, dead.url, [dead.place], options=QUICK)

    assert (
        str(identity) == f"{COUNT} drained = {COUNT} requeued + 0 restored + 0 kept + 0 discarded"
    )
    found = dead.drain()
    assert ids(found) == wanted
    assert (dead.depth(), dead.depth(BYSTANDER)) == (0, before)
    for _, properties in found:
        assert properties.headers is not None
        assert properties.headers["redrive-count"] == 1
        assert properties.headers["x-orig-routing-key"] == KEY
        assert not {"x-death", "x-first-death-queue", "x-last-death-queue"} & set(
            properties.headers
        )


@pytest.mark.versions("x-death, which tells the way back")
def test_what_says_no_way_back_stays_in_the_archive_is_listed_and_can_be_restored(
    spark: "SparkSession", archive: Archive, dead: DeadLetters
) -> None:
    wanted = dead.fail(COUNT)
    for number in range(3):
        dead.put(b'{"stray": %d}' % number, f"stray-{number}")
    job = SparkJob(spark, archive, dead.url, QUICK)
    identity = job.requeue([dead.place], Selection("message_id <> '7'"))

    assert identity is not None
    assert str(identity) == "63 drained = 59 requeued + 1 restored + 3 kept + 0 discarded"
    assert (identity.holds, identity.unchecked, len(identity.without_way_back)) == (True, 3, 3)
    assert {one["queue"] for one in identity.without_way_back} == {dead.place}
    assert ids(dead.drain()) == [id_ for id_ in wanted if id_ != "7"]
    assert ids(dead.drain(dead.place)) == ["7"]
    run = archive.run()
    assert archive.is_ended(run)
    job.restore(run)
    assert ids(dead.drain(dead.place)) == ["stray-0", "stray-1", "stray-2"]
    assert str(job.verify(run)) == "63 drained = 59 requeued + 4 restored + 0 kept + 0 discarded"


@pytest.mark.nightly("the ways back are rules, and one of them is tried on Spark each time")
def test_a_queue_that_is_named_takes_those_too_that_say_no_way(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    quorum.fail(5)
    quorum.put(b"{}", "stray")
    with plain_channel(quorum.url) as channel:
        channel.queue_declare("elsewhere", durable=True)
    identity = requeue(spark, archive, quorum.url, [quorum.place], to="elsewhere", options=QUICK)

    assert (identity.requeued, identity.no_way_back) == (6, 0)
    assert ids(quorum.drain("elsewhere")) == ["0", "1", "2", "3", "4", "stray"]
    assert quorum.drain() == []


@pytest.mark.nightly("the ways back are rules, and one of them is tried on Spark each time")
def test_the_way_by_the_first_exchange_gives_others_a_copy(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    quorum.fail(5)
    quorum.put(b"{}", "stray")
    before = quorum.depth(BYSTANDER)
    job = SparkJob(spark, archive, quorum.url, QUICK)
    planned = job.plan(job.drain([quorum.place]), Selection(via=True))
    assert planned.ways == {f"exchange {EXCHANGE} with {KEY}": 5}
    assert planned.queues == []
    identity = job.requeue([quorum.place], Selection(via=True))

    assert identity is not None
    assert (identity.requeued, identity.no_way_back) == (5, 1)
    assert ids(quorum.drain()) == ["0", "1", "2", "3", "4"]
    assert quorum.depth(BYSTANDER) == before + 5


@pytest.mark.versions("x-death, which tells the way back")
def test_what_frameworks_write_tells_the_way_and_is_taken_off_as_on_one_machine(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    some = {"celery": CELERY, "dramatiq": DRAMATIQ, "masstransit": MASSTRANSIT}
    place = "mixed.dlq"
    put(rabbitmq_url, place, some.items())
    expected = {
        message.message_id: message.way_back
        for message in FailedQueue(rabbitmq_url, place).browse()
    }
    with plain_channel(rabbitmq_url) as channel:
        for way in filter(None, expected.values()):
            if way.queue is not None:
                channel.queue_declare(way.queue, durable=True)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)
    run = job.drain([place])
    rows = {row["message_id"]: row for row in messages(spark, archive, run.id).collect()}
    assert {id_: row["way_back"] for id_, row in rows.items()} == {
        id_: None if way is None else str(way) for id_, way in expected.items()
    }
    assert {row["dead_letter_queue"] for row in rows.values()} == {place}
    assert {id_: row["dialect"] for id_, row in rows.items()} == {id_: id_ for id_ in some}
    identity = job.requeue([place], Selection())

    with_way = {id_: way for id_, way in expected.items() if way is not None}
    assert identity is not None
    assert (identity.requeued, identity.no_way_back) == (len(with_way), len(some) - len(with_way))
    dead = DeadLetters(rabbitmq_url)
    for id_, way in with_way.items():
        assert id_ is not None
        assert way.queue is not None
        ((found, properties),) = dead.drain(way.queue)
        assert found == id_
        assert not [name for name in properties.headers or {} if name.startswith("MT-Fault")]
        assert "traceback" not in (properties.headers or {})


@pytest.mark.nightly("the ways back are rules, and one of them is tried on Spark each time")
def test_several_queues_of_both_kinds_go_in_one_run(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    failures = Failures(quorum.url).fill(30)
    wanted = quorum.fail(20)
    job = SparkJob(spark, archive, quorum.url, QUICK)
    identity = job.requeue([QUEUE, quorum.place], Selection())

    assert identity is not None
    assert (identity.holds, identity.requeued) == (True, 50)
    assert failures.depths() == (30, 0)
    assert ids(quorum.drain()) == wanted
    run = archive.run()
    assert (run.main_queues, run.dead_letter_queues) == ([QUEUE], [quorum.place])


@pytest.mark.nightly("the ways back are rules, and one of them is tried on Spark each time")
def test_a_name_that_a_subscription_has_too_is_taken_literally_where_that_is_asked_for(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(10)
    with plain_channel(rabbitmq_url) as channel:
        channel.basic_publish("", QUEUE, b"{}")
    job = SparkJob(spark, archive, rabbitmq_url, replace(QUICK, literal=True))
    run = job.drain([QUEUE])
    assert (run.dead_letter_queues, failures.depths()) == ([QUEUE], (0, 10))
    job.restore(run)
    assert failures.depths() == (1, 10)


@pytest.mark.nightly("the ways back are rules, and one of them is tried on Spark each time")
def test_the_failed_queue_itself_names_its_subscription(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(10)
    identity = requeue(spark, archive, rabbitmq_url, [f"{QUEUE}@failed"], options=QUICK)
    assert (identity.queues, failures.depths()) == ([QUEUE], (10, 0))


def test_looking_takes_nothing_and_says_the_price(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    dead = DeadLetters(rabbitmq_url, limit=5)
    dead.declare()
    dead.fail(5)
    dead.put(b"{}", "stray")
    notes: list[str] = []
    job = SparkJob(spark, archive, rabbitmq_url, QUICK, on_note=notes.append)
    planned = job.plan_by_looking([dead.place], Selection())

    assert (planned.chosen, planned.unchecked) == (5, 1)
    assert planned.ways == {dead.queue: 5}
    assert [one["queue"] for one in planned.without_way_back] == [dead.place]
    (note,) = notes
    assert note.startswith(f"{dead.place} has a delivery limit: each look uses up one of the 5 ")
    assert dead.depth() == 6


def test_the_command_line_the_api_the_console_and_spark_say_the_same_of_the_ways(
    spark: "SparkSession",
    archive: Archive,
    quorum: DeadLetters,
    rabbitmq_management_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    quorum.fail(3)
    quorum.put(b"{}", "stray")
    with plain_channel(quorum.url) as channel:
        for id_ in ("one", "two"):
            properties = pika.BasicProperties(message_id=id_, headers=death("gone"))  # type: ignore[no-untyped-call]
            channel.basic_publish("", quorum.place, b"{}", properties)
    wait_until(lambda: quorum.depth() == 6, "all are there")
    sentences = (
        "2 messages not included: what they say about their way back is contradicted.",
        "1 message not included: the broker could not confirm its way back.",
    )

    said = redrive("failed", "requeue", quorum.place, "--dry-run", url=quorum.url)
    told = redrive(
        *("failed", "requeue", quorum.place, "--dry-run", "--output", "json"), url=quorum.url
    ).json()
    plan = FailedQueue(quorum.url, quorum.place).plan()
    redrive("failed", "groups", quorum.place, url=quorum.url)  # whose look the console asks
    settings = ConsoleSettings(url=quorum.url, management_url=rabbitmq_management_url)
    asked = PageRequest({"queue": quorum.place})
    page = bytes(plan_page.show(ConsoleContext.of(settings), asked).body).decode()
    taken = redrive(
        *("spark", "requeue", quorum.place, "--archive", archive.storage.uri, "--dry-run"),
        url=quorum.url,
    )
    looked = SparkJob(spark, archive, quorum.url, QUICK).plan_by_looking(
        [quorum.place], Selection()
    )

    counts = (3, 2, 1)
    assert (told["planned"], told["contradicted"], told["unchecked"]) == counts
    assert (plan.count, plan.contradicted, plan.unchecked) == counts
    assert (looked.chosen, looked.contradicted, looked.unchecked) == counts
    for sentence in sentences:
        assert sentence in said.out
        assert sentence in page
        assert sentence in taken.out


def test_looks_never_take_the_last_life(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    dead = DeadLetters(rabbitmq_url, limit=3)
    dead.declare()
    wanted = dead.fail(5)
    job = SparkJob(spark, archive, rabbitmq_url, QUICK)

    def look_often() -> None:
        for _ in range(6):
            job.plan_by_looking([dead.place], Selection())

    for _ in range(2):
        with pytest.raises(ConfigurationError, match="another look could delete them"):
            look_often()
    assert ids(dead.drain(dead.place)) == wanted


def test_a_queue_that_would_delete_a_message_at_once_is_not_drained(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    dead = DeadLetters(rabbitmq_url, limit=1)
    dead.declare()
    dead.fail(3)
    with pytest.raises(ConfigurationError, match="its delivery limit is 1"):
        requeue(spark, archive, rabbitmq_url, [dead.place], options=QUICK)
    assert (archive.runs(), dead.depth()) == ([], 3)


@pytest.mark.nightly("the archive is that of any queue")
def test_what_is_kept_of_earlier_looks_at_a_queue_is_dropped_when_it_is_drained(
    spark: "SparkSession",
    archive: Archive,
    quorum: DeadLetters,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    quorum.fail(5)
    assert redrive("failed", "groups", quorum.place, url=quorum.url).code == 0
    index = Index(BrokerURL.parse(quorum.url))
    assert index.find(quorum.place) is not None
    SparkJob(spark, archive, quorum.url, QUICK).drain([quorum.place])
    assert index.find(quorum.place) is None


@pytest.mark.nightly("the archive is that of any queue")
def test_a_snapshot_of_a_dead_letter_queue_is_sent_and_restored_to_where_it_came_from(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters, tmp_path: Path
) -> None:
    wanted = quorum.fail(10)
    quorum.put(b"{}", "stray")
    file = Snapshot(tmp_path / "dead.parquet")
    file.write(FailedQueue(quorum.url, quorum.place).browse())
    quorum.drain(quorum.place)
    job = SparkJob(spark, archive, quorum.url, QUICK)
    identity = job.requeue([], Selection(), snapshot=file)

    assert identity is not None
    assert (identity.requeued, identity.unchecked) == (10, 1)
    assert ids(quorum.drain()) == wanted
    job.restore(archive.run())
    assert ids(quorum.drain(quorum.place)) == ["stray"]


@pytest.mark.nightly("the archive is that of any queue")
def test_the_archive_is_read_without_spark_and_restored_to_the_same_queue(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    wanted = quorum.fail(10)
    SparkJob(spark, archive, quorum.url, QUICK).drain([quorum.place])
    assert quorum.depth() == 0
    done = redrive("failed", "restore", archive.storage.uri, "--yes", url=quorum.url)
    assert done.code == 0, done.err
    assert ids(quorum.drain(quorum.place)) == wanted


@pytest.mark.parametrize("arrival", ["default", nightly("topic", why="the same watch")])
@pytest.mark.nightly("a canary over a subscription is tried each time")
def test_a_canary_stops_on_what_comes_back(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, arrival: Arrival
) -> None:
    dead = DeadLetters(rabbitmq_url, arrival=arrival)
    dead.declare()
    wanted = dead.fail(COUNT)
    guards = Guards(canary=5, watch=timedelta(seconds=120), unknown=Unknown.GO_ON)
    job = SparkJob(spark, archive, rabbitmq_url, replace(QUICK, guards=guards))
    with (
        dead.consumer(lambda _: False),
        pytest.raises(StoppedEarly, match="failed again") as stopped,
    ):
        job.requeue([dead.place], Selection())

    assert stopped.value.identity is not None
    assert stopped.value.identity.requeued == 5
    job.restore(archive.run())
    there = Counter(id_ for id_, _ in [*dead.drain(dead.place), *dead.drain()])
    assert there == Counter(wanted)


@pytest.mark.nightly("another canary of such a queue is tried each time")
def test_a_canary_that_nothing_came_back_of_lets_the_rest_follow_where_that_is_asked_for(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    wanted = quorum.fail(COUNT)
    notes: list[str] = []
    guards = Guards(canary=5, watch=timedelta(seconds=2), unknown=Unknown.GO_ON)
    options = replace(QUICK, guards=guards)
    job = SparkJob(spark, archive, quorum.url, options, on_note=notes.append)
    with quorum.consumer(lambda _: True) as handled:
        identity = job.requeue([quorum.place], Selection())
        assert identity is not None
        assert identity.requeued == COUNT
        wait_until(lambda: len(handled) == COUNT, "all are handled")
    assert any("None of 5 was seen again in undelivered for 2s" in note for note in notes)
    assert sorted([*handled, *(id_ for id_, _ in quorum.drain())], key=int) == wanted


@pytest.mark.nightly("another canary of such a queue is tried each time")
def test_a_canary_of_both_kinds_of_queues_is_refused(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    Failures(quorum.url).fill(5)
    quorum.fail(5)
    job = SparkJob(spark, archive, quorum.url, replace(QUICK, guards=Guards(canary=2)))
    with pytest.raises(ConfigurationError, match="one canary can't be judged by both"):
        job.requeue([QUEUE, quorum.place], Selection())
    assert quorum.drain() == []


def test_the_commands_say_what_was_taken_where_it_goes_and_what_stays(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    quorum.fail(10)
    quorum.put(b"{}", "stray")
    arguments = (quorum.place, "--archive", archive.storage.uri)
    looked = redrive("spark", "requeue", *arguments, "--dry-run", url=quorum.url)
    assert looked.code == 0, looked.err
    assert looked.error_lines[0] == (
        "Taking undelivered, a dead-letter queue that redrive did not make."
    )
    left = "1 message not included: the broker could not confirm its way back."
    assert left in looked.out
    done = redrive("spark", "requeue", *arguments, "--yes", url=quorum.url)
    assert done.code == 0, done.err
    assert "1 message stays in the archive." in done.out
    assert left in done.out
    assert done.out.splitlines()[-1] == (
        "11 drained = 10 requeued + 0 restored + 1 kept + 0 discarded"
    )
    sent = redrive(
        *("spark", "send", "--archive", archive.storage.uri, "--to", quorum.queue),
        *("--yes", "--output", "json"),
        url=quorum.url,
    )
    assert sent.code == 0, sent.err
    assert json.loads(sent.out)["requeued"] == 11
    assert "stray" in ids(quorum.drain())


@pytest.mark.nightly("the archive is that of any queue")
def test_bodies_are_changed_and_the_way_is_that_of_before(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    with plain_channel(rabbitmq_url) as channel:
        for queue in ("errors", "billing"):
            channel.queue_declare(queue, durable=True)
        properties = RawProperties(EASYNETQ.properties.encode())
        channel.basic_publish("", "errors", EASYNETQ.body, properties)
    patch = '[{"op": "replace", "path": "/Queue", "value": "elsewhere"}]'
    options = replace(QUICK, guards=Guards(1, timedelta(seconds=1), unknown=Unknown.GO_ON))
    job = SparkJob(spark, archive, rabbitmq_url, options)
    identity = job.requeue(["errors"], Selection(patch=patch))

    assert identity is not None
    assert (identity.requeued, identity.refused) == (1, 0)
    with plain_channel(rabbitmq_url) as channel:
        _, _, body = channel.basic_get("billing", auto_ack=True)
    assert body == b'{"OrderId":42}'


@pytest.mark.nightly("another canary of such a queue is tried each time")
def test_a_canary_of_changed_bodies_is_watched_as_long_as_its_retries_take(
    spark: "SparkSession", archive: Archive, quorum: DeadLetters
) -> None:
    quorum.fail(10)
    job = SparkJob(spark, archive, quorum.url, replace(QUICK, guards=Guards(canary=2)))
    with quorum.consumer(lambda _: False), pytest.raises(StoppedEarly, match="failed again"):
        job.requeue([quorum.place], Selection(patch='{"mended": true}'))


@pytest.mark.nightly("the archive is that of any queue")
def test_an_archive_of_before_is_read_and_sent(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(30)
    run = SparkJob(spark, archive, rabbitmq_url, QUICK).drain([QUEUE])
    folder = Path(archive.storage.uri, messages_folder(QUEUE, run.id))
    for file in folder.glob("*.parquet"):
        table = pyarrow.parquet.read_table(file, partitioning=None)
        file.unlink()
        new = ["failed_in", "dead_letter_queue", "way_back", "dialect"]
        pyarrow.parquet.write_table(table.drop_columns(new), file)
    identity = SparkJob(spark, archive, rabbitmq_url, QUICK).requeue(
        [QUEUE], Selection("error_type = 'TimeoutError'")
    )
    assert identity is not None
    assert (identity.holds, identity.drained, identity.no_way_back) == (True, 30, 0)
    assert failures.depths() == (identity.requeued, 30 - identity.requeued)
    assert identity.requeued
