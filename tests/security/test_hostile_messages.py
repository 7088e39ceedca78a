"""Attempts to steer the terminal of somebody who looks at failed messages, by all that a message
has: on a real broker, by each command."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pika
import pytest

from cli_support import Terminal, redrive
from contract.plain import plain_channel
from corpus import STEERING, steering_in
from effort import nightly
from redrive.topology import headers

QUEUE = "shop@orders"
HOSTILE_QUEUES = [
    f"shop@{payload}"
    for name, payload in STEERING.items()
    if name not in ("line feed", "carriage return")
]
"""RabbitMQ takes carriage returns and line feeds out of names itself."""


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    """A failed queue with messages that try all, and failed queues of hostile names; gives the
    URL."""
    assert (
        redrive("declare", "--queue", QUEUE, "--routing-key", "order.*", url=rabbitmq_url).code == 0
    )
    with plain_channel(rabbitmq_url) as channel:
        for queue in HOSTILE_QUEUES:
            channel.queue_declare(f"{queue}@failed", durable=True)
        for number, payload in enumerate(STEERING.values()):
            channel.basic_publish(
                "",
                f"{QUEUE}@failed",
                payload.encode(),
                _properties(payload, f"text-{number}"),
                mandatory=True,
            )
            body = json.dumps({"note": payload, payload: [payload]}, ensure_ascii=False).encode()
            channel.basic_publish(
                "", f"{QUEUE}@failed", body, _properties(payload, payload), mandatory=True
            )
    return rabbitmq_url


def _properties(payload: str, failure_id: str) -> pika.BasicProperties:
    told = {
        headers.FAILURE_ID: failure_id,
        headers.ERROR_TYPE: f"shop.{payload}",
        headers.ERROR_MESSAGE: f"no plan for {payload}",
        headers.ERROR_TRACEBACK: f'Traceback:\n  File "/srv/shop/{payload}.py", line 1, in '
        f"{payload}\n    {payload}\n",
        headers.REASON: payload,
        headers.HOST: payload,
        headers.JOB: payload,
        headers.FAILED_AT: payload,
        headers.FIRST_FAILED_AT: payload,
        headers.ORIG_ROUTING_KEY: f"order.{payload}",
        headers.ORIG_EXCHANGE: payload,
        payload: payload,
        "list": [payload, {payload: payload}],
        "bytes": payload.encode(),
    }
    return pika.BasicProperties(  # type: ignore[no-untyped-call]
        headers=told,
        content_type=payload,
        message_id=payload,
        correlation_id=payload,
        reply_to=payload,
        type=payload,
        app_id=payload,
    )


COMMANDS: dict[str, tuple[str, ...]] = {
    "list": ("failed", "list", QUEUE, "--limit", "100"),
    "list of some": (
        "failed",
        "list",
        QUEUE,
        "--limit",
        "100",
        "--where",
        "error_message like 'no plan%'",
    ),
    "groups": ("failed", "groups", QUEUE, "--limit", "100"),
    "groups by key": ("failed", "groups", QUEUE, "--limit", "100", "--by", "routing_key"),
    "groups by type": ("failed", "groups", QUEUE, "--limit", "100", "--by", "error_type"),
    "query": ("failed", "query", QUEUE, "select * from failed"),
    "query with a heading": (
        "failed",
        "query",
        QUEUE,
        f'select host as "a {STEERING["C1 CSI"]} {STEERING["OSC 0, sets the title"]}" from failed',
    ),
    "requeue": ("failed", "requeue", QUEUE, "--dry-run"),
    "status": ("status", QUEUE),
}
MANAGEMENT: dict[str, tuple[str, ...]] = {
    "top": ("top", "--once"),
    "doctor": ("doctor", QUEUE),
    "status of all": ("status",),
}


@pytest.mark.parametrize("command", [*COMMANDS, *MANAGEMENT])
def test_no_command_prints_what_steers(
    incident: str, rabbitmq_management_url: str, command: str
) -> None:
    arguments = COMMANDS.get(command) or (
        *MANAGEMENT[command],
        "--management-url",
        rabbitmq_management_url,
    )
    for form in ("table", "json"):
        done = redrive(*arguments, "--output", form, url=incident)
        assert done.code in (0, 1), done.err
        assert len(done.out) > 20
        assert steering_in(done.out + done.err) == set()
        if form == "json":
            done.json()
        else:
            assert not any(
                line.startswith("2026-01-01") for line in done.out.splitlines()
            )  # the line of the corpus


@pytest.fixture
def snapshot(incident: str, tmp_path: Path) -> str:
    """The messages in a file."""
    file = str(tmp_path / "kept.jsonl")
    done = redrive("failed", "snapshot", QUEUE, "-o", file, url=incident)
    assert done.code == 0, done.err
    return file


def test_a_message_is_shown_in_full_and_steers_nothing(snapshot: str) -> None:
    for number, payload in enumerate(STEERING.values()):
        shown = redrive("failed", "show", snapshot, f"text-{number}")
        assert shown.code == 0, shown.err
        assert steering_in(shown.out + shown.err) == set()
        as_json = redrive("failed", "show", snapshot, f"text-{number}", "--output", "json")
        assert steering_in(as_json.out + as_json.err) == set()
        assert as_json.json()["message_id"] == payload
        assert as_json.json()["headers"][payload] == payload


def test_a_snapshot_of_them_is_shown_and_would_be_restored_without_steering(
    incident: str, snapshot: str
) -> None:
    for arguments in (
        ("list", snapshot, "--limit", "100"),
        ("groups", snapshot),
        ("restore", snapshot, "--dry-run"),
    ):
        done = redrive("failed", *arguments, url=incident if arguments[0] == "restore" else None)
        assert done.code == 0, done.err
        assert steering_in(done.out + done.err) == set()


def test_the_journal_is_shown_without_steering(incident: str, tmp_path: Path) -> None:
    why = "".join(payload for payload in STEERING.values() if "\0" not in payload)
    journal = ("--journal", str(tmp_path / "jobs.db"))
    where = ("--where", f"error_message like '%{STEERING['DEL']}%'")
    gone = ("-o", str(tmp_path / "gone.jsonl"))
    done = redrive(
        "failed", "discard", QUEUE, *where, *gone, "--reason", why, *journal, "--yes", url=incident
    )
    assert done.code == 0, done.err
    (job,) = redrive("jobs", "list", *journal, "--output", "json").json()
    assert job["reason"] == why
    for arguments in (("list",), ("show", job["id"])):
        for form in ("table", "json"):
            shown = redrive("jobs", *arguments, *journal, "--output", form)
            assert shown.code == 0, shown.err
            assert job["id"][:8] in shown.out
            assert steering_in(shown.out + shown.err) == set()


def steering_at_a_terminal(terminal: Terminal) -> set[str]:
    """What steers among what was written on a terminal, but for colours, which are rich's own: no
    text of the corpus is there raw."""
    assert not [
        payload
        for payload in STEERING.values()
        if steering_in(payload) and payload in terminal.screen
    ]
    return steering_in(terminal.words)


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "groups",
        *(nightly(name, why="it prints as the others do") for name in ("query", "status")),
    ],
)
def test_nothing_steers_a_real_terminal(incident: str, command: str) -> None:
    with Terminal(*COMMANDS[command], url=incident, columns=200) as terminal:
        assert terminal.end() in (0, 1)
        assert "shop" in terminal.words
        assert steering_at_a_terminal(terminal) == set()


def test_the_live_view_of_queues_with_hostile_names_steers_nothing(
    incident: str, rabbitmq_management_url: str
) -> None:
    with Terminal(
        "top", "--management-url", rabbitmq_management_url, url=incident, columns=200
    ) as terminal:
        terminal.wait_for("arrow keys scroll")
        for _ in range(4):  # the others, page by page
            terminal.type("\x1b[6~")
        terminal.wait_for(f"–{len(HOSTILE_QUEUES) + 1}; arrow")
        terminal.type("q")
        assert terminal.end() == 0
        assert "shop@" in terminal.words
        assert steering_at_a_terminal(terminal) == set()


class _Failing(BaseHTTPRequestHandler):
    """A management API that fails, with words of a stranger."""

    def do_GET(self) -> None:
        content = json.dumps(
            {"error": "x", "reason": "sorry " + "".join(STEERING.values())}
        ).encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def failing_management() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Failing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_words_of_a_management_api_that_fails_steer_nothing(failing_management: str) -> None:
    url = "amqp://guest:guest@127.0.0.1:1/"
    with Terminal("top", "--management-url", failing_management, url=url, columns=200) as terminal:
        terminal.wait_for("Asking again.")
        terminal.type("q")
        assert terminal.end() == 0
        assert "its management API failed with 500" in terminal.words
        assert steering_at_a_terminal(terminal) == set()
    for form in ("table", "json"):
        done = redrive(
            "top", "--once", "--management-url", failing_management, "--output", form, url=url
        )
        assert done.code == 2
        assert "its management API failed with 500" in done.err
        assert steering_in(done.err) == set()
        assert done.err.count("\n") <= 2
