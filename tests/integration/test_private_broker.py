"""The private broker and the wire to it do what their names say, on whatever this run's broker runs
on."""

import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from effort import nightly
from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.testing import Broker, Proxy, private_broker
from redrive.testing.address import Address
from redrive.testing.broker import open_once
from redrive.testing.external_broker import ExternalBroker
from redrive.testing.process_broker import ProcessBroker, server_scripts
from waiting import DEADLINE

MESSAGES = 300
# Small for a test, large for a machine that builds something else at the same time.
PATIENCE = 60.0


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Not the one that all tests share: this one is killed."""
    if "REDRIVE_URL" not in os.environ:
        yield request.getfixturevalue("rabbitmq_broker")
        return
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("REDRIVE_URL", raising=False)
        with private_broker() as broker:
            yield broker


@pytest.fixture
def url(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    broker.start()
    yield broker.create_virtual_host(name)
    broker.start()
    broker.delete_virtual_host(name)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as proxy:
        yield proxy


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.05)


def answers(url: str, timeout: float = PATIENCE) -> bool:
    """Whether a broker answers within so many seconds; one that is not there says so at once, one
    that is frozen does not."""
    try:
        open_once(Address.parse(url), timeout)
    except RedriveError:
        return False
    return True


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def opened(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def declare_quorum_queue(channel: BlockingChannel, passive: bool = False) -> int:
    arguments = {"x-queue-type": "quorum"}
    declared = channel.queue_declare("messages", durable=True, passive=passive, arguments=arguments)
    count = declared.method.message_count
    assert isinstance(count, int)
    return count


def publish(channel: BlockingChannel, numbers: range) -> None:
    for number in numbers:
        persistent = pika.BasicProperties(delivery_mode=2)  # type: ignore[no-untyped-call]
        channel.basic_publish("", "messages", str(number).encode(), persistent, mandatory=True)


def ready_messages(url: str) -> int:
    """How many messages the queue has; -1 while it has no leader yet."""
    try:
        connection = opened(url)
    except AMQPError:
        return -1
    try:
        return declare_quorum_queue(connection.channel(), passive=True)
    except AMQPError:
        return -1
    finally:
        if connection.is_open:
            connection.close()


def numbers_in(url: str) -> list[int]:
    connection = opened(url)
    channel = connection.channel()
    numbers = []
    for method, _, body in channel.consume("messages", inactivity_timeout=DEADLINE):
        if method is None or body is None:
            break
        numbers.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(numbers) == MESSAGES:
            break
    connection.close()
    return numbers


def test_a_broker_says_what_it_is_and_where(broker: Broker) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", broker.version)
    assert broker.kind in {"process", "container"}
    assert str(broker) == f"RabbitMQ {broker.version} ({broker.origin})"
    assert answers(broker.url)
    assert broker.management_url is not None


def test_a_virtual_host_is_made_once_and_gone_once(broker: Broker) -> None:
    url = broker.create_virtual_host("a name/with all: in it")
    assert broker.create_virtual_host("a name/with all: in it") == url
    assert answers(url)
    broker.delete_virtual_host("a name/with all: in it")
    broker.delete_virtual_host("a name/with all: in it")
    assert not answers(url)


@pytest.mark.versions("how the broker starts, stops and keeps its data")
@pytest.mark.nightly("the torture run kills and restarts one each time")
def test_every_confirmed_message_survives_a_restart_and_a_kill(broker: Broker, url: str) -> None:
    with opened(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare_quorum_queue(channel)
        publish(channel, range(MESSAGES // 2))
    # RabbitMQ 3.10 and 4.0 forget a quorum queue whose first half second ends in a kill; a clean
    # stop writes it down.
    broker.restart()
    assert answers(url)
    eventually(lambda: ready_messages(url) == MESSAGES // 2, "the queue is back after the restart")
    with opened(url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, range(MESSAGES // 2, MESSAGES))
        broker.kill()
        assert not answers(url)
        with pytest.raises(AMQPError):
            connection.process_data_events(PATIENCE)
    broker.start()
    eventually(lambda: ready_messages(url) == MESSAGES, "the queue is back after the kill")
    assert numbers_in(url) == list(range(MESSAGES))


@pytest.mark.nightly("tests that restart a broker do the same")
def test_a_stopped_broker_starts_and_a_running_one_stays(broker: Broker, url: str) -> None:
    broker.stop()
    broker.stop()
    assert not answers(url)
    broker.start()
    assert answers(url)
    with opened(url) as connection:
        broker.start()
        assert connection.channel().is_open


@pytest.mark.nightly("only the reliability benchmark keeps it")
@pytest.mark.versions("how the broker starts, stops and keeps its data")
def test_what_a_stopped_broker_has_on_disk_can_be_kept(
    broker: Broker, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "data.tar"
    with pytest.raises(ConfigurationError, match="This broker is running"):
        broker.save_data(file)
    broker.stop()
    broker.save_data(file)
    broker.start()
    with tarfile.open(file) as saved:
        assert any("/quorum/" in name for name in saved.getnames())


def test_a_paused_broker_keeps_its_connections_and_goes_on(broker: Broker, url: str) -> None:
    with opened(url) as connection:
        broker.pause()
        assert not answers(url, 1)
        broker.resume()
        assert connection.channel().is_open
    broker.pause()
    broker.start()
    assert answers(url)


@pytest.mark.nightly("tests of silence pause brokers, and others kill them")
@pytest.mark.versions("how the broker starts, stops and keeps its data")
def test_a_paused_broker_can_be_killed(broker: Broker, url: str) -> None:
    broker.pause()
    broker.kill()
    broker.start()
    assert answers(url)


@pytest.mark.versions("how the broker starts, stops and keeps its data")
def test_rabbitmqctl_acts_on_this_broker(broker: Broker, url: str) -> None:
    assert Address.parse(url).virtual_host in broker.control("list_vhosts", "--quiet").splitlines()
    with pytest.raises(ConfigurationError, match="rabbitmqctl no_such_command failed"):
        broker.control("no_such_command")


@pytest.mark.nightly("the tests of TLS configure theirs")
def test_lines_of_configuration_reach_the_broker_and_closing_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REDRIVE_URL", raising=False)
    with private_broker(config={"max_message_size": "1024"}) as broker:
        with opened(broker.url) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            with pytest.raises(ChannelClosedByBroker, match="1024"):
                channel.basic_publish("", "nowhere", bytes(2048))
        port = Address.parse(broker.url).port
    eventually(lambda: refuses(port), "nobody listens any more")
    broker.close()


@pytest.mark.parametrize("how", [nightly(signal.SIGINT, why="a kill is worse"), signal.SIGKILL])
def test_a_broker_ends_with_the_program_that_started_it(
    how: signal.Signals, tmp_path: Path
) -> None:
    scripts = server_scripts()
    if scripts is None:
        # Where only containers are to be had, testcontainers' own reaper sees to the second case.
        pytest.skip("no rabbitmq-server is installed")
    program = """
from functools import partial
from pathlib import Path; import signal, sys, time
from redrive.testing.process_broker import ProcessBroker
signal.signal(signal.SIGINT, signal.default_int_handler)
broker = ProcessBroker(Path(sys.argv[1]))
broker.start()
print(broker.url, flush=True)
time.sleep(600)
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program, str(scripts)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        assert answers(url)
        running.send_signal(how)
    eventually(lambda: refuses(Address.parse(url).port), "nobody listens any more")
    eventually(lambda: not list(tmp_path.iterdir()), "the data is deleted")


def test_an_image_that_is_not_there_is_named_in_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.testing.broker_choice.engine_answers", lambda: False)
    with pytest.raises(ConfigurationError) as caught:
        private_broker("rabbitmq:4.3-management")
    problem, remedy = str(caught.value).splitlines()
    assert "rabbitmq:4.3-management" in problem
    assert "DOCKER_HOST" in remedy


def test_the_installed_server_stands_in_for_an_image_that_can_not_be_pulled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("REDRIVE_URL", "REDRIVE_TEST_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("redrive.testing.broker_choice.engine_answers", lambda: True)
    monkeypatch.setattr("redrive.testing.broker_choice.has_image", lambda image: False)
    monkeypatch.setattr(
        "redrive.testing.broker_choice.pull_image", lambda image, seconds: "no route to host"
    )
    monkeypatch.setattr("redrive.testing.broker_choice.server_scripts", lambda: tmp_path)
    assert isinstance(private_broker(), ProcessBroker)
    monkeypatch.setattr("redrive.testing.broker_choice.server_scripts", lambda: None)
    with pytest.raises(ConfigurationError, match="could not pull it: no route to host"):
        private_broker()


def test_a_broker_of_somebody_else_is_used_and_not_controlled(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REDRIVE_URL", url)
    monkeypatch.setenv("REDRIVE_MANAGEMENT_URL", broker.management_url or "")
    with private_broker() as external:
        assert isinstance(external, ExternalBroker)
        assert external.kind == "external"
        assert external.version == broker.version
        assert answers(external.create_virtual_host("of-somebody-else"))
        external.delete_virtual_host("of-somebody-else")
        for control in (
            partial(external.save_data, tmp_path / "data.tar"),
            external.start,
            external.stop,
            external.kill,
            external.restart,
            external.pause,
            external.resume,
        ):
            with pytest.raises(ConfigurationError, match="is external"):
                control()
    assert answers(url)
    with pytest.raises(ConfigurationError, match="its own configuration"):
        private_broker(config={"max_message_size": "1024"})


def test_a_wire_that_is_cut_ends_connections_and_takes_new_ones(proxy: Proxy) -> None:
    connection = opened(proxy.url)
    proxy.cut()
    with pytest.raises(AMQPError):
        connection.process_data_events(PATIENCE)
    assert answers(proxy.url)


def test_a_wire_that_refuses_keeps_the_connections_it_has(proxy: Proxy) -> None:
    with opened(proxy.url) as connection:
        proxy.refuse()
        assert refuses(Address.parse(proxy.url).port)
        assert connection.channel().is_open
    proxy.accept()
    assert answers(proxy.url)


def test_a_frozen_wire_lets_nothing_through_and_loses_nothing(proxy: Proxy) -> None:
    with opened(proxy.url) as connection:
        channel = connection.channel()
        channel.queue_declare("messages", exclusive=True)
        proxy.freeze()
        channel.basic_publish("", "messages", b"sent into the ice")
        assert not answers(proxy.url, 1)
        assert proxy.connections >= 1
        proxy.thaw()
        eventually(
            lambda: channel.queue_declare("messages", passive=True).method.message_count == 1,
            "the message comes through",
        )


def test_a_long_wire_delays_each_direction(proxy: Proxy) -> None:
    with opened(proxy.url) as connection:
        channel = connection.channel()
        proxy.delay(0.3)
        started = time.monotonic()
        channel.queue_declare("messages", exclusive=True)
        assert time.monotonic() - started >= 0.6
        proxy.delay(0)


@pytest.mark.nightly("a wire that is cut is tried each time")
def test_a_wire_to_a_broker_that_is_down_hangs_up(broker: Broker, proxy: Proxy) -> None:
    broker.kill()
    with pytest.raises(BrokerUnavailable):
        open_once(Address.parse(proxy.url), PATIENCE)
    broker.start()
    assert answers(proxy.url)
