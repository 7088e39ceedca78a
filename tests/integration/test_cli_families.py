"""An exchange family of other names on the command line, and what the environment and the shell's
completion know of a broker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import PATIENCE, declare, give_up_on, redrive, run_redrive
from contract.plain import wait_for_consumers
from redrive import ExchangeFamily, FailedQueue, Publisher, RetryPolicy, Subscriber
from redrive.cli import completion
from redrive.cli.__main__ import main
from waiting import wait_until

QUEUE = "shop@orders"
FAMILY = ExchangeFamily("orders", "@retry", "@failed")
OPTIONS = ("--exchange", "orders", "--retry-suffix", "@retry", "--failed-suffix", "@failed")


@contextmanager
def worker(url: str, *, fails: bool) -> Iterator[list[object]]:
    """A subscriber of the family, and what it was given."""
    got: list[object] = []
    subscriber = Subscriber(
        url,
        QUEUE,
        ["order.*"],
        exchange=FAMILY,
        retry=RetryPolicy(0, timedelta(seconds=30)),
    )

    @subscriber.handler
    def handle(body: dict[str, int]) -> None:
        got.append(body)
        if fails:
            raise KeyError("country")

    running = threading.Thread(target=subscriber.run)
    running.start()
    try:
        wait_for_consumers(url, QUEUE)
        yield got
    finally:
        subscriber.stop()
        running.join(PATIENCE)


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    """Six failed messages of the family."""
    failed = FailedQueue(rabbitmq_url, QUEUE, FAMILY)
    declared = redrive(
        "declare", "--queue", QUEUE, "--routing-key", "order.*", *OPTIONS, url=rabbitmq_url
    )
    assert declared.code == 0, declared.err
    with Publisher(rabbitmq_url, FAMILY) as publisher:
        for number in range(6):
            publisher.publish({"n": number}, "order.made")
    with worker(rabbitmq_url, fails=True):
        wait_until(lambda: failed.depth() == 6, "six failed messages")
    return rabbitmq_url


def test_a_canary_sees_what_becomes_of_the_messages_of_its_family(
    incident: str, tmp_path: Path
) -> None:
    journal = ("--journal", str(tmp_path / "journal.sqlite3"))
    with worker(incident, fails=True):
        stopped = redrive(
            *("failed", "requeue", QUEUE, "--canary", "2", "--watch", "60s", "--yes"),
            *(*OPTIONS, *journal, "--output", "json"),
            url=incident,
        )
    assert (stopped.code, stopped.json()["state"]) == (1, "stopped")
    job = stopped.json()["job"]

    with worker(incident, fails=False) as got:
        resumed = redrive("jobs", "resume", job, "--yes", *journal, url=incident)
        assert resumed.code == 0, resumed.err
        wait_until(lambda: len(got) >= 4, "the rest")
    shown = redrive("jobs", "show", job, *journal, url=incident).out
    assert "exchanges     orders, orders@retry, orders@failed\n" in shown


def test_the_environment_names_the_exchange(rabbitmq_url: str) -> None:
    arguments = ("declare", "--queue", QUEUE, "--routing-key", "order.*", "--output", "json")
    done = run_redrive(*arguments, url=rabbitmq_url, environment={"REDRIVE_EXCHANGE": "orders"})
    assert done.code == 0, done.err
    assert "orders.failed" in {what.get("name") for what in done.json()["objects"]}


def test_the_environment_names_the_management_api_of_its_broker(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    environment = {"REDRIVE_URL": rabbitmq_url, "REDRIVE_MANAGEMENT_URL": rabbitmq_management_url}
    done = run_redrive("status", "--output", "json", environment=environment)
    assert [one["queue"] for one in done.json()] == [QUEUE]


def completed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    url: str,
    management_url: str,
) -> list[str]:
    """What the shell is told about the last word."""
    # A busy machine takes longer than somebody waits who has pressed Tab.
    monkeypatch.setattr(completion, "_TIME_LIMIT", PATIENCE)
    for name, value in {
        "REDRIVE_URL": url,
        "REDRIVE_MANAGEMENT_URL": management_url,
        "_REDRIVE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }.items():
        monkeypatch.setenv(name, value)
    main([])
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out.split()


@pytest.mark.parametrize("command", ["status", "failed list", "failed requeue", "top", "watch"])
def test_the_shell_completes_queues(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    command: str,
) -> None:
    declare(rabbitmq_url, QUEUE)
    declare(rabbitmq_url, "billing@invoices")
    words = f"redrive {command} sh"
    found = completed(monkeypatch, capsys, words, rabbitmq_url, rabbitmq_management_url)
    assert found == [QUEUE]


def test_where_no_broker_is_the_shell_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "amqp://guest:guest@127.0.0.1:1/", "http://127.0.0.1:1"
    assert completed(monkeypatch, capsys, "redrive status ", *nowhere) == []


def test_top_shows_the_subscriptions_that_are_asked_for(
    incident: str, rabbitmq_management_url: str
) -> None:
    for queue in ("shop@returns", "billing@invoices"):
        declare(incident, queue)

    def shown(*arguments: str) -> list[str]:
        done = redrive(
            *("top", "--once", "--management-url", rabbitmq_management_url, *arguments),
            *("--output", "json"),
            url=incident,
        )
        assert done.code == 0, done.err
        return [one["queue"] for one in done.json()["subscriptions"]]

    wait_until(lambda: len(shown()) == 3, "all subscriptions")
    assert shown("shop@*") == [QUEUE, "shop@returns"]
    assert shown("billing@invoices", "nothing") == ["billing@invoices"]
    assert shown("--exchange", "master") == ["billing@invoices", "shop@returns"]
    assert shown(*OPTIONS) == [QUEUE]
    assert shown("--exchange", "another") == []


@pytest.mark.parametrize(
    "command",
    [("list",), ("requeue", "--yes"), ("requeue", "--dry-run")],
    ids=lambda command: "-".join(command),
)
def test_a_group_that_there_is_not_is_an_error(
    rabbitmq_url: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    verb, *more = command
    if verb == "requeue":
        more += ["--journal", str(tmp_path / "journal.sqlite3")]
    done = redrive("failed", verb, QUEUE, "--group", "zz", *more, url=rabbitmq_url)
    assert (done.code, done.error_lines[0]) == (
        1,
        f"Error: no message of '{QUEUE}@failed' that matches is in group zz",
    )


def test_another_queue_that_is_not_there_is_named_before_anybody_is_asked(
    rabbitmq_url: str,
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    done = redrive("failed", "requeue", QUEUE, "--to", "nope@nope", url=rabbitmq_url)
    assert (done.code, done.error_lines) == (
        2,
        [
            "Error: there is no queue 'nope@nope' to requeue messages to",
            "Check the name, or declare it: redrive declare.",
        ],
    )


def test_a_difference_names_the_message(rabbitmq_url: str, tmp_path: Path) -> None:
    give_up_on(rabbitmq_url, QUEUE, [{"n": 1}])
    (message,) = FailedQueue(rabbitmq_url, QUEUE).browse()
    patch = tmp_path / "patch.json"
    patch.write_text('{"n": 2}')
    done = redrive("failed", "requeue", QUEUE, "--patch", str(patch), "--dry-run", url=rabbitmq_url)
    assert f"--- {message.failure_id} before" in done.out
    assert f"+++ {message.failure_id} after" in done.out
