"""A real broker with TLS: who is let in, whom it refuses, and certificates that change while
somebody is connected."""

import contextlib
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from certificates import CLIENT, Certificates, certificates
from contract.shells import BLOCKING, Shell
from contract.support import Recorder, assert_it_helps, both_shells
from effort import nightly
from redrive import BrokerUnavailable, PermissionDenied, RedriveError
from redrive.testing import Broker, Proxy, private_broker
from redrive.testing.ports import free_ports
from waiting import DEADLINE, wait_until


@dataclass(frozen=True)
class Secured:
    """A broker that demands a client certificate, and takes it as a login too."""

    broker: Broker
    certificates: Certificates
    port: int

    def url(
        self, client: str | None = "client", further: str = "", login: str = "guest:guest@"
    ) -> str:
        """Its address for a client that shows a certificate."""
        return f"amqps://{login}localhost:{self.port}/?{self.certificates.options(client)}{further}"

    @property
    def external(self) -> str:
        """Its address for a client that logs in by certificate."""
        return self.url(further="&auth_mechanism=external", login="")


@pytest.fixture(scope="module", params=[nightly("tlsv1.2", why="the older one"), "tlsv1.3"])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    """A broker with TLS of one version, on which every client has to show a certificate."""
    with certificates() as files:
        [port] = free_ports(1)
        folder = files.folder
        config = {
            "listeners.ssl.1": str(port),
            "ssl_options.cacertfile": str(folder / "ca.pem"),
            "ssl_options.certfile": str(folder / "server.pem"),
            "ssl_options.keyfile": str(folder / "server.key"),
            "ssl_options.versions.1": request.param,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
            "auth_mechanisms.1": "EXTERNAL",
            "auth_mechanisms.2": "PLAIN",
            "ssl_cert_login_from": "common_name",
        }
        with private_broker(
            config=config, plugins=["rabbitmq_auth_mechanism_ssl"], folder=folder, ports=[port]
        ) as broker:
            broker.control("add_user", CLIENT, "a password that nobody uses")
            broker.control("set_permissions", CLIENT, ".*", ".*", ".*")
            yield Secured(broker, files, port)


def handled_once(shell: Shell, url: str, queue: str, **options: object) -> bool:
    """Whether a message that a shell publishes comes back to it."""
    recorder = Recorder()
    key = f"{queue}.paid"
    shell.declare(url, queue, routing_keys=[key], **options)
    with (
        shell.subscriber(recorder, url, queue, routing_keys=[key], **options),
        shell.publisher(url, **options) as publisher,
    ):
        recorder.wait_for_handled([publisher.publish("socks", key)])
    return True


@both_shells
def test_a_client_with_a_certificate_and_a_password_is_let_in(
    secured: Secured, shell: Shell
) -> None:
    assert handled_once(shell, secured.url(), f"password-{shell.name}")


@both_shells
def test_a_client_logs_in_by_its_certificate_alone(secured: Secured, shell: Shell) -> None:
    queue = f"external-{shell.name}"
    assert handled_once(shell, secured.external, queue)
    assert shell.failed_queue(secured.external, queue).depth() == 0


def test_the_broker_calls_who_logged_in_by_certificate_by_its_name(secured: Secured) -> None:
    with BLOCKING.publisher(secured.external) as publisher:
        publisher.publish("socks", "order.paid")
        assert CLIENT in secured.broker.control("list_connections", "user")


def test_the_command_line_logs_in_by_certificate(secured: Secured) -> None:
    command = [
        "declare",
        "--queue",
        "external-cli",
        "--routing-key",
        "order.*",
        "--url",
        secured.external,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "redrive.cli", *command],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@both_shells
def test_a_context_of_ones_own_is_used(secured: Secured, shell: Shell) -> None:
    folder = secured.certificates.folder
    made: list[ssl.SSLContext] = []

    def context() -> ssl.SSLContext:
        # Publisher and subscriber ask at the same time.
        one = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        one.load_cert_chain(folder / "client.pem", folder / "client.key")
        made.append(one)
        return one

    url = f"amqps://localhost:{secured.port}/?auth_mechanism=external"
    queue = f"context-{shell.name}"
    assert handled_once(shell, url, queue, ssl_context=context)
    assert shell.failed_queue(url, queue, ssl_context=made[0]).depth() == 0
    assert len(made) > 1  # a function is asked at each connection


def refused(shell: Shell, url: str) -> RedriveError:
    """Why a publisher, and who looks at a failed queue, are not let in; both say the same."""
    with pytest.raises(RedriveError) as told, shell.publisher(url, timeout=DEADLINE):
        pass
    with pytest.raises(RedriveError) as told_again:
        shell.failed_queue(url, "shop@orders").depth()
    for error in (told.value, told_again.value):
        assert_it_helps(error)
    assert type(told.value) is type(told_again.value)
    return told.value


@pytest.mark.parametrize("client", [None, "stranger"], ids=["none", "of another CA"])
@both_shells
def test_a_refused_certificate_is_not_taken_for_a_wrong_port(
    secured: Secured, shell: Shell, client: str | None
) -> None:
    error = refused(shell, secured.url(client))

    assert isinstance(error, BrokerUnavailable)
    assert "client certificate" in str(error)
    assert "certfile=" in str(error)
    assert "does not speak AMQP. " not in str(error)


@both_shells
@pytest.mark.nightly("a certificate that is refused is tried each time")
def test_a_certificate_that_no_user_has_the_name_of_is_refused_as_a_login(
    secured: Secured, shell: Shell
) -> None:
    secured.broker.control("delete_user", CLIENT)
    try:
        error = refused(shell, secured.external)
    finally:
        secured.broker.control("add_user", CLIENT, "a password that nobody uses")
        secured.broker.control("set_permissions", CLIENT, ".*", ".*", ".*")

    assert isinstance(error, PermissionDenied)
    assert "refused the login by client certificate" in str(error)
    assert "guest" not in str(error)


@both_shells
def test_renewed_certificates_are_used_from_the_next_connection_on(
    secured: Secured, shell: Shell, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's files are those of another CA first, and renewed under its feet."""
    files = Certificates(tmp_path)
    good = secured.certificates.folder
    recorder = Recorder()
    query = f"{files.options('client')}&server_name_indication=localhost"

    def renew(folder: Path) -> None:
        for name in ("ca.pem", "client.pem", "client.key"):
            shutil.copy(folder / name, tmp_path / f"new-{name}")
            (tmp_path / f"new-{name}").replace(tmp_path / name)

    others = tmp_path / "others"
    others.mkdir()
    for name in ("ca.pem", "client.pem", "client.key"):
        shutil.copy(tmp_path / name, others / name)
    renew(good)
    queue, key = f"renewed-{shell.name}", f"renewed.{shell.name}"
    with Proxy(f"amqp://guest:guest@127.0.0.1:{secured.port}/") as proxy:
        url = f"amqps://guest:guest@{proxy.url.partition('@')[2].partition('/')[0]}/?{query}"
        shell.declare(url, queue, routing_keys=[key])
        with (
            shell.subscriber(recorder, url, queue, routing_keys=[key]),
            shell.publisher(url) as publisher,
        ):
            recorder.wait_for_handled([publisher.publish("socks", key)])
            renew(others)
            proxy.cut()
            wait_until(
                lambda: "certificate is not trusted" in caplog.text,
                "a new connection reads the new files",
            )
            renew(good)
            recorder.wait_for_handled(
                [publisher.publish("socks", key, timeout=timedelta(seconds=DEADLINE))]
            )


@both_shells
def test_a_connection_over_tls_that_is_cut_comes_back(
    secured: Secured, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    queue, key = f"cut-{shell.name}", f"cut.{shell.name}"
    with Proxy(f"amqp://guest:guest@127.0.0.1:{secured.port}/") as proxy:
        place = proxy.url.partition("@")[2].partition("/")[0]
        url = f"amqps://guest:guest@{place}/?{secured.certificates.options('client')}"
        shell.declare(url, queue, routing_keys=[key])
        with (
            shell.subscriber(recorder, url, queue, routing_keys=[key]),
            shell.publisher(url) as publisher,
        ):
            for _ in range(3):
                recorder.wait_for_handled([publisher.publish("socks", key, timeout=DEADLINE)])
                proxy.cut()
            recorder.wait_for_handled([publisher.publish("socks", key, timeout=DEADLINE)])

    assert "client certificate" not in caplog.text


@pytest.mark.nightly("without TLS it is tried each time")
@both_shells
def test_a_worker_over_tls_waits_until_the_wire_thaws(
    secured: Secured, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    queue, key = f"frozen-{shell.name}", f"frozen.{shell.name}"
    with (
        Proxy(f"amqp://guest:guest@127.0.0.1:{secured.port}/") as proxy,
        contextlib.ExitStack() as stack,
    ):
        place = proxy.url.partition("@")[2].partition("/")[0]
        url = f"amqps://guest:guest@{place}/?{secured.certificates.options('client')}&heartbeat=1&connection_timeout=300"
        shell.declare(secured.url(), queue, routing_keys=[key])
        publisher = stack.enter_context(shell.publisher(secured.url()))
        stack.enter_context(
            shell.subscriber(recorder, url, queue, routing_keys=[key], patience=DEADLINE)
        )
        recorder.wait_for_handled([publisher.publish("socks", key)])
        proxy.freeze()
        message_id = publisher.publish("socks", key)
        # The second is that of a new connection: it gets no answer, unless the broker has given it
        # up a moment before.
        wait_until(
            lambda: caplog.text.count("trying again") > 1, "a new connection is tried, and given up"
        )
        proxy.thaw()
        recorder.wait_for_handled([message_id])
