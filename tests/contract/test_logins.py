"""Who logs in: asked at each connection, and named by what is logged and raised."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from contract.shells import Shell
from contract.support import Recorder, Service
from redrive import (
    AsyncFailedQueue,
    AsyncPublisher,
    AsyncSubscriber,
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
)
from redrive.failures.queue.return_safety import _limits_over_management
from redrive.pubsub.blocking.connection import Connector
from redrive.testing import Broker
from waiting import DEADLINE


def test_an_error_names_the_user_that_logs_in_and_not_the_urls(
    rabbitmq_url: str, shell: Shell
) -> None:
    with (
        pytest.raises(PermissionDenied) as told,
        shell.publisher(
            rabbitmq_url, timeout=DEADLINE, credentials=lambda: ("rotated-7", "wrong-password")
        ),
    ):
        pass

    assert "the user 'rotated-7'" in str(told.value)
    assert "guest" not in told.value.problem
    assert "wrong-password" not in str(told.value)


def test_a_virtual_host_that_is_not_there_names_the_user_that_logs_in(
    rabbitmq_url: str, shell: Shell
) -> None:
    place = rabbitmq_url.partition("@")[2].partition("/")[0]
    with (
        pytest.raises(PermissionDenied) as told,
        shell.publisher(
            f"amqp://somebody:else@{place}/nowhere",
            timeout=DEADLINE,
            credentials=lambda: ("guest", "guest"),
        ),
    ):
        pass

    assert "'guest' may use" in str(told.value)
    assert "somebody" not in str(told.value)


def test_credentials_that_cannot_be_had_are_an_error_without_a_traceback_in_the_log(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    def prepared() -> tuple[str, str]:
        raise OSError("the vault is sealed")

    with (
        pytest.raises(BrokerUnavailable, match="the vault is sealed"),
        shell.publisher("amqp://localhost/", timeout=DEADLINE, credentials=prepared),
    ):
        pass

    assert "Traceback" not in caplog.text


@pytest.mark.versions("how long names may be")
@pytest.mark.parametrize("length", [127, 128, 200])
def test_a_virtual_host_may_have_a_long_name(
    rabbitmq_broker: Broker, shell: Shell, length: int
) -> None:
    name = f"{shell.name}-".ljust(length, "x")
    service = Service(rabbitmq_broker.create_virtual_host(name), shell)
    recorder = Recorder()
    try:
        with service.subscriber(recorder):
            recorder.wait_for_handled([service.publish()])
    finally:
        rabbitmq_broker.delete_virtual_host(name)


@pytest.fixture
def management() -> Iterator[tuple[str, list[str]]]:
    """A management API that notes who asks it."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization", "nobody"))
            of_queue = {"arguments": {"x-delivery-limit": 77}}
            body = json.dumps(of_queue if "/queues/" in self.path else []).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_the_management_api_is_asked_as_who_logs_in(management: tuple[str, list[str]]) -> None:
    address, asked = management
    connector = Connector("amqp://guest:guest@localhost/", "test", lambda: ("rotated-7", "secret"))

    assert _limits_over_management(connector, address, "shop@orders@failed") == [77]
    assert set(asked) == {"Basic cm90YXRlZC03OnNlY3JldA=="}


def test_without_an_event_loop_of_asyncio_its_classes_say_so() -> None:
    subscriber = AsyncSubscriber("amqp://localhost/", "shop@orders")

    @subscriber.handler
    async def handle(message: dict[str, object]) -> None:
        """Handles a message."""

    for coroutine in (
        AsyncPublisher("amqp://localhost/").publish("socks", "order.paid"),
        subscriber.start(),
        AsyncFailedQueue("amqp://localhost/", "shop@orders").depth(),
    ):
        with pytest.raises(ConfigurationError, match=r"no asyncio event loop is running here"):
            coroutine.send(None)
        coroutine.close()
