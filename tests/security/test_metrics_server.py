"""What a hostile client of the metrics port can do: nothing that keeps a scrape or a probe out, or
grows."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import httpx
import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.cli import metrics_server
from redrive.cli.metrics_server import MetricsAddress
from redrive.pubsub import probes, telemetry
from redrive.pubsub.verdict import Decider
from redrive.topology.broker_version import NEWEST
from redrive.topology.headers import Delivery
from redrive.topology.model import Subscription

DEADLINE = 60.0


@pytest.fixture
def port() -> Iterator[int]:
    """A metrics server without subscribers."""
    with metrics_server.serving(MetricsAddress("127.0.0.1", 0), []) as port:
        yield port


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def answer_to(port: int, request: bytes) -> bytes:
    """All that comes back for these bytes."""
    found = b""
    with connected(port) as client:
        with contextlib.suppress(OSError):  # it need not read to the end what it refuses
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while some := client.recv(65536):
                found += some
    return found


def is_healthy(port: int) -> bool:
    with httpx.Client(trust_env=False, timeout=DEADLINE) as client:
        return client.get(f"http://127.0.0.1:{port}/health").status_code == 200


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def serving_threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


# --- requests that are none -----------------------------------------------------------------------

HOSTILE = {
    "a huge header": b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "150 headers": b"GET /metrics HTTP/1.1\r\n"
    + b"".join(b"X-%d: a\r\n" % number for number in range(150))
    + b"\r\n",
    "a long line": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    "a method that is none": b"\x1b]0;x\x07 /metrics HTTP/1.1\r\n\r\n",
    "a method that changes": b"DELETE /metrics HTTP/1.1\r\n\r\n",
    "a body": b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "binary": bytes(range(256)) * 10 + b"\r\n\r\n",
    "a path out of the server": b"GET /../../../../etc/passwd HTTP/1.1\r\n\r\n",
    "an encoded path out of the server": b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n\r\n",
    "another server": b"GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\n\r\n",
    "a line break": b"GET /metrics%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\n\r\n",
    "a version that is none": b"GET /metrics HTTP/9.9\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("attempt", HOSTILE)
def test_a_request_that_is_none_is_refused_and_the_next_one_answered(
    port: int, attempt: str, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = answer_to(port, HOSTILE[attempt])
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert b"root:" not in answer
    assert b"Set-Cookie:" not in answer.partition(b"\r\n\r\n")[0]
    assert is_healthy(port)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/metrics", "/health", "/nothing"])
def test_no_answer_tells_the_version_of_python(port: int, path: str) -> None:
    with httpx.Client(trust_env=False, timeout=DEADLINE) as client:
        assert client.get(f"http://127.0.0.1:{port}{path}").headers["server"] == "redrive"
    assert b"Python" not in answer_to(port, b"NONE\r\n\r\n")


# --- clients that stay ----------------------------------------------------------------------------


def test_a_client_that_sends_a_byte_at_a_time_is_ended(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(metrics_server, "_REQUEST_SECONDS", 0.3)
    ended = threading.Event()

    def trickle(client: socket.socket) -> None:
        while not ended.is_set():
            try:
                client.sendall(b"a")
            except OSError:
                ended.set()
            time.sleep(0.02)

    with connected(port) as client:
        sender = threading.Thread(target=trickle, args=[client], daemon=True)
        sender.start()
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""
        ended.set()
        sender.join(DEADLINE)
    wait_until(lambda: not serving_threads(), "its thread ends")


def test_a_client_that_takes_no_answer_is_ended(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(metrics_server, "_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(
        probes,
        "state",
        lambda word, states: probes.Answer(200, "text/plain", bytes(50_000_000)),
    )
    with connected(port) as client:
        client.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        client.recv(1)  # it is being answered
        wait_until(lambda: not serving_threads(), "its thread ends")


def test_clients_that_stay_start_no_more_threads_than_there_are_places_and_keep_no_probe_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "_MOST_AT_ONCE", 4)
    with (
        metrics_server.serving(MetricsAddress("127.0.0.1", 0), []) as port,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(30):
            clients.enter_context(connected(port))
        assert is_healthy(port)
        wait_until(lambda: serving_threads() <= 4, "there are four threads")


def test_a_hundred_clients_at_once_get_in() -> None:
    server = metrics_server._Server(
        MetricsAddress("127.0.0.1", 0), BaseHTTPRequestHandler
    )  # nobody takes them in yet
    with contextlib.closing(server.socket), contextlib.ExitStack() as clients:
        for _ in range(100):
            clients.enter_context(connected(int(server.server_address[1])))


# --- messages of others ---------------------------------------------------------------------------


def test_messages_of_any_key_id_type_and_trace_make_no_further_series(port: int) -> None:
    judge = Decider(Subscription("shop@orders", ["order.*"]), NEWEST, 131_072)

    def settle(number: int) -> None:
        properties = Properties(
            headers=Table.of({"traceparent": f"00-{number:032x}-{number:016x}-01"}),
            message_id=f"id-{number}",
        )
        delivery = Delivery("shop@orders", "master", f"order.{number}", properties, b"")
        error = type(f"Error{number}", (Exception,), {})(f"number {number}")
        assert telemetry.active is not None
        telemetry.active.settled("shop@orders", delivery, judge.success())
        telemetry.active.settled("shop@orders", delivery, judge.failure(delivery, error))

    def series() -> set[bytes]:
        page = answer_to(port, b"GET /metrics HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")[2]
        return {line.rpartition(b" ")[0] for line in page.splitlines() if b"shop@orders" in line}

    settle(0)
    first = series()
    for number in range(1, 300):
        settle(number)
    assert len(first) >= 2
    assert series() == first
