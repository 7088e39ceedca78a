"""`python -m benchmarks.spark_job`: the Spark job beside the broker's shovel, on the same messages
in the same run.

Three queues of failed messages (512 B; four fifths with redrive's headers, one fifth as PHP leaves
them) are drained, planned, requeued and verified by Spark, and moved by the shovel; each several
times, of which the median is shown. Spark's start is not counted, nor is the filling. Each run has
a process of its own, so that the peak of memory is its own. Before a run of few messages, the
session has requeued as many others.

With `--where`, what the filter matches is sent and the rest restored. `--incident N` measures
nothing else: it kills an executor and the driver in the middle of N messages. To compare two
versions, run this file with `PYTHONPATH` set to the `src` of each in turn.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import page, spark_incident
from benchmarks.contenders import shovel
from benchmarks.measure import Clock, Place
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.sample import declare_queue, fill
from redrive.spark_reprocess.selection import Selection
from redrive.spark_reprocess.session import session_for
from redrive.spark_reprocess.spark_job import SparkJob
from redrive.testing import Broker, private_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = ("shop@orders", "billing@invoices", "crm@customers")
MASTERS = ("local[1]", "local[2]")
COUNTS = (100, 50_000, 200_000)
_FEW = 1000
"""Up to how many messages are measured in a session that has done the same before."""
COLUMNS = (
    "| messages | what | whole run: seconds | × shovel | drain/s | plan: seconds | send/s "
    "| verify: seconds | Spark jobs | peak MB: driver | largest worker | archive: MB |\n"
    "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def main() -> int:
    """Measures, and prints a table; the exit status is 1 where an identity does not hold."""
    options = _options()
    if options.job:
        master, url, folder = options.job
        return _job(master, url, folder, options.where, options.before)
    if options.incident:
        return spark_incident.main(options.incident)
    rows: list[str] = []

    def tell(*cells: object) -> None:
        rows.append("| " + " | ".join(map(str, cells)) + " |")
        print(rows[-1], flush=True)
        # After each row: measuring takes long, and may be ended.
        words = _words(broker, options)
        page.write(options.output, "The Spark job beside the shovel", words, COLUMNS, rows)

    print(COLUMNS)
    with private_broker() as broker:
        for count in options.count:
            beside = statistics.median(_shovel(broker, count) for _ in range(options.runs))
            tell(f"{count:,}", "shovel", f"{beside:.1f}", "", "", "", *[""] * 6)
            for master in options.master:
                found = _median(
                    [_spark(broker, master, count, options.where) for _ in range(options.runs)]
                )
                tell(
                    f"{count:,}",
                    f"Spark, {master}",
                    f"{found['whole']:.1f}",
                    f"{found['whole'] / beside:.1f}",
                    f"{count / found['drain']:,.0f}",
                    f"{found['plan']:.1f}",
                    f"{found['sent'] / found['send']:,.0f}",
                    f"{found['verify']:.1f}",
                    f"{found['jobs']:.0f}",
                    f"{found['driver_mb']:.0f}",
                    f"{found['worker_mb']:.0f}",
                    f"{found['archive_mb']:.0f}",
                )
    return 0


def _words(broker: Broker, options: argparse.Namespace) -> tuple[str, ...]:
    """What the page says of its table."""
    return (
        (
            f"Written by `python -m benchmarks.spark_job` on RabbitMQ {broker.version} "
            f"({broker.kind}): failed messages of 512 B"
        ),
        (
            "in three queues, four fifths with redrive's headers and one fifth as PHP leaves "
            "them, drained to an archive and sent"
        ),
        (
            f"back, beside the broker's shovel. Medians of {options.runs}. Spark's start and "
            "the filling are not counted. Checked by id:"
        ),
        "all that was drained was requeued."
        if options.where is None
        else f"each message has its place. Sent was what `{options.where}` picks.",
    )


def _fill(broker: Broker, name: str, count: int) -> str:
    url = broker.create_virtual_host(name)
    for queue in QUEUES:
        declare_queue(url, queue)
        fill(url, queue, -(-count // len(QUEUES)))
    return url


def _shovel(broker: Broker, count: int) -> float:
    """Seconds, one queue after the other: the broker's own process is what is busy."""
    name = f"shovel-{count}"
    url = _fill(broker, name, count)
    seconds = 0.0
    for queue in QUEUES:
        clock = Clock()
        shovel.requeue(
            Place(url=url, management_url=str(broker.management_url), prefetch=None, queue=queue),
            clock,
        )
        seconds += clock.seconds
    broker.delete_virtual_host(name)
    return seconds


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _spark(broker: Broker, master: str, count: int, where: str | None) -> dict[str, float]:
    name = f"spark-{count}-{master}"
    url = _fill(broker, name, count)
    folder = tempfile.mkdtemp(prefix="redrive-bench-")
    try:
        command = [sys.executable, "-m", "benchmarks.spark_job", "--job", master, url, folder]
        if count <= _FEW:
            command += ["--before", _fill(broker, f"{name}-before", count)]
        command += [] if where is None else ["--where", where]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    finally:
        shutil.rmtree(folder)
        broker.delete_virtual_host(name)
        if count <= _FEW:
            broker.delete_virtual_host(f"{name}-before")


def _job(master: str, url: str, folder: str, where: str | None, before: str | None) -> int:
    """One run, in a process of its own."""
    spark = session_for(master, log=os.path.join(folder, "spark.log"))
    # The first task of a session pays for its workers' imports.
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    if before is not None:
        requeue(spark, Archive(os.path.join(folder, "before")), before, QUEUES, where=where)
    job, choice = SparkJob(spark, Archive(os.path.join(folder, "archive")), url), Selection(where)
    jobs = _jobs(spark)
    began = time.perf_counter()
    run = job.begun(QUEUES, None, choice)
    drained = time.perf_counter()
    plan = job.plan(run, choice)
    planned = time.perf_counter()
    job.choose(run, choice)
    job.send(run, choice, chosen=plan.chosen)
    sent = time.perf_counter()
    if plan.rest:
        job.restore(run)
    restored = time.perf_counter()
    identity = job.verify(run, choice)
    ended = time.perf_counter()
    jobs = _jobs(spark) - jobs
    machine = spark.sparkContext._jvm
    assert machine is not None
    java = machine.java.lang.ProcessHandle.current().pid()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    found = {
        "drain": drained - began,
        "plan": planned - drained,
        "send": sent - planned,
        "verify": ended - restored,
        "whole": ended - began,
        "jobs": jobs,
        "archive_mb": sum(
            file.stat().st_size for file in Path(folder, "archive").rglob("*.parquet")
        )
        / 2**20,
        "sent": identity.requeued,
        "driver_mb": _peak_mb(java) + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "worker_mb": max(workers, *(_peak_mb(pid) for pid in _children_of(java))),
    }
    spark.stop()
    print(json.dumps(found))
    all_sent = where is not None or identity.requeued == identity.drained
    return 0 if identity.holds and all_sent else 1


def _jobs(spark: "SparkSession") -> int:
    """How many jobs the session has run."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def _children_of(parent: int) -> list[int]:
    """The processes below one."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if above == parent:
            found += [int(folder.name), *_children_of(int(folder.name))]
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_job", description=__doc__)
    parser.add_argument(
        "--count", type=int, nargs="+", default=list(COUNTS), help="messages in all"
    )
    parser.add_argument("--master", nargs="+", default=list(MASTERS), help="where Spark runs")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).with_name("RESULTS-spark.md"),
        help="where to write the results",
    )
    parser.add_argument("--where", help="a filter; without one, all messages are sent")
    parser.add_argument("--runs", type=int, default=3, help="of each, of which the median is shown")
    parser.add_argument(
        "--incident", type=int, metavar="N", help="kill an executor and the driver meanwhile"
    )
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--before", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
