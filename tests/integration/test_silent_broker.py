"""What accepts a connection and then says nothing: a broker that stands still, or a load balancer
with nothing behind it."""

import contextlib
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from worker_process import Notes, Worker

from contract.shells import Shell
from contract.support import Recorder, Service, assert_it_helps, both_shells
from redrive import BrokerUnavailable, Subscriber
from redrive.cli.metrics_server import MetricsAddress, serving
from redrive.pubsub.blocking.declarer import Declarer
from redrive.testing import Broker, Proxy
from redrive.topology.model import Binding, Exchange, Queue
from waiting import DEADLINE, wait_until

SHORT = "?heartbeat=1&connection_timeout=300"
"""A heartbeat that is missed soon, and a connection that is given up soon."""


class Silence:
    """A port of this machine that accepts every connection and never says a word."""

    def __init__(self, *, tls: bool = False) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._accepted: list[socket.socket] = []
        scheme = "amqps" if tls else "amqp"
        self.url = f"{scheme}://127.0.0.1:{self._server.getsockname()[1]}/{SHORT}"

    @property
    def connections(self) -> int:
        """How many it has accepted."""
        return len(self._accepted)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                self._accepted.append(self._server.accept()[0])

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(DEADLINE)
        for accepted in self._accepted:
            accepted.close()


def handle(_: dict[str, object]) -> None:
    """Handles a message."""


each_wire = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
each_declares = pytest.mark.parametrize(
    "declare", [True, False], ids=["declaring", "not declaring"]
)


@each_declares
@each_wire
@both_shells
def test_a_worker_that_starts_in_silence_ends_when_its_patience_does(
    shell: Shell, tls: bool, declare: bool
) -> None:
    with Silence(tls=tls) as silence:
        worker = shell.subscriber(
            handle, silence.url, "shop@orders", patience=timedelta(seconds=1), declare=declare
        )
        with pytest.raises(BrokerUnavailable) as told, worker as running:
            wait_until(running.stopped, "the worker has ended")
        assert silence.connections

    assert "did not answer in time" in str(told.value)
    assert_it_helps(told.value)


@each_declares
@each_wire
@both_shells
def test_a_worker_that_connects_in_silence_can_be_stopped(
    shell: Shell, tls: bool, declare: bool
) -> None:
    with (
        Silence(tls=tls) as silence,
        shell.subscriber(
            handle, silence.url, "shop@orders", patience=timedelta(days=1), declare=declare
        ) as worker,
    ):
        wait_until(lambda: silence.connections, "it connects")
        worker.stop()
        wait_until(worker.stopped, "the worker has ended")


@both_shells
def test_patience_counts_the_time_that_each_try_takes(shell: Shell) -> None:
    with Silence() as silence:
        worker = shell.subscriber(handle, silence.url, "shop@orders", patience=timedelta(seconds=4))
        with pytest.raises(BrokerUnavailable), worker as running:
            wait_until(running.stopped, "the worker has ended")

        assert silence.connections == 1  # the first try took longer than that


@both_shells
def test_sigterm_ends_a_worker_that_connects_in_silence(shell: Shell, tmp_path: Path) -> None:
    with (
        Silence() as silence,
        Worker(
            Service(silence.url, shell=shell), Notes(tmp_path / "notes"), patience=3600.0
        ) as worker,
    ):
        wait_until(lambda: silence.connections, "it connects")
        worker.terminate()

        assert worker.wait() == 0


@each_wire
@both_shells
def test_a_publisher_in_silence_says_so_and_closes(shell: Shell, tls: bool) -> None:
    with (
        Silence(tls=tls) as silence,
        pytest.raises(BrokerUnavailable) as told,
        shell.publisher(silence.url, timeout=DEADLINE),
    ):
        pass

    assert "did not answer in time" in str(told.value)
    assert_it_helps(told.value)


@both_shells
def test_a_publisher_does_not_wait_longer_than_it_was_told_to(shell: Shell) -> None:
    with (
        Silence() as silence,
        pytest.raises(BrokerUnavailable) as told,
        shell.publisher(silence.url, timeout=0.2),
    ):
        pass

    assert "did not answer within 0.2 s" in str(told.value)


@both_shells
def test_a_failed_queue_in_silence_says_so(shell: Shell) -> None:
    with Silence() as silence:
        failed = shell.failed_queue(silence.url, "shop@orders")
        for use in (failed.depth, lambda: list(failed.browse())):
            with pytest.raises(BrokerUnavailable) as told:
                use()
            assert "did not answer in time" in str(told.value)
            assert_it_helps(told.value)


@pytest.mark.parametrize(
    "command",
    [
        "status shop@orders",
        "failed list shop@orders",
        "declare --queue shop@orders --routing-key order.*",
    ],
)
def test_a_command_in_silence_says_so_in_two_lines(command: str) -> None:
    with Silence() as silence:
        done = subprocess.run(
            [sys.executable, "-m", "redrive.cli", *command.split(), "--url", silence.url],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    assert done.returncode == 2
    assert "did not answer in time" in done.stderr
    assert "defect" not in done.stderr
    assert "pika" not in done.stderr
    assert "Traceback" not in done.stderr


@both_shells
def test_a_running_worker_waits_until_the_wire_thaws(
    rabbitmq_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    service = Service(rabbitmq_url, shell=shell)
    with (
        Proxy(rabbitmq_url) as proxy,
        service.subscriber(recorder, url=proxy.url + SHORT, patience=timedelta(0)),
    ):
        recorder.wait_for_handled([service.publish()])
        proxy.freeze()
        message_id = service.publish()
        wait_until(
            lambda: "did not answer in time" in caplog.text,
            "a new connection is tried, and given up",
        )
        proxy.thaw()
        recorder.wait_for_handled([message_id])

    assert "Traceback" not in caplog.text


@both_shells
def test_a_worker_that_starts_on_a_frozen_wire_begins_when_it_thaws(
    rabbitmq_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    service = Service(rabbitmq_url, shell=shell)
    service.declare()
    message_id = service.publish()
    with Proxy(rabbitmq_url) as proxy:
        proxy.freeze()
        with service.subscriber(recorder, url=proxy.url + SHORT, patience=timedelta(hours=1)):
            wait_until(
                lambda: "did not answer in time" in caplog.text, "the first connection is given up"
            )
            proxy.thaw()
            recorder.wait_for_handled([message_id])


@both_shells
def test_a_worker_on_a_wire_that_freezes_while_it_declares_can_be_stopped(
    rabbitmq_url: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    frozen = threading.Event()
    declare = Declarer.declare
    with Proxy(rabbitmq_url) as proxy:

        def declare_on_ice(self: Declarer, what: Exchange | Queue | Binding) -> None:
            proxy.freeze()
            frozen.set()
            declare(self, what)

        monkeypatch.setattr(Declarer, "declare", declare_on_ice)
        # With no heartbeat it would wait for an answer for ever.
        with service.subscriber(
            handle, url=f"{proxy.url}?heartbeat=0", patience=timedelta(hours=1)
        ) as worker:
            assert frozen.wait(DEADLINE)
            worker.stop()
            wait_until(worker.stopped, "the worker has ended")
        proxy.cut()


@both_shells
def test_a_worker_outlives_a_broker_that_stands_still(
    rabbitmq_broker: Broker, rabbitmq_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    service = Service(rabbitmq_url, shell=shell)
    with service.subscriber(recorder, url=rabbitmq_url + SHORT):
        recorder.wait_for_handled([service.publish()])
        rabbitmq_broker.pause()
        try:
            wait_until(
                lambda: "did not answer in time" in caplog.text,
                "a new connection is tried, and given up",
            )
        finally:
            rabbitmq_broker.resume()
        recorder.wait_for_handled([service.publish()])


def health(port: int) -> int:
    """The status with which `/health` answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=DEADLINE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:  # an open answer, too
            return error.code


@contextlib.contextmanager
def served(subscriber: Subscriber) -> Iterator[Callable[[], int]]:
    """What tells the health of a subscriber over HTTP."""
    with serving(MetricsAddress("127.0.0.1", 0), [subscriber]) as port:
        yield lambda: health(port)


def test_a_worker_that_waits_for_a_silent_broker_is_healthy_and_not_ready() -> None:
    with Silence() as silence:
        subscriber = Subscriber(silence.url, "shop@orders", patience=timedelta(hours=1))
        subscriber.handler(handle)
        with served(subscriber) as healthy:
            subscriber.start()
            wait_until(lambda: silence.connections, "it connects")
            assert healthy() == 200
            assert not subscriber.ready
            subscriber.stop()
            assert subscriber.wait(DEADLINE)
            assert healthy() == 503


@pytest.mark.parametrize("error", [ValueError("a defect"), SystemExit(3)], ids=repr)
def test_a_worker_whose_io_thread_dies_is_not_healthy_and_says_why(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def die() -> None:
        raise error

    with Silence() as silence:
        subscriber = Subscriber(silence.url, "shop@orders", patience=timedelta(hours=1))
        subscriber.handler(handle)
        with served(subscriber) as healthy:
            subscriber.start()
            wait_until(lambda: silence.connections, "it connects")
            assert subscriber._processing is not None
            subscriber._processing._link.call(die)
            wait_until(subscriber.stopped, "its end is told")
            assert healthy() == 503
            with pytest.raises(BrokerUnavailable, match="the I/O thread ended"):
                subscriber.wait(DEADLINE)

    assert type(error).__name__ in caplog.text
