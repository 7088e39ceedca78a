"""The guards of a requeue: what lets a job go on, what stops it, and what is sent by then, message
by message."""

import contextlib
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pytest

from cli_support import PATIENCE, Outcome, Terminal, redrive
from contract.plain import wait_for_consumers
from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Recorder, always_fails
from effort import nightly
from redrive import ExchangeFamily, FailedQueue, RetryPolicy
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.headers import Delivery
from redrive.topology.model import Exchange
from waiting import wait_until

QUEUE = "shop@orders"
COUNT = 60
CANARY = 20
HOUR = RetryPolicy(3, timedelta(hours=1))


@dataclass
class Incident:
    """A service with messages in its failed queue."""

    url: str
    shell: Shell = BLOCKING
    exchange: str = "master"
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def fill(self, numbers: range = range(COUNT)) -> "Incident":
        self.shell.declare(
            self.url, QUEUE, routing_keys=["order.*"], retry=self.retry, exchange=self.exchange
        )
        report = self.failed.restore(
            Delivery(
                QUEUE,
                f"{self.exchange}.failed",
                QUEUE,
                Properties(
                    headers=Table.of({"redrive-failure-id": str(n)}),
                    delivery_mode=2,
                    message_id=str(n),
                ),
                b"{}",
            )
            for n in numbers
        )
        assert report.confirmed == len(numbers)
        return self

    @property
    def failed(self) -> FailedQueue:
        return FailedQueue(self.url, QUEUE, self.exchange)

    @contextlib.contextmanager
    def worker(self, handler: Callable[..., object]) -> Iterator[Recorder]:
        """A worker, and what it has tried."""
        recorder = Recorder(handler)
        options: dict[str, Any] = {
            "routing_keys": ["order.*"],
            "retry": self.retry,
            "exchange": self.exchange,
        }
        with self.shell.subscriber(recorder, self.url, QUEUE, **options):
            wait_for_consumers(self.url, QUEUE)
            yield recorder

    def requeue(self, *arguments: str) -> Outcome:
        return redrive(
            "failed",
            "requeue",
            QUEUE,
            "--yes",
            "--output",
            "json",
            "--exchange",
            self.exchange,
            *arguments,
            url=self.url,
        )

    def in_failed(self) -> set[str]:
        return {message.message_id or "" for message in self.failed.browse()}

    def depth(self, queue: str) -> int:
        with declaring(Connector(self.url, "test")) as declarer:
            found = declarer.depth(queue)
        assert found is not None
        return found.messages


def succeeds(_: object) -> None:
    """A handler that succeeds."""


def ids(numbers: range) -> set[str]:
    return set(map(str, numbers))


@pytest.fixture(
    params=[
        pytest.param(BLOCKING, id="blocking"),
        nightly(ASYNC, why="the other shell", id="async"),
    ]
)
def shell(request: pytest.FixtureRequest) -> Shell:
    found: Shell = request.param
    return found


@contextlib.contextmanager
def once_sent(count: int) -> Iterator[Callable[[Callable[..., object]], Callable[..., object]]]:
    """Makes handlers that begin only when a job has sent so many messages since."""
    sent, over = threading.Event(), threading.Event()
    with LocalJournal() as journal:
        before = {job.id: job.sent for job in journal.jobs()}

    def look() -> None:
        with LocalJournal() as journal:
            while not over.wait(0.05):
                if any(
                    job.sent >= count and job.sent != before.get(job.id) for job in journal.jobs()
                ):
                    sent.set()

    def waits(handler: Callable[..., object]) -> Callable[..., object]:
        def handle(message: object) -> object:
            assert sent.wait(PATIENCE)
            return handler(message)

        return handle

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield waits
    finally:
        sent.set()
        over.set()
        thread.join()


@pytest.mark.parametrize("exchange", ["master", "shop"])
def test_with_the_default_policy_a_canary_that_fails_stops_the_job_at_its_first_attempt(
    rabbitmq_url: str, shell: Shell, exchange: str
) -> None:
    incident = Incident(rabbitmq_url, shell, exchange).fill()
    with once_sent(CANARY) as waits, incident.worker(waits(always_fails)) as worker:
        done = incident.requeue("--canary", str(CANARY))
        assert incident.in_failed() == ids(range(CANARY, COUNT))
        wait_until(lambda: len(worker.tried) == CANARY, "all of the canary are tried")
    assert (done.code, done.json()["state"], done.json()["requeued"]) == (1, "stopped", CANARY)
    # By what it has heard, and not by a timer: the retries, after thirty seconds, are still to
    # come.
    assert re.fullmatch(
        r"\d+ of the first 20 (is|are) failing and retrying", done.json()["problem"]
    )
    assert set(worker.tried) == ids(range(CANARY))


def test_a_canary_stops_the_job_while_its_messages_wait_for_their_retry(
    rabbitmq_url: str, shell: Shell
) -> None:
    incident = Incident(rabbitmq_url, shell, retry=HOUR).fill()
    with incident.worker(always_fails) as worker:
        done = incident.requeue("--canary", str(CANARY))
        sent = ids(range(COUNT)) - incident.in_failed()
        wait_until(
            lambda: incident.depth(f"{QUEUE}@retry") == len(sent), "the canary waits for its retry"
        )
    assert done.json()["state"] == "stopped"
    assert sent <= ids(range(CANARY))
    assert len(sent) == done.json()["requeued"]
    assert set(worker.tried.items()) == {(one, 1) for one in sent}


def test_the_journal_knows_what_the_command_found_out_of_its_canary(
    rabbitmq_url: str, shell: Shell
) -> None:
    incident = Incident(rabbitmq_url, shell, retry=RetryPolicy(0)).fill()
    with once_sent(CANARY) as waits, incident.worker(waits(always_fails)):
        done = incident.requeue("--canary", str(CANARY))
    job, *_ = redrive("jobs", "list", "--output", "json", url=rabbitmq_url).json()
    said = int(done.json()["problem"].split()[0])
    assert job["state"] == "stopped"
    assert job["failed_again"] >= said, str(job)


def test_one_failure_in_a_canary_is_enough(rabbitmq_url: str, shell: Shell) -> None:
    incident = Incident(rabbitmq_url, shell, retry=HOUR).fill()
    with (
        once_sent(CANARY) as waits,
        incident.worker(
            waits(lambda message: always_fails(message) if message.message_id == "13" else None)
        ),
    ):
        done = incident.requeue("--canary", str(CANARY))
    assert (done.code, done.json()["problem"]) == (1, "1 of the first 20 is failing and retrying")
    assert incident.in_failed() == ids(range(CANARY, COUNT))


def test_a_failure_stops_a_canary_that_is_still_being_sent(rabbitmq_url: str) -> None:
    incident = Incident(rabbitmq_url, retry=HOUR).fill()
    with incident.worker(always_fails) as worker:
        done = incident.requeue("--canary", "50", "--rate", "30/m")  # more than a minute and a half
    assert (done.code, done.json()["state"]) == (1, "stopped")
    assert 1 <= done.json()["requeued"] < 50
    assert set(worker.tried) <= ids(range(50))


def test_all_of_a_canary_succeeded_lets_the_rest_follow(rabbitmq_url: str, shell: Shell) -> None:
    incident = Incident(rabbitmq_url, shell).fill()
    with incident.worker(succeeds) as worker:
        done = incident.requeue("--canary", str(CANARY))
        worker.wait_for_handled(ids(range(COUNT)))
    assert (done.code, done.json()["state"], done.json()["requeued"]) == (0, "done", COUNT)
    assert "20 sent; waiting until each has succeeded, at most 2m." in done.err
    assert "All 20 succeeded; going on." in done.err


def test_the_longest_watch_is_that_of_the_policys_retries(rabbitmq_url: str) -> None:
    incident = Incident(rabbitmq_url)
    incident.fill(range(0))
    headers = Table.of({"redrive-failure-id": "1", "redrive-retries": 3})
    incident.failed.restore(
        [
            Delivery(
                QUEUE, "master.failed", QUEUE, Properties(headers=headers, delivery_mode=2), b"{}"
            )
        ]
    )
    with incident.worker(succeeds):
        done = incident.requeue("--canary", "1")
    assert "1 sent; waiting until it has succeeded, at most 2m30s." in done.err


def test_messages_that_nobody_tells_of_stop_the_job_and_are_looked_for(rabbitmq_url: str) -> None:
    incident = Incident(rabbitmq_url).fill()
    with a_peer(rabbitmq_url, acks=True):
        done = incident.requeue("--canary", str(CANARY), "--watch", "1s")
    assert (done.code, done.json()["state"]) == (1, "stopped")
    problem = done.json()["problem"]
    assert problem.startswith(
        "20 of 20 are unknown after 1s (0 succeeded, none is failing): shop@orders has 1 consumer "
        "and "
    )
    assert (
        "shop@orders@retry 0, shop@orders@failed 40; messages in none of them are held by consumers"
        in problem
    )
    assert (
        f"continue with a new canary of 20: redrive jobs resume {done.json()['job']}\n" in done.err
    )
    assert incident.in_failed() == ids(range(CANARY, COUNT))


def test_going_on_without_knowing_has_to_be_asked_for(rabbitmq_url: str) -> None:
    incident = Incident(rabbitmq_url).fill()
    with a_peer(rabbitmq_url, acks=True):
        done = incident.requeue("--canary", str(CANARY), "--watch", "1s", "--unknown", "go-on")
    assert (done.code, done.json()["requeued"]) == (0, COUNT)
    assert (
        "20 of 20 are unknown after 1s (0 succeeded, none is failing); going on all the same, as "
        "asked for." in done.err
    )


def test_a_peer_that_tells_nothing_and_fails_stops_the_job_though_it_was_to_go_on_without_knowing(
    rabbitmq_url: str,
) -> None:
    incident = Incident(rabbitmq_url, retry=HOUR).fill()
    with a_peer(rabbitmq_url, acks=False):
        done = incident.requeue("--canary", str(CANARY), "--unknown", "go-on")
    assert (done.code, done.json()["state"]) == (1, "stopped")
    assert done.json()["requeued"] <= CANARY
    assert "failing and retrying" in done.json()["problem"]


@pytest.mark.parametrize("guard", [("--canary", "5"), ("--stop-at", "5%")])
def test_where_nobody_consumes_nothing_is_sent_under_a_guard(
    rabbitmq_url: str, guard: tuple[str, str]
) -> None:
    incident = Incident(rabbitmq_url).fill()
    done = redrive("failed", "requeue", QUEUE, "--yes", *guard, url=rabbitmq_url)
    assert done.code == 1
    assert "shop@orders has 0 consumers and 0 waiting messages." in done.out
    assert "Nobody consumes shop@orders, so no outcome would be seen." in done.out
    assert incident.in_failed() == ids(range(COUNT))


def test_where_nobody_consumes_it_is_said_also_without_a_guard(rabbitmq_url: str) -> None:
    Incident(rabbitmq_url).fill()
    done = redrive("failed", "requeue", QUEUE, "--yes", url=rabbitmq_url)
    assert done.code == 0
    assert "Nobody consumes shop@orders: messages wait there until somebody does." in done.out


def test_where_nobody_consumes_it_asks_and_a_canary_is_unknown_in_the_end(
    rabbitmq_url: str,
) -> None:
    incident = Incident(rabbitmq_url).fill()
    with Terminal(
        "failed",
        "requeue",
        QUEUE,
        "--canary",
        "20",
        "--watch",
        "500ms",
        url=rabbitmq_url,
        columns=200,
    ) as terminal:
        terminal.wait_for("Nobody consumes shop@orders. Requeue 60 messages? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 1
        assert "20 of 20 are unknown after 500ms" in terminal.words
        assert "shop@orders has 0 consumers and 20 waiting messages" in " ".join(
            terminal.words.split()
        )
    assert incident.in_failed() == ids(range(CANARY, COUNT))


def test_a_share_counts_what_is_retried(rabbitmq_url: str, shell: Shell) -> None:
    incident = Incident(rabbitmq_url, shell, retry=HOUR).fill(range(2000))
    with incident.worker(always_fails):
        done = incident.requeue("--rate", "40/s", "--stop-at", "5%")  # most of a minute
    assert (done.code, done.json()["state"]) == (1, "stopped")
    assert "failing and retrying, which is more than 5.0%" in done.json()["problem"]
    assert CANARY <= done.json()["requeued"] < 2000


def resume(incident: Incident, job: str, *arguments: str) -> Outcome:
    return redrive("jobs", "resume", job, "--yes", "--output", "json", *arguments, url=incident.url)


@pytest.mark.parametrize("exchange", ["master", "shop"])
def test_the_command_that_a_stop_recommends_stops_again_while_all_fails(
    rabbitmq_url: str, shell: Shell, exchange: str
) -> None:
    incident = Incident(rabbitmq_url, shell, exchange, HOUR).fill()
    with incident.worker(always_fails) as worker:
        first = incident.requeue("--canary", str(CANARY)).json()
        again = resume(incident, first["job"])
        sent = ids(range(COUNT)) - incident.in_failed()
        wait_until(lambda: worker.tried.keys() == sent, "both canaries are tried")
    assert (again.code, again.json()["state"]) == (1, "stopped")
    assert first["requeued"] <= CANARY
    assert 1 <= again.json()["requeued"] <= CANARY
    assert sent == ids(range(first["requeued"] + again.json()["requeued"]))


def test_after_the_fix_a_stopped_job_goes_on_with_a_new_canary(
    rabbitmq_url: str, shell: Shell
) -> None:
    incident = Incident(rabbitmq_url, shell, retry=HOUR).fill()
    with incident.worker(always_fails):
        first = incident.requeue("--canary", str(CANARY)).json()
        job, failing = first["job"], first["requeued"]
        wait_until(
            lambda: outcome_of(incident, job) == (failing, 0, failing, 0, 0),
            "the first canary is told of",
        )
    with incident.worker(succeeds) as worker:
        again = resume(incident, job)
        worker.wait_for_handled(ids(range(failing, COUNT)))
    assert (again.code, again.json()["state"], again.json()["requeued"]) == (
        0,
        "done",
        COUNT - failing,
    )
    assert "All 20 succeeded; going on." in again.err
    wait_until(
        lambda: outcome_of(incident, job) == (COUNT, COUNT - failing, failing, 0, 0), "all is told"
    )


def test_the_success_of_an_earlier_canary_is_not_taken_for_that_of_the_new_one(
    rabbitmq_url: str,
) -> None:
    incident = Incident(rabbitmq_url).fill()
    with a_peer(rabbitmq_url, acks=None):  # it holds them, and returns them when it leaves
        job = incident.requeue("--canary", str(CANARY), "--watch", "500ms").json()["job"]
    wait_until(lambda: incident.depth(QUEUE) == CANARY, "the first canary is in the main queue")
    with once_sent(2 * CANARY) as waits, incident.worker(waits(succeeds)):
        again = resume(incident, job, "--watch", "10m")
    assert (
        "20 sent, and 20 sent earlier are unknown; waiting until each has succeeded, at most 10m."
        in again.err
    )
    assert "All 40 succeeded; going on." in again.err
    assert again.code == 0


def test_a_job_that_a_share_stopped_keeps_it(rabbitmq_url: str) -> None:
    incident = Incident(rabbitmq_url, retry=HOUR).fill(range(2000))
    with incident.worker(always_fails):
        first = incident.requeue("--rate", "40/s", "--stop-at", "5%").json()
        again = resume(incident, first["job"])
    assert (again.code, again.json()["state"]) == (1, "stopped")
    assert first["requeued"] + again.json()["requeued"] < 2000


def test_a_resumed_job_of_another_family_listens_where_its_subscribers_tell(
    rabbitmq_url: str,
) -> None:
    incident = Incident(rabbitmq_url, exchange="shop").fill()
    with incident.worker(succeeds):
        job = incident.requeue("--limit", "5").json()["job"]
        shown = redrive("jobs", "show", job, "--output", "json", url=rabbitmq_url).json()
    assert ExchangeFamily.from_json(shown["exchanges"]) == ExchangeFamily("shop")
    assert not exists(rabbitmq_url, "master.events")
    assert exists(rabbitmq_url, "shop.events")


def test_a_job_of_an_older_version_is_resumed_in_the_family_that_is_named(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    incident = Incident(rabbitmq_url, exchange="shop", retry=HOUR).fill()
    journal = tmp_path / "journal.sqlite3"
    with incident.worker(always_fails):
        job = incident.requeue("--canary", str(CANARY), "--journal", str(journal)).json()["job"]
        as_an_older_version_wrote_it(journal)
        again = resume(incident, job, "--journal", str(journal), "--exchange", "shop")
        assert (again.code, again.json()["state"]) == (1, "stopped")
    as_an_older_version_wrote_it(journal)
    shown = redrive("jobs", "show", job, "--journal", str(journal), url=rabbitmq_url)
    assert "did not store the exchange family" in shown.err
    assert "assuming 'master'; --exchange names another." in shown.err


def test_what_a_job_was_told_is_shown(rabbitmq_url: str, tmp_path: Path) -> None:
    incident = Incident(rabbitmq_url, retry=HOUR).fill()
    patch = tmp_path / "patch.json"
    patch.write_text('{"currency": "EUR"}')
    with incident.worker(always_fails):
        job = incident.requeue(
            "--canary",
            "3",
            "--limit",
            "30",
            "--rate",
            "200/s",
            "--stop-at",
            "5%",
            "--patch",
            str(patch),
        ).json()["job"]
        wait_until(lambda: outcome_of(incident, job)[-1] == 0, "all are told of")
    shown = redrive("jobs", "show", job, url=rabbitmq_url).out
    facts = {line[:14].strip(): line[14:].strip() for line in shown.splitlines()}
    told = {
        name: facts[name] for name in ("exchanges", "limit", "rate", "canary", "stop at", "patch")
    }
    assert told == {
        "exchanges": "master, master.retry, master.failed",
        "limit": "30",
        "rate": "200/s",
        "canary": "3",
        "stop at": "5.0%",
        "patch": '{"currency": "EUR"}',
    }
    outcome = {name: facts[name] for name in ("succeeded", "retrying", "failed again", "unknown")}
    assert outcome == {
        "succeeded": "0",
        "retrying": facts["requeued"],
        "failed again": "0",
        "unknown": "0",
    }


def test_a_canary_of_which_none_can_be_sent_stops(rabbitmq_url: str) -> None:
    Incident(rabbitmq_url).fill()
    with a_full_queue(rabbitmq_url):
        done = redrive(
            "failed",
            "requeue",
            QUEUE,
            "--yes",
            "--canary",
            "5",
            "--to",
            "full",
            "--output",
            "json",
            url=rabbitmq_url,
        )
    assert done.code == 1
    assert done.json()["state"] == "stopped"
    assert done.json()["problem"].startswith("none of the canary could be sent: ")


def outcome_of(incident: Incident, job: str) -> tuple[int, ...]:
    """Sent, succeeded, retrying, failed again, unknown."""
    found = redrive("jobs", "show", job, "--output", "json", url=incident.url).json()
    return tuple(
        found[name] for name in ("sent", "succeeded", "retrying", "failed_again", "unknown")
    )


@contextlib.contextmanager
def a_peer(url: str, *, acks: bool | None) -> Iterator[None]:
    """A consumer of another kind: it acks, rejects, or holds what it gets, and tells nothing."""
    over, begun = threading.Event(), threading.Event()

    def consume() -> None:
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            channel = connection.channel()
            for method, _, _ in channel.consume(QUEUE, inactivity_timeout=0.05):
                begun.set()
                if over.is_set():
                    return
                if method is not None and acks is not None:
                    if acks:
                        channel.basic_ack(method.delivery_tag)
                    else:
                        channel.basic_reject(method.delivery_tag, requeue=False)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def a_full_queue(url: str) -> Iterator[None]:
    """A queue that takes no message and has a consumer."""
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.queue_declare(
            "full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
        )
        channel.basic_consume("full", lambda *_: None)
        yield


def exists(url: str, exchange: str) -> bool:
    with declaring(Connector(url, "test")) as declarer:
        return declarer.exists(Exchange(exchange))


def as_an_older_version_wrote_it(journal: Path) -> None:
    """Takes out of the jobs of a journal what an older version did not write."""
    with contextlib.closing(sqlite3.connect(journal)) as sqlite, sqlite:
        for id_, text in sqlite.execute("SELECT id, record FROM job").fetchall():
            record = json.loads(text)
            for name in ("exchanges", "retrying_told", "retried_told"):
                del record[name]
            record["order"].pop("unknown", None)
            sqlite.execute("UPDATE job SET record = ? WHERE id = ?", (json.dumps(record), id_))
