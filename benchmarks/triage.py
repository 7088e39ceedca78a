"""`python -m benchmarks.triage`: an incident of 100,000 failed messages, looked at and requeued in
part from the command line.

Seven causes: six of redrive's subscribers, and what services of PHP and Java set aside, which gives
no cause. Measured for each broker and queue type: `failed groups` with its peak of memory, and
`failed requeue --group` of one cause. Checked by id: the groups hold what was put there, the main
queue then holds that group, and the failed queue all others.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pika

from benchmarks import page
from benchmarks.brokers import broker_of, default_brokers
from benchmarks.places import past_the_proxy
from redrive import FailedQueue
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.topology.headers import Delivery
from redrive.topology.model import QueueType, Subscription

QUEUE = "shop@orders"
TYPES: tuple[QueueType, ...] = ("quorum", "classic")
MOST_SECONDS, MOST_MB = 20.0, 300.0
_CAUSES = (
    ("shop.PaymentError", "card {n} was refused", "pay"),
    ("TimeoutError", "no answer from stock-{n} in 30 s", "reserve"),
    ("KeyError", "'customer'", "greet"),
    ("ValueError", "no plan 'gold{n}' for user {n}", "upgrade"),
    ("shop.OutOfStock", "no more socks for {n}", "pack"),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer", "ship"),
)
_WANTED = 2
_TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 41, in on_order
    {function}(order)
  File "/srv/shop/{function}.py", line 17, in {function}
    raise {kind}({message!r})
{kind}: {message}
"""


class Found(NamedTuple):
    """What one broker and queue type gave."""

    broker: str
    queue_type: str
    groups_seconds: float
    groups_mb: float
    requeue_seconds: float
    requeued: int


def main() -> int:
    """Measures, prints a table and writes it; the exit status is 1 where a promise about time or
    memory is missed."""
    options = _options()
    found: list[Found] = []
    for name in options.brokers or default_brokers():
        with broker_of(name) as broker:
            for queue_type in TYPES:
                url = broker.create_virtual_host(f"triage-{queue_type}")
                found.append(
                    _measure(
                        f"{broker.version} ({broker.kind})",
                        past_the_proxy(url),
                        str(broker.management_url),
                        queue_type,
                        options.count,
                    )
                )
                print(_row(found[-1]), flush=True)
                broker.delete_virtual_host(f"triage-{queue_type}")
    _write(options.output, options.count, found)
    return (
        0
        if all(one.groups_seconds < MOST_SECONDS and one.groups_mb < MOST_MB for one in found)
        else 1
    )


def _measure(
    broker: str, url: str, management_url: str, queue_type: QueueType, count: int
) -> Found:
    declare(Connector(url, "triage"), Subscription(QUEUE, ["order.*"], queue_type=queue_type))
    report = FailedQueue(url, QUEUE, management_url=management_url).restore(failures_of(count))
    assert report.confirmed == count, report.failed[0]
    common = ("--url", url, "--management-url", management_url, "--output", "json")
    groups, groups_seconds, groups_mb = _run(
        "failed", "groups", QUEUE, "--look-at", str(count), *common
    )
    expected = Counter(_cause_of(number) for number in range(count))
    assert sorted(group["count"] for group in groups["groups"]) == sorted(expected.values()), groups
    wanted = {str(number) for number in range(count) if _cause_of(number) == _WANTED}
    group = next(group for group in groups["groups"] if group["error_type"] == _CAUSES[_WANTED][0])
    with tempfile.TemporaryDirectory() as folder:
        journal = ("--journal", os.path.join(folder, "journal.sqlite3"))
        done, requeue_seconds, _ = _run(
            "failed", "requeue", QUEUE, "--group", group["group_id"], "--yes", *journal, *common
        )
    assert done["requeued"] == len(wanted), done
    _check(_drained(url, QUEUE, len(wanted)), wanted, "the main queue")
    _check(
        _drained(url, f"{QUEUE}@failed", count - len(wanted)),
        {str(number) for number in range(count)} - wanted,
        "the failed queue",
    )
    return Found(broker, queue_type, groups_seconds, groups_mb, requeue_seconds, len(wanted))


def _cause_of(number: int) -> int:
    """Which cause a message failed of; the last is none that anybody wrote down."""
    return number * number % 1009 % (len(_CAUSES) + 1)


def failures_of(count: int) -> Iterator[Delivery]:
    for number in range(count):
        cause = _cause_of(number)
        values: dict[str, FieldValue] = {"x-orig-routing-key": "order.paid"}
        body = json.dumps(
            {"id": number, "country": ("DE", "FR", "IT")[number % 3], "note": "." * 200}
        ).encode()
        if cause < len(_CAUSES):
            kind, words, function = _CAUSES[cause]
            message = words.format(n=number)
            values |= {
                "redrive-failure-id": f"failure-{number}",
                "redrive-error-type": kind,
                "redrive-error-message": message,
                "redrive-error-traceback": _TRACEBACK.format(
                    kind=kind, message=message, function=function
                ),
                "redrive-reason": "retries-exhausted",
                "redrive-failed-at": (
                    f"2026-03-01T{number // 5000 % 24:02}:{number % 60:02}:00.000Z"
                ),
                "redrive-retries": 3,
            }
        elif number % 2:  # as PHP has it
            body = json.dumps(
                {"body": {"id": number}, "__id": f"20260301120000-{number:x}"}
            ).encode()
        properties = Properties(
            headers=Table.of(values),
            delivery_mode=2,
            message_id=str(number),
            content_type="application/json",
        )
        yield Delivery(QUEUE, "master.failed", QUEUE, properties, body)


def _run(*arguments: str) -> tuple[dict[str, Any], float, float]:
    """What a command printed, its seconds, its start included, and its peak of memory in MB."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive.cli", *arguments], stdin=subprocess.DEVNULL, stdout=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        assert os.waitstatus_to_exitcode(status) == 0, f"redrive {' '.join(arguments[:3])} failed"
        out.seek(0)
        return json.load(out), seconds, usage.ru_maxrss / 1024


def _drained(url: str, queue: str, count: int) -> Iterator[str]:
    """The ids of all that is in a queue, where so many are expected; it is taken."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for method, properties, _ in connection.channel().consume(
            queue, auto_ack=True, inactivity_timeout=10
        ):
            if method is None or properties is None:
                return
            yield properties.message_id
            count -= 1
            if not count:
                return


def _check(found: Iterator[str], wanted: set[str], where: str) -> None:
    ids = Counter(found)
    missing, others, twice = (
        len(wanted - ids.keys()),
        len(ids.keys() - wanted),
        ids.total() - len(ids),
    )
    assert (missing, others, twice) == (0, 0, 0), (
        f"{where} lacks {missing} messages, has {others} others, and {twice} twice"
    )


def _row(found: Found) -> str:
    return (
        f"| {found.broker} | {found.queue_type} | {found.groups_seconds:.1f} | "
        f"{found.groups_mb:.0f} | {found.requeue_seconds:.1f} | "
        f"{found.requeued:,} |"
    )


def _write(path: Path, count: int, found: list[Found]) -> None:
    words = (
        (
            "Written by `python -m benchmarks.triage`: seven causes, each command a process whose "
            "start is counted. Checked by id: the groups"
        ),
        (
            "hold what was put there; after sending one group back the main queue holds exactly "
            "that, and the failed queue exactly the others."
        ),
        f"`failed groups` is to take under {MOST_SECONDS:g} s and {MOST_MB:g} MB.",
    )
    columns = (
        "| RabbitMQ | queues | groups: seconds | peak MB | requeue of one group: seconds | "
        "messages sent |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |"
    )
    page.write(path, f"An incident of {count:,} failed messages", words, columns, map(_row, found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.triage",
        description="Measures the command line on an incident's messages.",
    )
    parser.add_argument(
        "--count", type=int, default=100_000, help="how many messages; default %(default)s"
    )
    page.add_options(parser, "RESULTS-triage.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
