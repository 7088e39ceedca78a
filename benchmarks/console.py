"""`python -m benchmarks.console`: the console over many failed messages.

The index is filled by a look at a real queue, or, with `--generated`, from generated messages by
the index's own writer, a tenth of them and ten copies of these, without a queue: a million messages
take the broker long. Measured from
outside, on a console that is a process of its own, each page ten times: the seconds that an answer
takes while twenty tabs ask every second for what has changed. Then 500 failures a second are
published, and a tab asks as the console's script does: how long each takes until the tab shows it.
While they go on, the console requeues those that came before, a subscriber handles them, and a tab
asks for its job: how long each takes from the end of its handler until the tab shows that it has
succeeded. The memory is the peak of the console's process over all that. At last, five tasks are
done in Chromium; `--only-tasks` does these alone, and writes nothing.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import duckdb
import pika

from benchmarks import console_tasks, page
from benchmarks.brokers import broker_of, default_brokers
from benchmarks.places import past_the_proxy
from benchmarks.triage import QUEUE, failures_of
from redrive import FailedQueue, Subscriber
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.index import Index, StoredLook
from redrive.failures.store.index_writer import IndexWriter
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.url import BrokerURL
from redrive.topology.model import Subscription

TABS, RATE, SECONDS = 20, 500, 20
REQUEUED_RATE = 400
MOST = {
    "overview": 0.3,
    "causes": 1.0,
    "filter": 1.0,
    "page": 0.15,
    "follows": 2.0,
    "outcome": 2.0,
    "memory": 400.0,
}
_TIMES = 10
_COPIES = 10
_COOKIE = re.compile(r"[^;]+")


class Found(NamedTuple):
    """What one broker and number of messages gave; seconds are medians, and of what comes to the
    screen the 99th percentile."""

    broker: str
    messages: int
    overview: float
    causes: float
    filter: float
    page: float
    follows: float
    outcome: float
    memory_mb: float


class Browser:
    """Asks a console as a browser does that was let in."""

    def __init__(self, address: str, cookie: str = "") -> None:
        self._host = urlsplit(address).netloc
        self.cookie = cookie

    def get(self, path: str, **asked: str) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        target = f"{path}?{urlencode(asked, quote_via=quote)}" if asked else path
        status, _, body = self._ask("GET", target)
        return status, body

    def post(self, path: str, **form: str) -> tuple[int, str, bytes]:
        """The status of the answer to a form, where it leads to, and its body."""
        return self._ask("POST", path, urlencode(form))

    def _ask(self, method: str, target: str, form: str | None = None) -> tuple[int, str, bytes]:
        headers = {"cookie": self.cookie}
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
            headers["sec-fetch-site"] = "same-origin"
        connection = http.client.HTTPConnection(self._host, timeout=300)
        try:
            connection.request(method, target, form, headers)
            answer = connection.getresponse()
            found = _COOKIE.match(answer.getheader("set-cookie") or "")
            self.cookie = found[0] if found else self.cookie
            return answer.status, answer.getheader("location") or "", answer.read()
        finally:
            connection.close()

    def seconds(self, path: str, **asked: str) -> float:
        """The median of what an answer takes."""
        taken = []
        for _ in range(_TIMES):
            began = time.perf_counter()
            status, _ = self.get(path, **asked)
            taken.append(time.perf_counter() - began)
            assert status == 200, (path, status)
        return statistics.median(taken)


def main() -> int:
    """Measures, prints a table and writes it; the exit status is 1 where a promise is missed."""
    options = _options()
    found: list[Found] = []
    tasks: list[str] = []
    for name in options.brokers or default_brokers():
        with broker_of(name) as broker, tempfile.TemporaryDirectory() as state:
            os.environ["XDG_STATE_HOME"] = state
            if not tasks:
                url = past_the_proxy(broker.create_virtual_host("tasks"))
                declare(Connector(url, "console"), Subscription(QUEUE, ["order.*"]))
                permits = "requeue,discard,store"
                with _started(url, str(broker.management_url), permits) as (_, link):
                    tasks = list(console_tasks.rows(url, link))
                print("\n".join(tasks), flush=True)
            if options.only_tasks:
                return 0
            url = past_the_proxy(broker.create_virtual_host("console"))
            found.append(
                _measure(
                    f"{broker.version} ({broker.kind})",
                    url,
                    str(broker.management_url),
                    options.count,
                    is_generated=options.generated,
                )
            )
            print(_row(found[-1]), flush=True)
    _write(options.output, found, tasks, is_generated=options.generated)
    return 0 if all(_keeps(one) for one in found) else 1


def _measure(
    broker: str, url: str, management_url: str, count: int, *, is_generated: bool
) -> Found:
    declare(Connector(url, "console"), Subscription(QUEUE, ["order.*"]))
    if is_generated:
        _fill(url, count)
    else:
        failed = FailedQueue(url, QUEUE, management_url=management_url)
        assert failed.restore(failures_of(count)).confirmed == count
        assert sum(group.count for group in failed.causes(max_age=1e-6)) == count
    with _console(url, management_url) as (process, browser), _tabs(browser):
        _, text = browser.get("/causes", queue=QUEUE)
        group = re.search(rb"group=([0-9a-f]{12})", text)
        assert group is not None, text[:2000]
        overview = browser.seconds("/")
        causes = browser.seconds("/causes", queue=QUEUE)
        filtered = browser.seconds(
            "/causes", queue=QUEUE, where="error_type = 'KeyError' and retries > 2"
        )
        shown = browser.seconds("/cause", queue=QUEUE, group=group[1].decode())
        follows = _follows(url, browser)
        outcome = _outcome(url, browser)
        memory = _peak_mb(process.pid)
        return Found(broker, count, overview, causes, filtered, shown, follows, outcome, memory)


def _fill(url: str, count: int) -> None:
    """Fills the index without a queue: as a look does with a tenth of the messages, and with ten
    copies of these, each with ids and a place of its own. The queue has one, as the overview leaves
    out what the broker says is empty."""
    assert FailedQueue(url, QUEUE).restore(failures_of(1)).confirmed == 1
    index = Index(BrokerURL.parse(url))
    now = datetime.now(UTC)
    tenth = count // _COPIES
    with IndexWriter(index) as writer:
        for delivery in failures_of(tenth):
            writer.note(FailedMessage(delivery))
        writer.keep(_look(index, tenth, now))
        assert not writer.problem, writer.problem
    kept = index.find(f"{QUEUE}@failed")
    assert kept is not None
    with index.filling() as folder, duckdb.connect(":memory:") as database:
        data = folder / "copies.parquet"
        database.execute(
            f"COPY (SELECT * EXCLUDE (copy) REPLACE (place + {tenth} * copy AS place, "
            "hash(mark, copy)::HUGEINT % 9223372036854775807 AS mark, "
            "CASE copy WHEN 0 THEN failure_id ELSE failure_id || '-' || copy END AS failure_id) "
            f"FROM read_parquet('{index.folder / kept.file}'), "
            f"(SELECT unnest(range({_COPIES})) AS copy)) TO '{data}' "
            "(FORMAT parquet, COMPRESSION lz4, ROW_GROUP_SIZE 122880)"
        )
        index.keep(_look(index, tenth * _COPIES, now), data)


def _look(index: Index, count: int, when: datetime) -> StoredLook:
    who = "benchmark"
    return StoredLook(f"{QUEUE}@failed", index.broker, when, who, count, count, 0, began_at=when)


@contextmanager
def _started(
    url: str, management_url: str, permits: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A console, and the link that lets one browser in."""
    command = [
        sys.executable,
        "-m",
        "redrive.cli",
        "web",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        permits,
    ]
    places = ["--url", url, "--management-url", management_url]
    process = subprocess.Popen([*command, *places], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        link = next(line for line in process.stdout if line.startswith(b"Open, once: "))
        yield process, link.decode().split()[-1]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _console(url: str, management_url: str) -> Iterator[tuple[subprocess.Popen[bytes], Browser]]:
    with _started(url, management_url, "requeue") as (process, link):
        parts = urlsplit(link)
        browser = Browser(f"http://{parts.netloc}")
        deadline = time.monotonic() + 60
        while True:
            try:
                status, _ = browser.get(f"{parts.path}?{parts.query}")
                break
            except ConnectionError:
                assert time.monotonic() < deadline, "the console does not answer"
        assert status == 303, status
        yield process, browser


@contextmanager
def _tabs(browser: Browser) -> Iterator[None]:
    """Tabs that ask every second for what has changed."""
    ended = threading.Event()

    def ask() -> None:
        own, seen = Browser("http://" + browser._host, browser.cookie), ""
        while not ended.wait(1.0):
            status, body = own.get("/live", queue=QUEUE, seen=seen)
            if status == 200:
                seen = json.loads(body)["seen"]

    threads = [threading.Thread(target=ask) for _ in range(TABS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _follows(url: str, browser: Browser) -> float:
    """Seconds in which 99 % of failures are on a tab that asks every second."""
    deadline = time.monotonic() + 60
    while b"New failures appear automatically" not in browser.get("/causes", queue=QUEUE)[1]:
        assert time.monotonic() < deadline, "it does not follow"
    before = _shown(browser)
    sent: list[float] = []
    publisher = threading.Thread(target=_publish, args=(url, "OSError", sent))
    publisher.start()
    late: list[float] = []
    while len(late) < RATE * SECONDS:
        time.sleep(1.0)
        shown = _shown(browser) - before
        now = time.monotonic()
        late.extend(now - when for when in sent[len(late) : shown])
        assert not sent or now - sent[-1] < 120, f"{shown} of {len(sent)} are shown"
    publisher.join()
    return statistics.quantiles(late, n=100)[98]


def _outcome(url: str, browser: Browser) -> float:
    """Seconds in which 99 % of outcomes are on a tab that asks for its job every second, while
    other messages fail."""
    sent: list[float] = []
    handled: list[float] = []
    publisher = threading.Thread(target=_publish, args=(url, "ValueError", sent))
    subscriber = Subscriber(url, QUEUE, ["order.*"])
    subscriber.handler(lambda message: handled.append(time.monotonic()))
    count = RATE * SECONDS
    form = {
        "queue": QUEUE,
        "where": "error_type = 'OSError' and error_message like 'disk%'",
        "planned": str(count),
        "typed": str(count),
        "reason": "a benchmark",
        "canary": "0",
        "rate": str(REQUEUED_RATE),
        "stop_at": "50",
    }
    late: list[float] = []
    subscriber.start()
    try:
        publisher.start()
        status, address, text = browser.post("/begin", **form)
        assert status == 303, text[-2000:]
        job = parse_qs(urlsplit(address).query)["id"][0]
        while True:
            time.sleep(1.0)
            told = json.loads(browser.get("/progress/job", id=job)[1])
            now = time.monotonic()
            shown = int(str(told["values"]["succeeded"]).replace(",", ""))
            late.extend(now - when for when in handled[len(late) : shown])
            if told["ended"]:
                break
            assert not handled or now - handled[-1] < 120, f"{shown} of {count} are shown"
        publisher.join()
    finally:
        subscriber.stop()
        subscriber.wait()
    assert len(late) > count / 2, f"{len(late)} of {count} were shown while the job ran"
    return statistics.quantiles(late, n=100)[98]


def _shown(browser: Browser) -> int:
    told: dict[str, Any] = json.loads(browser.get("/live", queue=QUEUE)[1])
    return int(str(told["values"]["shown"]).replace(",", ""))


def _publish(url: str, error: str, sent: list[float]) -> None:
    """Sets messages aside as a subscriber does, at a steady rate."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        began = time.monotonic()
        for number in range(RATE * SECONDS):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            properties = pika.BasicProperties(  # type: ignore[no-untyped-call]
                headers={
                    "redrive-failure-id": f"live-{error}-{number}",
                    "redrive-error-type": error,
                    "redrive-error-message": f"disk {number} is full",
                    "redrive-failed-at": datetime.now(UTC).isoformat(),
                },
                delivery_mode=2,
            )
            channel.basic_publish("master.failed", QUEUE, b'{"id": 1}', properties)
            sent.append(time.monotonic())


def _peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def _keeps(found: Found) -> bool:
    """Whether it is within what is promised."""
    return (
        found.overview < MOST["overview"]
        and found.causes < MOST["causes"]
        and found.filter < MOST["filter"]
        and found.page < MOST["page"]
        and found.follows < MOST["follows"]
        and found.outcome < MOST["outcome"]
        and found.memory_mb < MOST["memory"]
    )


def _row(found: Found) -> str:
    return (
        f"| {found.broker} | {found.messages:,} | {found.overview:.2f} | {found.causes:.2f} | "
        f"{found.filter:.2f} | "
        f"{found.page:.2f} | {found.follows:.1f} | {found.outcome:.1f} | {found.memory_mb:.0f} |"
    )


def _write(path: Path, found: list[Found], tasks: list[str], *, is_generated: bool) -> None:
    filled = (
        "from generated messages by the index's own writer, a tenth of them and ten copies of these"
        if is_generated
        else "by a look at a real queue"
    )
    words = (
        f"Written by `python -m benchmarks.console`. The index was filled {filled}.",
        (
            f"Medians of {_TIMES}, from outside, while {TABS} tabs ask every second for what has "
            f"changed; then {RATE} failures a second for {SECONDS} s, and the same again while "
            f"{REQUEUED_RATE} of the former a second are requeued and handled."
        ),
        (
            f"Promised: the overview in {MOST['overview']:g} s, causes and filter in "
            f"{MOST['causes']:g} s, a page in {MOST['page']:g} s, "
            f"99 % of failures and of outcomes on the screen in {MOST['follows']:g} s, "
            f"{MOST['memory']:g} MB."
        ),
    )
    columns = (
        "| RabbitMQ | messages | overview: seconds | causes: seconds | filter: seconds | "
        "a cause's page: seconds | "
        "a failure on the screen: seconds (p99) | an outcome: seconds (p99) | peak MB |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    title = f"The console over {found[0].messages:,} failed messages"
    page.write(path, title, words, columns, map(_row, found))
    about = (
        f"Five tasks over {console_tasks.COUNT:,} failed messages, in Chromium: what is clicked "
        "and typed, and the seconds from the first click to the last answer, without the time in "
        "which a person reads and types."
    )
    with path.open("a") as file:
        file.write("\n".join(["", about, "", console_tasks.COLUMNS, *tasks, ""]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.console",
        description="Measures the console over many failed messages.",
    )
    parser.add_argument(
        "--count", type=int, default=100_000, help="how many messages; default %(default)s"
    )
    parser.add_argument(
        "--generated", action="store_true", help="fill the index without a queue of the broker's"
    )
    parser.add_argument("--only-tasks", action="store_true", help="do the five tasks alone")
    page.add_options(parser, "RESULTS-console.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
