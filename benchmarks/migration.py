"""`python -m benchmarks.migration`: live subscriptions with 20,000 messages get other arguments, by
a command that is killed ten times.

A quarter of the messages each is in the main queue, the retry queue, the delay ladder and the
failed queue when `redrive topology migrate` begins; a publisher and a consumer go on all the while.
The command is killed -9 at ten random instants and run again after each. Checked by id: each
message is handled or in the failed queue in the end, and no more are there twice than is told.
"""

import argparse
import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks import page
from benchmarks.brokers import broker_of, default_brokers
from benchmarks.places import past_the_proxy
from redrive import FailedQueue, GiveUp, Message, Publisher, Retry, RetryPolicy, Subscriber
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.topology.model import Subscription

QUEUE = "shop@orders"
KINDS = ("good", "waits long", "waits", "bad")
_FILE = "subscriptions:\n  shop@orders: {routing_keys: [order.*], retry: {delay: 1s}}\n"
_NEW = Subscription(QUEUE, ["order.*"], retry=RetryPolicy(delay=timedelta(seconds=1)))
_HOUR = RetryPolicy(delay=timedelta(hours=1))
CHANGES = {
    "another delay": replace(_NEW, retry=_HOUR),
    "quorum for classic": replace(_NEW, retry=_HOUR, queue_type="classic"),
    "default kind for shared kind": replace(
        _NEW, retry=_HOUR, queue_type="classic", retry_via="republish"
    ),
}
_SPREAD = {"another delay": 1.0}
"""Seconds of a run, at most, before it is killed, so that it takes ten; 6 of the changes that take
longer."""
_ON_THE_LADDER = timedelta(seconds=90)
_LEVELS = 8
"""Of the delay ladder: enough for that."""
_MOST_SECONDS = 600.0
_TOLD = re.compile(r"up to (\d+) messages of ")


class Found(NamedTuple):
    """What one change on one broker gave."""

    broker: str
    change: str
    messages: int
    kills: int
    seconds: float
    twice: int
    told: int


class Shop:
    """A live subscription, and what became of each message."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.numbers: dict[int, str] = {}
        self.handled: Counter[int] = Counter()
        self.tried_at_first: Counter[str] = Counter()
        self.slowly = True
        self._lock = threading.Lock()

    def handle(self, message: Message) -> None:
        """As its kind wants it: done, tried again after the queue's delay or another, or set
        aside."""
        kind, number = json.loads(message.body)
        with self._lock:
            self.tried_at_first[kind] += message.retries == 0
        if kind == "bad":
            raise GiveUp("never")
        if kind == "waits" and not message.retries:
            raise ValueError("not yet")
        if kind == "waits long" and not message.retries:
            raise Retry("not so soon", after=_ON_THE_LADDER)
        if kind == "good" and self.slowly:
            time.sleep(0.01)
        with self._lock:
            self.handled[number] += 1

    def made(self, kind: str, count: int) -> Iterator[tuple[str, str]]:
        """Messages of a kind, each with a number of its own."""
        for _ in range(count):
            number = len(self.numbers)
            self.numbers[number] = kind
            yield json.dumps((kind, number)), "order.paid"

    def publish(self, publisher: Publisher, kind: str, count: int) -> None:
        """Publishes messages of a kind."""
        report = publisher.publish_many(self.made(kind, count), mandatory=True)
        assert not report.failed, report.failed[0]

    @contextlib.contextmanager
    def consuming(self, subscription: Subscription) -> Iterator[None]:
        """Consumes for as long as the block, and declares nothing."""
        subscriber = Subscriber(
            self.url,
            QUEUE,
            ["order.*"],
            retry=subscription.retry,
            queue_type=subscription.queue_type,
            retry_via=subscription.retry_via,
            declare=False,
            prefetch=50,
        )
        subscriber.handler(self.handle)
        subscriber.start()
        try:
            yield
        finally:
            subscriber.stop()
            subscriber.wait()

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Publishes one message after the other, of each kind in turn, for as long as the block."""
        stopping = threading.Event()

        def go_on() -> None:
            with Publisher(self.url) as publisher:
                while not stopping.wait(0.02):
                    self.publish(publisher, KINDS[len(self.numbers) % len(KINDS)], 1)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def failed(self) -> Counter[int]:
        """What is in the failed queue."""
        return Counter(
            json.loads(message.body)[1] for message in FailedQueue(self.url, QUEUE).browse()
        )

    def where_are(self, missing: set[int]) -> str:
        """What is known of messages that were not handled."""
        kinds = Counter(self.numbers[number] for number in missing)
        set_aside = {
            json.loads(message.body)[1]: message
            for message in FailedQueue(self.url, QUEUE).browse()
        }
        reasons = Counter(set_aside[number].reason for number in missing & set_aside.keys())
        return f"{dict(kinds)} are not; of them are in the failed queue: {dict(reasons)}"


def main() -> int:
    """Migrates, prints a table and writes it."""
    options = _options()
    logging.getLogger("redrive").setLevel(logging.CRITICAL)
    found: list[Found] = []
    for name in options.brokers or default_brokers():
        with broker_of(name) as broker:
            for change in options.changes or CHANGES:
                url = broker.create_virtual_host("migration")
                found.append(
                    _measure(
                        f"{broker.version} ({broker.kind})",
                        past_the_proxy(url),
                        str(broker.management_url),
                        change,
                        options,
                    )
                )
                print(_row(found[-1]), flush=True)
                broker.delete_virtual_host("migration")
    _write(options.output, options.count, found)
    return 0


def _measure(
    broker: str, url: str, management_url: str, change: str, options: argparse.Namespace
) -> Found:
    old, shop, chance = CHANGES[change], Shop(url), random.Random(options.seed)
    declare(Connector(url, "migration"), old, levels=_LEVELS)
    quarter = options.count // len(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "topology.yaml")
        file.write_text(_FILE)
        with shop.consuming(old):
            with Publisher(url) as publisher:
                for kind in ("bad", "waits", "waits long"):
                    shop.publish(publisher, kind, quarter)
                _wait(
                    lambda: sum(shop.tried_at_first.values()) >= 3 * quarter, "each was tried once"
                )
                shop.publish(publisher, "good", quarter)
            with shop.publishing():
                began = time.perf_counter()
                kills, told = _migrate(
                    file, url, management_url, options.kills, chance, _SPREAD.get(change, 6.0)
                )
                seconds = time.perf_counter() - began
        shop.slowly = False
        with shop.consuming(_NEW):
            wanted = {number for number, kind in shop.numbers.items() if kind != "bad"}
            set_aside = shop.numbers.keys() - wanted
            _wait(
                lambda: wanted <= shop.handled.keys(),
                "each is handled",
                lambda: shop.where_are(wanted - shop.handled.keys()),
            )
            _wait(lambda: FailedQueue(url, QUEUE).depth() >= len(set_aside), "each is set aside")
    failed = shop.failed()
    assert failed.keys() == set_aside, (
        f"{len(set_aside - failed.keys())} are missing in the failed queue"
    )
    assert shop.handled.keys() == wanted
    twice = shop.handled.total() - len(wanted) + failed.total() - len(set_aside)
    assert twice <= told, f"{twice} messages are there twice, and {told} were told of"
    return Found(broker, change, len(shop.numbers), kills, seconds, twice, told)


def _migrate(
    file: Path, url: str, management_url: str, kills: int, chance: random.Random, spread: float
) -> tuple[int, int]:
    """Runs the command until it is done; how often it was killed, and how many messages it said may
    be there twice."""
    command = [
        sys.executable,
        "-m",
        "redrive.cli",
        "topology",
        "migrate",
        str(file),
        "--yes",
        "--url",
        url,
    ]
    command += ["--management-url", management_url]
    killed = told = 0
    while True:
        with tempfile.TemporaryFile("w+") as notes:
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=notes
            ) as process:
                if killed < kills:
                    # Some seconds from its first step on: ten of them reach all over what it does.
                    _wait(
                        lambda: os.fstat(notes.fileno()).st_size > 0 or process.poll() is not None,
                        "it begins",
                    )
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(chance.uniform(0, spread))
                    killed += process.poll() is None
                    process.kill()
                process.wait(_MOST_SECONDS)
            notes.seek(0)
            told += sum(map(int, _TOLD.findall(notes.read())))
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, f"it ended with {process.returncode}"
            return killed, told


def _wait(condition: Callable[[], bool], what: str, so_far: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {_MOST_SECONDS:g} s: {what} {so_far()}"
        time.sleep(0.05)


def _row(found: Found) -> str:
    return (
        f"| {found.broker} | {found.change} | {found.messages:,} | {found.kills} | "
        f"{found.seconds:.0f} | 0 | {found.twice} | {found.told} |"
    )


def _write(path: Path, count: int, found: list[Found]) -> None:
    words = (
        (
            "Written by `python -m benchmarks.migration`: a quarter of the messages each in the "
            "main queue, the retry queue, the delay ladder"
        ),
        (
            "and the failed queue, and a publisher and a consumer that go on. `redrive topology "
            "migrate` is killed at random instants, and run"
        ),
        (
            "again. Checked by id: each message is handled or in the failed queue in the end, and "
            "no more are there twice than was told."
        ),
    )
    columns = (
        "| RabbitMQ | change | messages | kills | seconds, all runs | lost | twice | told of as "
        "possible |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    page.write(
        path,
        f"Live migrations with {count:,} messages, killed on the way",
        words,
        columns,
        map(_row, found),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.migration",
        description="Migrates live queues, and is killed on the way.",
    )
    parser.add_argument(
        "--count", type=int, default=20_000, help="how many messages; default %(default)s"
    )
    parser.add_argument(
        "--kills", type=int, default=10, help="how often the command is killed; default %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the instants; default %(default)s")
    parser.add_argument(
        "--changes",
        type=lambda text: tuple(text.split(",")),
        metavar="NAMES",
        help=f"of {', '.join(CHANGES)}",
    )
    page.add_options(parser, "RESULTS-migration.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
