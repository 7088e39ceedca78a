"""Attempts to be believed over TLS: whoever can't prove who it is gets no word from us, in either
shell or over HTTPS."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme

from redrive import AsyncPublisher, BrokerUnavailable, FailedQueue, Publisher
from redrive.pubsub.admin.management_api import ManagementAPI

DEADLINE = 60.0
SECRET = "S3cretPw"


class Impostor:
    """A TLS server with a certificate of the test's choice. It notes what it is told after the
    handshake, and hangs up."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.heard = b""

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                plain = self._server.accept()[0]
                plain.settimeout(DEADLINE)
                with (
                    contextlib.suppress(OSError),
                    plain,
                    self._context.wrap_socket(plain, server_side=True) as secured,
                ):
                    self.heard += secured.recv(4096)

    def __enter__(self) -> "Impostor":
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(DEADLINE)


class Authority:
    """A CA that clients trust, as a file."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.file)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The CA that every client of these tests trusts."""
    return Authority(tmp_path_factory.mktemp("ca"))


def server_with(certificate: trustme.LeafCert) -> ssl.SSLContext:
    """A server's settings with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def good(authority: Authority) -> ssl.SSLContext:
    return server_with(authority.ca.issue_cert("localhost", "127.0.0.1"))


def of_another_ca(_: Authority) -> ssl.SSLContext:
    return server_with(trustme.CA().issue_cert("localhost", "127.0.0.1"))


def of_another_name(authority: Authority) -> ssl.SSLContext:
    return server_with(authority.ca.issue_cert("elsewhere.example"))


def expired(authority: Authority) -> ssl.SSLContext:
    return server_with(
        authority.ca.issue_cert(
            "localhost", "127.0.0.1", not_after=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        )
    )


def not_yet_valid(authority: Authority) -> ssl.SSLContext:
    begin, end = (
        datetime.datetime(2900, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2901, 1, 1, tzinfo=datetime.UTC),
    )
    return server_with(
        authority.ca.issue_cert("localhost", "127.0.0.1", not_before=begin, not_after=end)
    )


def signed_by_itself(_: Authority) -> ssl.SSLContext:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with ca.cert_pem.tempfile() as certificate, ca.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


def of_tls_1_1(authority: Authority) -> ssl.SSLContext:
    context = good(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def publish(port: int, query: str) -> None:
    """The blocking shell."""
    with Publisher(
        f"amqps://shop:{SECRET}@localhost:{port}/?{query}", timeout=DEADLINE, declare=False
    ):
        pass


def declare(port: int, query: str) -> None:
    """What the blocking shell and the command line look at a broker with."""
    FailedQueue(f"amqps://shop:{SECRET}@localhost:{port}/?{query}", "shop@orders").depth()


def publish_async(port: int, query: str) -> None:
    """The asyncio shell."""

    async def enter() -> None:
        async with AsyncPublisher(
            f"amqps://shop:{SECRET}@localhost:{port}/?{query}", timeout=DEADLINE, declare=False
        ):
            pass

    asyncio.run(enter())


def ask(port: int, query: str) -> None:
    """The management API."""
    with ManagementAPI(
        f"amqp://shop:{SECRET}@localhost/", f"https://localhost:{port}/?{query}"
    ) as management:
        management.queue_names()


Client = Callable[[int, str], None]
CLIENTS: list[Client] = [publish, declare, publish_async, ask]
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)

UNTRUSTED = [
    (of_another_ca, "unable to get local issuer certificate", "Name the CA"),
    (signed_by_itself, "self-signed certificate", "Name the CA"),
    (of_another_name, "Hostname mismatch", "a host name that its certificate is valid for"),
    (expired, "certificate has expired", "a certificate that is valid now"),
    (not_yet_valid, "certificate is not yet valid", "a certificate that is valid now"),
]


@contextlib.contextmanager
def refused(client: Client, server: ssl.SSLContext, query: str) -> Iterator[tuple[str, Impostor]]:
    """What a client says that refuses a server, and what the server heard of it."""
    with Impostor(server) as impostor:
        with pytest.raises(BrokerUnavailable) as told:
            client(impostor.port, query)
        text = str(told.value)
        assert len(text.splitlines()) == 2, text
        assert SECRET not in text
        yield text, impostor


@each_client
@pytest.mark.parametrize(
    ("server", "reason", "remedy"), UNTRUSTED, ids=lambda found: getattr(found, "__name__", None)
)
def test_whoever_has_no_good_certificate_hears_nothing_and_the_reason_is_said(
    authority: Authority,
    client: Client,
    server: Callable[[Authority], ssl.SSLContext],
    reason: str,
    remedy: str,
) -> None:
    with refused(client, server(authority), f"cacertfile={quote(str(authority.file))}") as (
        text,
        impostor,
    ):
        assert reason in text
        assert remedy in text
    assert impostor.heard == b""


@each_client
def test_without_a_ca_only_what_the_system_trusts_is_believed(
    authority: Authority, client: Client
) -> None:
    with refused(client, good(authority), "verify=verify_peer") as (text, impostor):
        assert "unable to get local issuer certificate" in text
        assert "cacertfile=" in text
    assert impostor.heard == b""


@each_client
def test_tls_1_1_is_not_spoken(authority: Authority, client: Client) -> None:
    with refused(client, of_tls_1_1(authority), f"cacertfile={quote(str(authority.file))}") as (
        text,
        impostor,
    ):
        assert "TLS" in text
    assert impostor.heard == b""


@each_client
def test_who_has_a_good_certificate_is_spoken_to(authority: Authority, client: Client) -> None:
    with refused(client, good(authority), f"cacertfile={quote(str(authority.file))}") as (
        _,
        impostor,
    ):
        pass  # it hangs up
    assert impostor.heard[:4] in (b"AMQP", b"GET ")


@each_client
def test_verify_none_believes_everybody(authority: Authority, client: Client) -> None:
    with refused(client, signed_by_itself(authority), "verify=verify_none") as (_, impostor):
        pass  # it hangs up
    assert impostor.heard[:4] in (b"AMQP", b"GET ")


@pytest.mark.parametrize("client", CLIENTS[:3], ids=lambda client: client.__name__)
def test_who_hangs_up_after_the_handshake_may_want_another_certificate(
    authority: Authority, client: Client
) -> None:
    with refused(client, good(authority), f"cacertfile={quote(str(authority.file))}") as (text, _):
        assert "closed the connection right after the TLS handshake" in text
        assert "certfile" in text


@each_client
def test_what_speaks_no_tls_is_said_so(authority: Authority, client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            plain = server.accept()[0]
            with plain:
                plain.recv(4096)
                plain.sendall(b"AMQP\0\0\x09\x01")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(BrokerUnavailable, match="does not speak TLS"):
            client(server.getsockname()[1], f"cacertfile={quote(str(authority.file))}")
        thread.join(DEADLINE)
