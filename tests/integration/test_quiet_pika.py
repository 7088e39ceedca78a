"""What pika logs: of redrive's own connections nothing, of a program's own everything."""

import contextlib
import logging
import socket
from collections.abc import Callable
from datetime import timedelta

import pika
import pytest

from cli_support import declare, run_redrive
from contract.shells import Shell
from contract.support import Service, both_shells
from redrive import BrokerUnavailable
from redrive.testing import Proxy
from redrive.testing.ports import free_ports
from waiting import DEADLINE, wait_until


def pikas(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What pika, aiormq and asyncio have logged."""
    return [
        record.getMessage() for record in caplog.records if not record.name.startswith("redrive")
    ]


def unknown_host() -> str:
    return "amqp://no-such-host.invalid/"


def closed_port() -> str:
    return f"amqp://localhost:{free_ports(1)[0]}/"


@pytest.mark.parametrize(
    ("address", "reason"),
    [(closed_port, "connection refused"), (unknown_host, "host name is not known")],
)
@both_shells
def test_a_connection_that_is_refused_is_one_line_of_redrives(
    shell: Shell, address: Callable[[], str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    url = address()
    with shell.subscriber(
        lambda message: None, url, "shop@orders", patience=timedelta(hours=1)
    ) as worker:
        wait_until(lambda: caplog.text.count(reason) > 1, "it is tried twice")
        worker.stop()
    with pytest.raises(BrokerUnavailable), shell.publisher(url, timeout=DEADLINE):
        pass
    with pytest.raises(BrokerUnavailable):
        shell.failed_queue(url, "shop@orders").depth()

    assert pikas(caplog) == []
    assert "Traceback" not in caplog.text


@both_shells
def test_publishing_handling_and_looking_leave_no_line_of_pikas(
    rabbitmq_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    service = Service(rabbitmq_url, shell=shell)
    service.set_aside(2)
    service.publish()
    assert len(service.failed()) == 2

    assert pikas(caplog) == []


@both_shells
def test_a_connection_that_is_cut_leaves_no_line_of_pikas(
    rabbitmq_url: str, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    service = Service(rabbitmq_url, shell=shell)
    with Proxy(rabbitmq_url) as proxy, service.publisher(url=proxy.url) as publisher:
        publisher.publish("socks", "order.paid")
        proxy.cut()
        wait_until(lambda: "again" in caplog.text, "it is connected again")

    assert pikas(caplog) == []


def test_a_programs_own_pika_logs_as_ever(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Service(rabbitmq_url).publisher():
        pika.BlockingConnection(pika.URLParameters(rabbitmq_url)).close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with contextlib.suppress(pika.exceptions.AMQPError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))

    assert [line for line in pikas(caplog) if "connecting to" in line]
    assert [line for line in pikas(caplog) if "failed" in line]


def test_a_command_that_is_run_within_a_program_leaves_its_pika_as_it_was(
    rabbitmq_url: str,
) -> None:
    levels = {name: logging.getLogger(name).level for name in ("pika", "pika.connection")}
    declare(rabbitmq_url, "shop@orders")

    assert {name: logging.getLogger(name).level for name in levels} == levels


@pytest.mark.parametrize("address", [closed_port, unknown_host])
def test_a_command_prints_no_line_of_pikas(address: Callable[[], str]) -> None:
    outcome = run_redrive("status", url=address())

    assert outcome.code == 2
    assert len(outcome.error_lines) <= 2
    assert "pika" not in outcome.err


def test_whoever_wants_all_of_redrives_lines_gets_pikas_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "redrive")
    caplog.set_level(logging.INFO, "pika")
    url = closed_port()
    with pytest.raises(BrokerUnavailable):
        Service(url).shell.failed_queue(url, "shop@orders").depth()

    assert pikas(caplog)
