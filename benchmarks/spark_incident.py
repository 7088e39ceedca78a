"""`python -m benchmarks.spark_job --incident N`: so many failed messages with small bodies are
drained and requeued on Spark, while an executor and then the driver are killed -9.

Two thirds match the filter and are sent, the rest is restored. At the end each message is looked up
by its id in the queue where it has to be. The peak memory of each process is the kernel's own
(`VmHWM`).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.transfer.confirmed_publisher import Sending
from redrive.pubsub.transfer.queue_reader import QueueReader
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.sample import declare_queue
from redrive.spark_reprocess.session import session_for
from redrive.spark_reprocess.settings import JobOptions
from redrive.testing import private_broker
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription
from redrive.topology.names import failed_queue

QUEUE = "shop@orders"
MASTER = "local-cluster[2,1,1024]"
WHERE = "error_type <> 'KeyError'"
_ERRORS = ("TimeoutError", "KeyError", "shop.PaymentError")
_BATCH, _WINDOW = 1000, 20
_NEVER = "00000000-0000-4000-8000-000000000000"
_KINDS = {
    b"spark_incident": "driver: Python",
    b"SparkSubmit": "driver: Java",
    b"CoarseGrainedExecutorBackend": "executor: Java",
    b"pyspark.daemon": "task: Python",
    b"beam.smp": "the broker",
}


def main(count: int) -> int:
    """Runs the incident, and prints what happened as lines of text; returns 1 if an id is wrong."""
    with private_broker() as broker, tempfile.TemporaryDirectory(prefix="redrive-incident-") as at:
        url = broker.create_virtual_host("incident")
        began = time.monotonic()

        def tell(what: str) -> None:
            print(f"{time.monotonic() - began:7,.0f} s  {what}", flush=True)

        fill(url, count)
        tell(f"{count:,} failed messages are in {failed_queue(QUEUE)}")
        place = os.path.join(at, "archive")
        memory = Memory()
        with memory.watching():
            with driver(url, place) as job:
                _until(job, lambda: _drained(place) > count * 0.3)
                victim = memory.one("executor: Java")
                os.kill(victim, signal.SIGKILL)
                tell(f"an executor was killed with {_drained(place):,} rows in the archive")
                _until(job, lambda: _settled(place) > count * 0.2)
                os.killpg(job.pid, signal.SIGKILL)
                tell(f"the driver was killed with {_settled(place):,} messages sent")
            with driver(url, place) as job:
                out, _ = job.communicate()
                if job.returncode:
                    print(out)
                    return 1
        found = json.loads(out.strip().splitlines()[-1])
        tell(f"the same command has ended: {found['identity']}")
        wrong = check(url, count, found)
        tell("each id was looked up in both queues")
        for kind, most in sorted(memory.peaks.items()):
            print(f"           {most:6,.0f} MB at most in {kind}")
        print(f"           {_size_of(place) / 2**20:6,.0f} MB in the archive")
        print("\n".join(wrong) or f"Each of {count:,} ids is where it has to be.")
        return 1 if wrong else 0


def fill(url: str, count: int) -> None:
    """Puts messages into the failed queue, numbered in their bodies."""
    declare_queue(url, QUEUE)
    templates = [_properties_of(error) for error in _ERRORS]
    room = threading.Semaphore(_WINDOW * _BATCH)
    errors: list[RedriveError] = []

    def settled(_: Outgoing, error: RedriveError | None) -> None:
        errors.extend([error] if error is not None else [])
        room.release()

    with Sending(Connector(url, "fill")) as sending:
        sending.wait_until_up(60)
        for start in range(0, count, _BATCH):
            batch = []
            for number in range(start, min(start + _BATCH, count)):
                room.acquire()
                id_ = f"00000000-0000-4000-8000-{number:012d}".encode()
                properties = templates[number % 3].replace(_NEVER.encode(), id_)
                body = b'{"id": %d}' % number
                batch.append(Outgoing("", failed_queue(QUEUE), properties, body, "", settled))
            sending.send(batch)
        for _ in range(_WINDOW * _BATCH):
            room.acquire()
    if errors:
        raise errors[0]


def _properties_of(error: str) -> bytes:
    from redrive.amqp.field_table import Table
    from redrive.amqp.properties import Properties

    exchanges = Subscription(QUEUE, ["sample.*"]).exchanges
    made = Properties(
        content_type="application/json",
        headers=Table.of({headers.ORIG_ROUTING_KEY: "sample.made"}),
        delivery_mode=2,
    )
    publish = rewrite.give_up(
        Delivery(QUEUE, exchanges.main, "sample.made", made, b"{}"),
        exchanges,
        reason="retries-exhausted",
        error=rewrite.ErrorReport(error, "it failed"),
        retries=3,
        context=rewrite.MoveContext(datetime(2026, 1, 1, tzinfo=UTC), _NEVER, "worker", 131_072),
    )
    return publish.properties.encode()


@contextlib.contextmanager
def driver(url: str, place: str) -> "Iterator[subprocess.Popen[str]]":
    """The job as a process, with all that it starts in one group."""
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "benchmarks.spark_incident", url, place]
        job = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            yield job
            log.seek(0)
            if job.returncode not in (0, None, -signal.SIGKILL):
                print(log.read()[-4000:])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def check(url: str, count: int, found: dict[str, object]) -> list[str]:
    """Takes all messages out of both queues; returns what is wrong with them."""
    times = {True: bytearray(count), False: bytearray(count)}
    for is_main, queue in ((True, QUEUE), (False, failed_queue(QUEUE))):
        seen = times[is_main]
        for body in _bodies_in(url, queue):
            seen[int(body[7:-1])] += 1
    wrong: list[str] = []
    doubled = 0
    for number in range(count):
        chosen = _ERRORS[number % 3] != "KeyError"
        if not times[chosen][number] or times[not chosen][number]:
            wrong.append(f"message {number} is in the wrong queue, or in none")
        doubled += times[chosen][number] - 1
    if doubled > int(str(found["possible_duplicates"])):
        wrong.append(f"{doubled} came twice, and {found['possible_duplicates']} were told of")
    if not found["holds"]:
        wrong.append(f"it does not add up: {found['identity']}")
    print(
        f"           {doubled:,} came twice; {found['possible_duplicates']} possible were told of"
    )
    return wrong[:20]


def _bodies_in(url: str, queue: str) -> Iterator[bytes]:
    from redrive.pubsub.blocking.declarer import declaring

    with declaring(Connector(url, "check")) as declarer:
        depth = declarer.depth(queue)
    left = 0 if depth is None else depth.messages
    if not left:
        return
    held = []
    with QueueReader(
        Connector(url, "check"), queue, prefetch=4 * _BATCH, most=left, comes_back=False
    ) as reader:
        for _ in range(left):
            taken = reader.next(120, empty=lambda: False)
            if taken is None:
                return
            held.append(taken)
            yield taken.received.body
            if len(held) >= _BATCH:
                reader.ack_all(held)
                held = []
        reader.ack_all(held)


@dataclass
class Memory:
    """The peak memory of the processes that are seen, in MB, by what they are."""

    peaks: dict[str, float] = field(default_factory=dict)
    running: dict[str, list[int]] = field(default_factory=dict)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look once a second."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(1):
                self._look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def one(self, kind: str) -> int:
        """Return the id of a process of a kind."""
        self._look()
        return self.running[kind][0]

    def _look(self) -> None:
        running: dict[str, list[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                kind = next((kind for word, kind in _KINDS.items() if word in command), None)
                if kind is not None and _is_ours(int(folder.name)):
                    running.setdefault(kind, []).append(int(folder.name))
                    self.peaks[kind] = max(self.peaks.get(kind, 0.0), _peak_mb(folder))
        self.running = running


def _is_ours(pid: int) -> bool:
    """Tell whether this process started another, or one that started it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def _peak_mb(folder: Path) -> float:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def _until(job: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    while not condition():
        if job.poll() is not None:
            raise RuntimeError("the job ended before it was killed")
        time.sleep(0.5)


def _drained(place: str) -> int:
    runs = Archive(place).runs() if os.path.exists(place) else []
    return rows_drained(Archive(place), runs[-1]) if runs else 0


def _settled(place: str) -> int:
    files = Path(place, "ledger").rglob("*.parquet")
    return sum(int(file.stem.rsplit("-", 1)[1]) for file in files)


def _size_of(place: str) -> int:
    return sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())


def _job(url: str, place: str) -> int:
    """The driver."""
    spark = session_for(
        MASTER, settings={"spark.executor.memory": "1g", "spark.ui.enabled": "false"}
    )
    found = requeue(spark, Archive(place), url, [QUEUE], where=WHERE, options=JobOptions(tasks=2))
    print(json.dumps(found.to_dict()))
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(_job(*sys.argv[1:]))
