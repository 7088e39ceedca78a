"""One task against a broker, with everything that can break: killed, cut off, started twice, out of
room."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from redrive.errors import ConfigurationError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.spark_reprocess import send_task
from redrive.spark_reprocess.archive import Archive, Run, messages_folder, rows_of
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.ledger import ArchiveLedger, Event
from redrive.spark_reprocess.row_message import Mode
from redrive.spark_reprocess.send_task import SendTask, Sent
from redrive.testing import Broker
from redrive.topology.model import Queue
from spark import task_program
from spark.support import QUEUE, Failures, numbers, take_all
from waiting import wait_until

COUNT = 600


def begin(archive: Archive, failures: Failures, count: int = COUNT) -> Run:
    """A run of a queue with so many failed messages."""
    failures.fill(count)
    return archive.begin("amqp://test", {QUEUE: count})


def drained(archive: Archive, failures: Failures, count: int = COUNT) -> Run:
    """A run that is drained."""
    run = begin(archive, failures, count)
    assert task_program.drain(failures.url, archive.storage, run.id, count, 0) == count
    return run


def archived_ids(archive: Archive, run: Run) -> list[str]:
    """The failure id of each row of a run."""
    found: list[str] = []
    folder = messages_folder(QUEUE, run.id)
    for name in archive.storage.names(folder):
        table = pyarrow.parquet.read_table(
            pyarrow.BufferReader(archive.storage.read(f"{folder}/{name}")), columns=["failure_id"]
        )
        assert len(table) == rows_of(name)
        found += table["failure_id"].to_pylist()
    return found


def entries(archive: Archive, run: Run) -> list[dict[str, object]]:
    """What is in the ledger of a run."""
    ledger = ArchiveLedger(archive.storage, run.id, task_program.JOB)
    found: list[dict[str, object]] = []
    for name in archive.storage.names(ledger.folder):
        found += pyarrow.parquet.read_table(
            pyarrow.BufferReader(archive.storage.read(f"{ledger.folder}/{name}"))
        ).to_pylist()
    return found


def kill_once(condition: Callable[[], bool], what: str, *arguments: str) -> None:
    """Runs a task as a process, and kills it -9 as soon as a condition is true."""
    process = subprocess.Popen(
        [sys.executable, task_program.__file__, what, *arguments], stderr=subprocess.PIPE
    )
    with process:
        wait_until(lambda: condition() or process.poll() is not None, f"{what} is under way", 900)
        process.kill()
        error = process.stderr.read().decode() if process.stderr else ""
    assert process.returncode == -9, error


def test_a_killed_draining_loses_nothing_and_the_next_attempt_takes_the_rest(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url)
    run = begin(archive, failures)
    kill_once(
        lambda: rows_drained(archive, run) >= 60,
        "drain",
        rabbitmq_url,
        archive.storage.uri,
        run.id,
        str(COUNT),
        "0",
    )
    before = rows_drained(archive, run)
    assert before < COUNT
    wait_until(
        lambda: failures.depths()[1] + before >= COUNT, "the broker has back what was not acked"
    )
    assert task_program.drain(rabbitmq_url, archive.storage, run.id, COUNT, 1) == COUNT - before
    # What was in a file and not acked is in both: the ids tell.
    left = [one.failure_id for one in failures.in_failed()]
    assert set(left) | set(archived_ids(archive, run)) == set(failures.ids(COUNT))
    assert len(left) <= 2 * task_program.FILE_ROWS


@pytest.mark.nightly("restarts a broker")
def test_a_broker_that_restarts_while_it_is_drained_loses_nothing(
    archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker
) -> None:
    failures = Failures(rabbitmq_url)
    run = begin(archive, failures)
    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(task_program.drain, rabbitmq_url, archive.storage, run.id, COUNT, 0)
        wait_until(lambda: rows_drained(archive, run) >= 40, "the draining is under way")
        rabbitmq_broker.restart()
        draining.result(200)
    left = [one.failure_id for one in failures.in_failed()]
    assert set(left) | set(archived_ids(archive, run)) == set(failures.ids(COUNT))


def test_a_killed_sending_is_taken_up_by_the_next_attempt_with_a_batch_of_duplicates_at_most(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url)
    run = drained(archive, failures)
    kill_once(
        lambda: failures.depths()[0] >= 100,
        "send",
        rabbitmq_url,
        archive.storage.uri,
        run.id,
        "0",
        "0",
    )
    sent_before = failures.depths()[0]
    assert sent_before < COUNT
    task_program.send(rabbitmq_url, archive.storage, run.id, 1)
    times = Counter(one.number for one in failures.in_main())
    assert sorted(times) == list(range(COUNT))
    doubled = sum(times.values()) - COUNT
    assert doubled <= task_program.BATCH
    # The ledger has each of them as about to be sent once more than as sent.
    events = Counter((entry["id"], entry["event"]) for entry in entries(archive, run))
    suspects = sum(
        events[id_, Event.SENDING] > events[id_, Event.SENT] for id_ in failures.ids(COUNT)
    )
    assert doubled <= suspects <= task_program.BATCH


@pytest.mark.parametrize("mode", [Mode.REQUEUE, Mode.RESTORE])
@pytest.mark.nightly("restarts a broker")
def test_a_broker_that_restarts_while_it_is_sent_to_gets_every_message(
    archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker, mode: Mode
) -> None:
    failures = Failures(rabbitmq_url)
    run = drained(archive, failures)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(
            task_program.send, rabbitmq_url, archive.storage, run.id, 0, mode=mode, rate=400
        )
        wait_until(lambda: len(entries(archive, run)) >= 80, "the sending is under way")
        rabbitmq_broker.restart()
        sent = sending.result(200)
    assert (sent.confirmed, sent.refused) == (COUNT, 0)
    times = Counter(
        one.number for one in (failures.in_main() if mode is Mode.REQUEUE else failures.in_failed())
    )
    assert sorted(times) == list(range(COUNT))
    again = sum(bool(entry["again"]) for entry in entries(archive, run))
    assert sum(times.values()) - COUNT <= again <= task_program.BATCH


@pytest.mark.nightly("restarts a broker")
def test_a_sending_that_begins_while_the_broker_is_away_waits_for_it(
    archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker
) -> None:
    failures = Failures(rabbitmq_url)
    run = drained(archive, failures)
    rabbitmq_broker.stop()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(task_program.send, rabbitmq_url, archive.storage, run.id, 0)
        with pytest.raises(FuturesTimeout):
            sending.result(3)
        rabbitmq_broker.start()
        assert sending.result(200).confirmed == COUNT
    assert numbers(failures.in_main()) == list(range(COUNT))


def test_of_two_attempts_at_one_part_only_one_sends(archive: Archive, rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url)
    run = drained(archive, failures, 200)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(task_program.send, rabbitmq_url, archive.storage, run.id, attempt, rate=400)
            for attempt in (0, 1)
        ]
        sent = [one.result(120) for one in both]
    assert sorted(one.confirmed for one in sent) == [0, 200]
    assert failures.depths() == (200, 0)


def test_a_message_that_is_too_large_is_refused_and_the_others_are_sent(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(0)
    made: list[dict[str, object]] = [
        {"id": str(number), "routing_key": QUEUE, "body": b"x"} for number in range(50)
    ]
    made[20]["headers"] = {f"h{number}": "x" * 4000 for number in range(100)}
    ledger = ArchiveLedger(archive.storage, "run", task_program.JOB)
    sent = SendTask(rabbitmq_url, Mode.PUBLISH, task_program.JOB, ledger, exchange="").send(
        iter(made), "part-00000", 0
    )
    assert (sent.confirmed, sent.refused) == (49, 1)
    assert "must fit one frame" in sent.first_refusal
    assert len(take_all(rabbitmq_url, failures.queue, 49)) == 49
    table = [
        entry
        for name in archive.storage.names(ledger.folder)
        for entry in pyarrow.parquet.read_table(
            pyarrow.BufferReader(archive.storage.read(f"{ledger.folder}/{name}"))
        ).to_pylist()
    ]
    assert [entry["id"] for entry in table if entry["event"] == Event.REFUSED] == ["20"]


SMALL = Queue("small", {"x-max-length": 20, "x-overflow": "reject-publish"})
"""A queue that takes no more messages once it is full."""


def _send_to_small(url: str, archive: Archive) -> Sent:
    """Sends fifty messages to the small queue."""
    made = ({"id": str(n), "routing_key": SMALL.name, "body": b"%d" % n} for n in range(50))
    ledger = ArchiveLedger(archive.storage, "run", task_program.JOB)
    return SendTask(
        url, Mode.PUBLISH, task_program.JOB, ledger, batch=20, least_share=0, exchange=""
    ).send(made, "part-00000", 0)


def test_what_a_queue_does_not_take_now_is_sent_again(archive: Archive, rabbitmq_url: str) -> None:
    with declaring(Connector(rabbitmq_url, "test")) as declarer, ThreadPoolExecutor(1) as pool:
        declarer.declare(SMALL)
        sending = pool.submit(_send_to_small, rabbitmq_url, archive)
        wait_until(
            lambda: (found := declarer.depth(SMALL.name)) and found.messages >= 20, "it is full"
        )
        found = take_all(rabbitmq_url, SMALL.name, 50)
        sent = sending.result(60)
    assert {one.body for one in found} == {b"%d" % number for number in range(50)}
    assert (sent.confirmed, sent.refused) == (50, 0)


def test_what_a_queue_does_not_take_for_long_is_refused(
    archive: Archive, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_task, "_SECONDS_FOR_A_LEADER", 1.0)
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        declarer.declare(SMALL)
    sent = _send_to_small(rabbitmq_url, archive)
    assert (sent.confirmed, sent.refused) == (20, 30)
    assert "the broker did not take it now" in sent.first_refusal


def test_an_archive_without_room_leaves_messages_in_their_queue(
    archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT, size=4000)
    small = tmp_path / "small"
    small.mkdir()
    # A disk of 300 KiB that only this process sees.
    script = (
        f"mount -t tmpfs -o size=300k tmpfs {small} && exec {sys.executable} "
        f'{task_program.__file__} "$@"'
    )
    done = subprocess.run(
        [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            "fill",
            rabbitmq_url,
            str(small / "a"),
            "run",
            str(COUNT),
            "0",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No space left on device" in done.stdout, done.stdout + done.stderr
    rows = int(done.stdout.split()[-1])
    assert 0 < rows < COUNT
    wait_until(lambda: failures.depths()[1] >= COUNT - rows, "what is in no file is in the queue")


def test_an_archive_that_can_not_be_written_is_told_of_at_once(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url)
    run = begin(archive, failures, 50)
    Path(archive.storage.uri, "messages").write_bytes(b"in the way")
    with pytest.raises(ConfigurationError, match="the archive can't be written"):
        task_program.drain(rabbitmq_url, archive.storage, run.id, 50, 0)
    wait_until(lambda: failures.depths()[1] == 50, "all are in the queue again")
