"""What the management API does not tell is not known: no reader of it says 0, and none breaks."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cli_support import Outcome, redrive
from contract.plain import plain_channel
from effort import effort
from redrive.pubsub.admin.broker_watch import BrokerWatch
from redrive.pubsub.admin.queue_metrics import MESSAGES, samples_of
from redrive.pubsub.url import BrokerURL
from redrive.topology.durations import duration_of
from redrive.web.board import Board
from redrive.web.console_settings import ConsoleSettings
from waiting import wait_until

QUEUE, FAILED, GRAVEYARD = "svc@job", "svc@job@failed", "orders-graveyard"
COUNT = 5
FIELDS = (
    *("messages", "messages_ready", "messages_unacknowledged", "messages_dlx", "message_stats"),
    *("consumers", "head_message_timestamp", "message_bytes", "members", "state", "node"),
    *("type", "arguments", "policy", "operator_policy", "effective_policy_definition"),
)
USUAL = ("messages_ready", "messages", "consumers", "effective_policy_definition", "arguments")
UNCOUNTED = frozenset(FIELDS) - {"type", "arguments", "policy", "state", "node"}
"""What RabbitMQ 3.10.8 leaves out of a queue where it collects no statistics."""
REFUSED = ("consumers", "overview", "nodes", "connections", "policies", "users")


class Proxy:
    """Stands before the management API, and leaves out of its answers what it is told to."""

    def __init__(self, origin: str) -> None:
        self.left_out: frozenset[str] = frozenset()
        self.refused: frozenset[str] = frozenset()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind = self.path.removeprefix("/api/").partition("/")[0].partition("?")[0]
                if kind in proxy.refused or (
                    "connections" in self.path and "connections" in proxy.refused
                ):
                    self._say(400, b'{"error":"bad_request","reason":"Stats are disabled"}')
                    return
                asked = urllib.request.Request(
                    origin + self.path, headers={"Authorization": self.headers["Authorization"]}
                )
                try:
                    with urllib.request.urlopen(asked) as answer:
                        content = answer.read()
                except urllib.error.HTTPError as error:
                    self._say(error.code, error.read())
                    return
                if kind == "queues":
                    content = json.dumps(proxy.without(json.loads(content))).encode()
                self._say(200, content)

            def _say(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def without(self, told: object) -> object:
        """The same, without what is left out of each queue."""
        if isinstance(told, list):
            return [self.without(one) for one in told]
        assert isinstance(told, dict)
        return {name: value for name, value in told.items() if name not in self.left_out}


@pytest.fixture
def proxy(rabbitmq_management_url: str) -> Iterator[Proxy]:
    found = Proxy(rabbitmq_management_url.rstrip("/"))
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def url(rabbitmq_url: str, proxy: Proxy) -> str:
    """A virtual host in which five messages have failed in each of two queues, counted."""
    redrive("declare", "--queue", QUEUE, "--routing-key", "job.*", url=rabbitmq_url)
    with plain_channel(rabbitmq_url) as channel:
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVEYARD}
        channel.queue_declare("orders", durable=True, arguments=dead)
        channel.queue_declare(GRAVEYARD, durable=True)
        for _ in range(COUNT):
            channel.basic_publish("master.failed", QUEUE, b"{}")
            channel.basic_publish("", GRAVEYARD, b"{}")
    # Each queue is counted by itself, every five seconds.
    wait_until(lambda: failed_in_top(rabbitmq_url, proxy) == COUNT, f"{FAILED} is counted")
    wait_until(lambda: found_by_scan(rabbitmq_url, proxy) == COUNT, f"{GRAVEYARD} is counted")
    return rabbitmq_url


def asked(url: str, proxy: Proxy, *arguments: str) -> Outcome:
    """What a command says; it may refuse, and does not break."""
    done = redrive(*arguments, "--management-url", proxy.address, url=url)
    assert "defect of redrive" not in done.err, done
    assert "is no management API" not in done.err, done
    return done


def failed_in_top(url: str, proxy: Proxy) -> int | None:
    done = asked(url, proxy, "top", "--output", "json")
    if not done.out:
        return None
    (one,) = done.json()["subscriptions"]
    failed: int | None = one["failed"]
    return failed


def found_by_scan(url: str, proxy: Proxy) -> int | None:
    queues = asked(url, proxy, "dlq", "scan", "--output", "json").json()["queues"]
    messages: int | None = next(one["messages"] for one in queues if one["queue"] == GRAVEYARD)
    return messages


def assert_nobody_says_that_there_is_none(url: str, proxy: Proxy, *, all_queues: bool) -> None:
    """Each reader of the API says five, or that it does not know."""
    known = {COUNT, None}
    assert failed_in_top(url, proxy) in known
    table = asked(url, proxy, "top", "--once").out
    assert "missing" not in table
    if all_queues:
        assert found_by_scan(url, proxy) == COUNT  # AMQP counts where the API does not
    else:
        assert "does not tell the arguments" in asked(url, proxy, "dlq", "scan").err
    status = asked(url, proxy, "status", QUEUE, "--output", "json").json()
    assert status[0]["failed"]["messages"] == COUNT, status
    asked(url, proxy, "status")
    assert asked(url, proxy, "doctor", "--output", "json").code in (0, 1)
    watch = BrokerWatch(BrokerURL.parse(url), proxy.address, duration_of("1h"))
    try:
        watch.start()
        told = watch.now()
    finally:
        watch.stop()
    for role, count in told.queues:
        ready = [
            sample.value
            for sample in samples_of(role, count, 0)
            if sample.gauge is MESSAGES and sample.attributes["redrive.state"] == "ready"
        ]
        assert role.queue not in (FAILED, GRAVEYARD) or ready in ([COUNT], [])
    if all_queues:
        for line in Board(ConsoleSettings(url=url, management_url=proxy.address)).lines():
            assert line.failed in known
    asked(url, proxy, "failed", "requeue", GRAVEYARD, "--dry-run")


def written_of(url: str, proxy: Proxy) -> str:
    """The topology file that the API's answers give; empty where they are refused for it."""
    return asked(url, proxy, "topology", "init").out


@pytest.mark.versions("what the management API tells of a queue")
def test_no_reader_breaks_or_says_0_of_what_the_management_api_does_not_tell(
    url: str, proxy: Proxy
) -> None:
    whole = written_of(url, proxy)
    assert QUEUE in whole
    for field in effort(USUAL, nightly=FIELDS):
        proxy.left_out = frozenset({field})
        assert written_of(url, proxy) in (whole, "")
        assert_nobody_says_that_there_is_none(
            url, proxy, all_queues=field not in ("arguments", "type")
        )


@pytest.mark.versions("what the management API tells without statistics")
def test_without_statistics_everything_that_counts_says_that_it_does_not_know(
    url: str, proxy: Proxy
) -> None:
    proxy.left_out, proxy.refused = UNCOUNTED, frozenset(REFUSED) - {"policies"}
    assert_nobody_says_that_there_is_none(url, proxy, all_queues=True)
    assert failed_in_top(url, proxy) is None
    assert "not counted by the broker" in asked(url, proxy, "top", "--once").out
    assert "who consumes is not known" in asked(url, proxy, "doctor").err


def test_a_list_that_could_not_be_read_is_not_empty(url: str, proxy: Proxy) -> None:
    proxy.refused = frozenset({"queues"})
    for command in (("top", "--once"), ("dlq", "scan")):
        done = asked(url, proxy, *command)
        assert (done.code, "Stats are disabled" in done.err) == (2, True), done
