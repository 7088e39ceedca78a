"""The shared journal while its broker or its stream fails in the middle of a job: the job ends, no
message is lost, and what the journal says stays true."""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cli_support import redrive, running
from contract.administration import Administration, Memory
from contract.plain import depth, drain, plain_channel
from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.failures.jobs.journal_stream import JournalStream
from redrive.failures.queue.order import Order
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.url import BrokerURL
from redrive.testing import Broker
from redrive.topology.headers import Delivery
from redrive.topology.names import JOURNAL
from waiting import DEADLINE, wait_until

QUEUE = "ucenter@user"
COUNT = 600
pytestmark = [pytest.mark.versions("streams"), pytest.mark.timeout(480)]


@pytest.fixture
def administration(rabbitmq_management_url: str, rabbitmq_url: str) -> Administration:
    return Administration(rabbitmq_management_url, rabbitmq_url)


@pytest.fixture
def memory(rabbitmq_broker: Broker, administration: Administration) -> Iterator[Memory]:
    """The broker's memory; it is free again after the test."""
    memory = Memory(rabbitmq_broker, administration)
    yield memory
    memory.free()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here" / "journal.sqlite3"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "journal.sqlite3"


def _failure(number: int) -> Delivery:
    own = {"redrive-failure-id": str(number), "redrive-error-type": "KeyError"}
    properties = Properties(headers=Table.of(own), delivery_mode=2, message_id=str(number))
    return Delivery(QUEUE, "master.failed", QUEUE, properties, str(number).encode())


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    declared = redrive("declare", "--queue", QUEUE, "--routing-key", "user.*", url=rabbitmq_url)
    assert declared.code == 0, declared.err
    FailedQueue(rabbitmq_url, QUEUE).restore(_failure(number) for number in range(COUNT))
    return rabbitmq_url


def _sent(url: str) -> int:
    return depth(url, QUEUE)


def _the_job(url: str, path: Path) -> dict[str, object]:
    done = redrive("jobs", "list", "--journal", str(path), "--output", "json", url=url)
    assert done.code == 0, done.err
    (job,) = done.json()
    assert isinstance(job, dict)
    return job


def _check_all_were_sent(url: str, job: dict[str, object]) -> None:
    main = Counter(properties.message_id for properties, _ in drain(url, QUEUE))
    assert main.keys() == {str(number) for number in range(COUNT)}
    possible_duplicates = job["possible_duplicates"]
    assert isinstance(possible_duplicates, int)
    assert main.total() - len(main) <= possible_duplicates
    assert (job["state"], job["sent"]) == ("done", COUNT)
    assert FailedQueue(url, QUEUE).depth() == 0


def test_a_job_ends_and_is_told_of_although_the_broker_took_no_messages_meanwhile(
    incident: str, memory: Memory, here: Path, there: Path
) -> None:
    command = ("failed", "requeue", QUEUE, "--rate", "100/s", "--yes", "--reason", "fixed")
    with running(*command, "--journal", str(here), url=incident) as process:
        wait_until(lambda: _sent(incident) > 0, "the job sends")
        memory.use_up()
        stopped_at = -1

        def has_stopped() -> bool:
            nonlocal stopped_at
            before, stopped_at = stopped_at, _sent(incident)
            return before == stopped_at

        wait_until(has_stopped, "the broker takes no messages")
        memory.free()
        code = process.end().code
    if code:  # it may have waited for too long: then it says so, and goes on from there
        resumed = redrive(
            "jobs",
            "resume",
            str(_the_job(incident, here)["id"]),
            "--yes",
            *("--journal", str(here)),
            url=incident,
        )
        assert resumed.code == 0, resumed.err
    job = _the_job(incident, here)
    assert _the_job(incident, there)["id"] == job["id"]
    _check_all_were_sent(incident, _the_job(incident, there))


@pytest.mark.nightly("one of these is tried each time")
def test_a_job_goes_on_when_the_connection_of_its_journal_is_closed(
    incident: str, administration: Administration, here: Path, there: Path
) -> None:
    command = ("failed", "requeue", QUEUE, "--rate", "30/s", "--yes", "--reason", "fixed")
    name = default_name("journal")
    with running(*command, "--journal", str(here), url=incident) as process:
        wait_until(lambda: _sent(incident) > 0, "the job sends")
        administration.wait_for_connection(name)
        assert administration.close_connections(name)
        before = _sent(incident)
        wait_until(lambda: _sent(incident) > before, "the job goes on")
        process.end()
    job = _the_job(incident, there)
    assert (job["state"], job["problem"]) == ("done", "")
    _check_all_were_sent(incident, job)
    assert _the_job(incident, here) == _the_job(incident, there)


@pytest.mark.nightly("one of these is tried each time")
def test_what_is_appended_while_the_connection_is_closed_is_appended_again(
    rabbitmq_url: str, administration: Administration
) -> None:
    stream = JournalStream(rabbitmq_url)
    stream.declare()
    appended: list[str] = []
    over = threading.Event()

    def append() -> None:
        while not over.is_set():
            id_ = str(uuid.uuid4())
            stream.append([(id_, b"an entry")])
            appended.append(id_)

    def goes_on() -> bool:
        return appending.done() or len(appended) > before

    name = default_name("journal")
    with closing(stream), ThreadPoolExecutor() as threads:
        appending = threads.submit(append)
        for _ in range(3):
            administration.wait_for_connection(name)
            before = len(appended)
            administration.close_connections(name)
            wait_until(goes_on, "it appends")
        over.set()
        appending.result(DEADLINE)
        mark = str(uuid.uuid4())
        stream.append([(mark, b"a mark")])
        read = [row.message_id for row in stream.read(None, mark)]
    assert set(read) == {*appended, mark}


def _job(url: str) -> JobRecord:
    return JobRecord(
        str(uuid.uuid4()),
        "requeue",
        QUEUE,
        BrokerURL.parse(url).address,
        Order(to="elsewhere").as_json(),
    )


def _declare_tiny_stream(url: str) -> None:
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": 20_000,
        "x-stream-max-segment-size-bytes": 10_000,
    }
    with plain_channel(url) as channel:
        channel.queue_declare(JOURNAL, durable=True, arguments=arguments)


def _fill(journal: Journal, job: JobRecord) -> None:
    """Appends so much of a job that the broker drops how it began."""
    for _ in range(400):
        journal.sending(job.id, [f"{number:064x}" for number in range(20)])
        journal.settled(job.id, [])


def test_of_a_job_whose_beginning_was_dropped_by_retention_what_is_left_is_told(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    _declare_tiny_stream(rabbitmq_url)
    with closing(Journal(rabbitmq_url, here)) as journal:
        early = journal.begin(_job(rabbitmq_url))
        journal.update(replace(early, state=State.DONE, sent=1))
    with closing(Journal(rabbitmq_url, here)) as journal:
        late = journal.begin(_job(rabbitmq_url))
        _fill(journal, late)
        assert journal.is_shared

        # Whoever has seen it all knows it still.
        assert {job.id for job in journal.jobs()} == {early.id, late.id}

    said: list[str] = []
    with closing(Journal(rabbitmq_url, there, on_notice=said.append)) as other:
        assert other.jobs() == []
    assert len(said) == 1
    assert "names a job whose beginning the broker has dropped" in said[0]

    with closing(Journal(rabbitmq_url, here)) as journal:
        late = journal.begin(late)
        journal.update(replace(late, state=State.DONE))
    said.clear()
    with closing(Journal(rabbitmq_url, there, on_notice=said.append)) as other:
        assert [(job.id, job.order) for job in other.jobs()] == [(late.id, late.order)]
    assert said == []


def test_whoever_comes_back_after_entries_were_dropped_is_told_how_many(
    rabbitmq_url: str, here: Path, there: Path
) -> None:
    _declare_tiny_stream(rabbitmq_url)
    with closing(Journal(rabbitmq_url, here)) as journal:
        known = journal.begin(_job(rabbitmq_url))
        journal.update(replace(known, state=State.INTERRUPTED, sent=1))
    with closing(Journal(rabbitmq_url, there)) as other:
        assert [job.id for job in other.jobs()] == [known.id]
    with closing(Journal(rabbitmq_url, here)) as journal:
        _fill(journal, journal.begin(_job(rabbitmq_url)))
    said: list[str] = []
    with closing(Journal(rabbitmq_url, there, on_notice=said.append)) as other:
        assert known.id in {job.id for job in other.jobs()}
    assert any("were dropped by the broker before" in one for one in said), said
