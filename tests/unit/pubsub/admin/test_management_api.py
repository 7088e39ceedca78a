"""What the management API's client says of what answers, and of what does not. The servers here are
stubs on this machine."""

import json
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from canned_server import CannedServer
from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI

SECRET = "s3cr3t-and-long"
BROKER = f"amqp://shop:{SECRET}@localhost/orders"
QUEUES = [{"name": "a"}, {"name": "b"}]


@contextmanager
def answering(
    status: int, body: str, kind: str = "application/json", *, certificate: Path | None = None
) -> Iterator[str]:
    """A server that gives every request the same answer; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that does not trust the certificate hangs up."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        yield f"{'http' if certificate is None else 'https'}://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def saying(content: bytes) -> Iterator[str]:
    """A server that says this to everybody, whatever is asked; its address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(content)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        yield f"http://localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes a connection and never answers; its address."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://localhost:{server.getsockname()[1]}"


def certificate_for(folder: Path, name: str) -> Path:
    file = folder / f"{name}.pem"
    kind = (
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    )
    files = ("-keyout", str(file.with_suffix(".key")), "-out", str(file))
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    subprocess.run(["openssl", "req", *kind, *files, *subject], check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signed itself; its key stands beside it."""
    return certificate_for(tmp_path_factory.mktemp("tls"), "localhost")


def names(address: str, *, broker: str = BROKER, timeout: float = 10) -> list[str]:
    with ManagementAPI(broker, address, timeout=timedelta(seconds=timeout)) as management:
        return management.queue_names()


def refusal(kind: type[RedriveError], address: str, *, timeout: float = 10) -> tuple[str, str]:
    """The problem and the remedy that asking ends with."""
    with pytest.raises(kind) as caught:
        names(address, timeout=timeout)
    problem, remedy = str(caught.value).split("\n")
    assert SECRET not in problem + remedy
    return problem, remedy


def test_what_it_lists_is_read() -> None:
    with answering(200, json.dumps(QUEUES)) as address:
        assert names(address) == ["a", "b"]


def test_of_a_queue_that_the_broker_has_not_counted_yet_nothing_is_known() -> None:
    with answering(200, "[]") as address, ManagementAPI(BROKER, address) as management:
        assert management.message_count("young") is None
        assert management.arguments_of("young") == {}
        assert management.delivery_limits("young") == []
        assert management.count("young").ready is None


def test_a_certificate_that_is_not_trusted_is_said_with_how_to_name_its_ca(
    certificate: Path,
) -> None:
    with answering(200, "[]", certificate=certificate) as address:
        problem, remedy = refusal(BrokerUnavailable, address)
    assert f"{address} can't be used: its certificate is not trusted (self" in problem
    assert f"--management-url '{address}/?cacertfile=" in remedy
    assert "rabbitmq-plugins" not in remedy


def test_the_management_address_may_name_the_ca(certificate: Path) -> None:
    with answering(200, json.dumps(QUEUES), certificate=certificate) as address:
        assert names(f"{address}/?cacertfile={certificate}") == ["a", "b"]


def test_the_ca_of_the_brokers_address_holds_for_the_management_api(certificate: Path) -> None:
    with answering(200, json.dumps(QUEUES), certificate=certificate) as address:
        assert names(
            address, broker=f"amqps://shop:{SECRET}@localhost/orders?cacertfile={certificate}"
        ) == ["a", "b"]


def test_the_system_may_name_the_ca(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with answering(200, json.dumps(QUEUES), certificate=certificate) as address:
        assert names(address) == ["a", "b"]


def test_the_check_of_the_certificate_can_be_left_out(certificate: Path) -> None:
    with answering(200, json.dumps(QUEUES), certificate=certificate) as address:
        assert names(f"{address}?verify=verify_none") == ["a", "b"]


def test_a_certificate_for_another_name_is_said_so(tmp_path: Path) -> None:
    certificate = certificate_for(tmp_path, "rabbit.example")
    with answering(200, "[]", certificate=certificate) as address:
        problem, remedy = refusal(BrokerUnavailable, f"{address}/?cacertfile={certificate}")
    assert "Hostname mismatch" in problem
    assert remedy.startswith("Use a host name that its certificate is valid for")


def test_a_ca_file_that_is_not_there_is_named(certificate: Path) -> None:
    problem, remedy = refusal(
        ConfigurationError, "https://localhost:15671/?cacertfile=/not/there.pem"
    )
    assert (
        problem
        == "the cacertfile '/not/there.pem' of the URL can't be read: No such file or directory"
    )
    assert remedy == "Check the path and who may read it."


def test_an_option_that_is_none_is_refused() -> None:
    problem, remedy = refusal(ConfigurationError, "https://localhost:15671/?cafile=/etc/ca.pem")
    assert "'cafile'" in problem
    assert remedy == "Known are cacertfile, certfile, keyfile, verify."


def test_https_where_http_is_spoken_is_no_question_of_the_plugin() -> None:
    with answering(200, "[]") as address:
        problem, remedy = refusal(BrokerUnavailable, address.replace("http:", "https:"))
    assert "what answers there does not speak TLS" in problem
    assert remedy.startswith("Check that this port is for https")


@pytest.mark.parametrize(
    "content", [b"\x15\x03\x01\x00\x02\x02\x0a", b"AMQP\x00\x00\x09\x01"], ids=["TLS", "AMQP"]
)
def test_http_where_something_else_is_spoken_is_no_question_of_the_plugin(content: bytes) -> None:
    with saying(content) as address:
        problem, remedy = refusal(BrokerUnavailable, address)
    assert "the server there does not speak HTTP" in problem
    assert "https://" in remedy


def test_a_request_whose_connection_ends_without_an_answer_is_sent_again() -> None:
    none = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    with (
        CannedServer(none, listens=True) as port,
        ManagementAPI(BROKER, f"http://localhost:{port}") as api,
    ):
        assert [api.queue_names() for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_user_is_named_with_the_rights_it_needs(status: int) -> None:
    with answering(
        status, json.dumps({"error": "not_authorised", "reason": "Not management user"})
    ) as address:
        problem, remedy = refusal(PermissionDenied, address)
    assert (
        problem == f"the management API at {address} refused the user 'shop' (Not management user)."
    )
    assert "set_user_tags" in remedy
    assert "'orders'" in remedy


def test_a_server_that_does_not_answer_is_not_waited_for_and_is_said_to_be_late() -> None:
    with silent() as address:
        problem, remedy = refusal(BrokerUnavailable, address, timeout=0.3)
    assert (
        problem
        == f"RabbitMQ at {address} can't be used: its management API did not answer in 0.3 s."
    )
    assert remedy.startswith("Try again when the broker is less busy")


def test_a_server_that_takes_no_connection_is_said_not_to_be_reached() -> None:
    with silent() as address:  # it never answers the handshake either
        problem, remedy = refusal(
            BrokerUnavailable, address.replace("http:", "https:"), timeout=0.3
        )
    assert "its management API was not reached in 0.3 s" in problem
    assert "firewall" in remedy


def test_a_closed_port_is_said_with_how_to_enable_the_plugin() -> None:
    with silent() as address:
        pass
    problem, remedy = refusal(BrokerUnavailable, address)
    assert "its management API does not answer" in problem
    assert "rabbitmq-plugins enable rabbitmq_management" in remedy


def test_what_the_api_does_not_know_is_named() -> None:
    with answering(
        404, json.dumps({"error": "Object Not Found", "reason": "Not Found"})
    ) as address:
        problem, remedy = refusal(ConfigurationError, address)
    assert problem == f"the management API at {address} did not find /api/queues/orders"
    assert remedy == "Check the name and the virtual host."


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(404, "<h1>Not Found</h1>", "text/html", id="another server's 404"),
        pytest.param(200, "<h1>Welcome</h1>", "text/html", id="a web page"),
        pytest.param(302, "", "text/html", id="a redirection"),
        pytest.param(200, "<h1>Welcome</h1>", "application/json", id="what only claims to be JSON"),
    ],
)
def test_what_is_no_management_api_is_said_so(status: int, body: str, kind: str) -> None:
    with answering(status, body, kind) as address:
        problem, remedy = refusal(BrokerUnavailable, address)
    assert "the server there is not a management API" in problem
    assert "--management-url" in remedy


def test_a_failing_api_is_said_in_its_own_words() -> None:
    with answering(
        500, json.dumps({"error": "Internal Server Error", "reason": "a node is down"})
    ) as address:
        problem, remedy = refusal(BrokerUnavailable, address)
    assert "its management API failed with 500 (a node is down)" in problem
    assert "log" in remedy


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("localhost:15672", "Give one such as http://localhost:15672"),
        (f"shop:{SECRET}@localhost:15672", "Give one such as http://localhost:15672"),
        ("http://", "Give one such as http://localhost:15672"),
        (f"http://shop:{SECRET[:4]}?{SECRET}@h", "Percent-encode"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(address: str, advice: str) -> None:
    problem, remedy = refusal(ConfigurationError, address)
    assert problem.startswith("the management address ")
    assert SECRET[:4] not in problem
    assert remedy.startswith(advice)


def test_an_ipv6_broker_has_its_api_at_the_same_address() -> None:
    with ManagementAPI(f"amqp://shop:{SECRET}@[::1]/orders") as management:
        assert management.address == "http://[::1]:15672"


def test_a_ca_that_was_renewed_is_believed_when_it_is_asked_again(
    certificate: Path, tmp_path: Path
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(certificate_for(tmp_path, "another").read_bytes())
    with (
        answering(200, json.dumps(QUEUES), certificate=certificate) as address,
        ManagementAPI(BROKER, f"{address}/?cacertfile={trusted}") as management,
    ):
        with pytest.raises(BrokerUnavailable, match="its certificate is not trusted"):
            management.queue_names()
        trusted.write_bytes(certificate.read_bytes())
        assert management.queue_names() == ["a", "b"]


def test_an_option_of_tls_without_tls_is_refused() -> None:
    problem, remedy = refusal(ConfigurationError, "http://localhost:15672/?cacertfile=/etc/ca.pem")
    assert problem == "the management address has cacertfile, and http:// is not encrypted"
    assert remedy == "Begin it with https://."


def test_a_login_by_certificate_is_said_to_be_none_for_the_management_api(
    certificate: Path,
) -> None:
    options = (
        f"auth_mechanism=external&certfile={certificate}&keyfile={certificate.with_suffix('.key')}"
    )
    with (
        answering(401, '{"error": "not_authorised"}') as address,
        pytest.raises(PermissionDenied) as told,
    ):
        names(address, broker=f"amqps://localhost/?{options}")
    assert "wants a user and a password, but the URL logs in by certificate" in str(told.value)
    assert "--management-url" in told.value.remedy


def test_the_management_address_may_have_a_login_of_its_own() -> None:
    with answering(403, "{}") as address:
        own = address.replace("http://", f"http://ops%40team:{SECRET}@")
        problem, _ = refusal(PermissionDenied, own)
    assert "refused the user 'ops@team'" in problem


def test_a_management_api_without_tls_beside_a_broker_with_it_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with answering(200, json.dumps(QUEUES)) as address:
        names(address, broker=f"amqps://shop:{SECRET}@localhost/orders")
    assert f"{address}: requests to the management API are not encrypted" in caplog.text
    assert SECRET not in caplog.text


# --- the hosts of a cluster -----------------------------------------------------------------------


def test_of_several_hosts_the_first_that_answers_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, json.dumps(QUEUES)) as there:
        port = int(there.rpartition(":")[2])
        monkeypatch.setattr("redrive.pubsub.admin.management_api._PORTS", {False: port})
        # Nothing listens at this port of another loopback address.
        with ManagementAPI("amqp://127.0.0.9,127.0.0.1/") as management:
            assert management.queue_names() == ["a", "b"]
            assert management.address == f"http://127.0.0.1:{port}"


def test_where_no_host_answers_the_last_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.pubsub.admin.management_api._PORTS", {False: 1})
    with (
        ManagementAPI("amqp://127.0.0.9,127.0.0.8/") as management,
        pytest.raises(BrokerUnavailable, match="does not answer"),
    ):
        management.queue_names()


# --- what is not told -----------------------------------------------------------------------------


def test_statistics_that_are_off_are_said_to_be_and_not_taken_for_another_server() -> None:
    said = "Stats in management UI are disabled on this node"
    body = json.dumps({"error": "bad_request", "reason": said})
    with (
        answering(400, body) as address,
        ManagementAPI(BROKER, address) as management,
        pytest.raises(BrokerUnavailable, match=said) as refused,
    ):
        management.listed("consumers/{vhost}")
    assert "management.disable_stats" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_what_a_queue_was_not_counted_for_is_not_known() -> None:
    body = json.dumps([{"name": "a"}])
    with answering(200, body) as address, ManagementAPI(BROKER, address) as management:
        (count,) = management.counts().values()
        assert management.dead_lettering() == {}
    assert (count.ready, count.held, count.consumers, count.total) == (None, None, None, None)
    assert (count.dead_lettering, count.held_back) == (None, None)


def test_what_only_some_queues_have_is_none_of_a_queue_that_was_counted() -> None:
    told = {"name": "a", "messages": 3, "messages_ready": 3, "messages_unacknowledged": 0}
    body = json.dumps([told])
    with answering(200, body) as address, ManagementAPI(BROKER, address) as management:
        assert management.counts()["a"].total == 3
        assert management.dead_lettering() == {"a": 0}


def test_messages_that_were_not_counted_are_unknown() -> None:
    with answering(200, "{}") as address, ManagementAPI(BROKER, address) as management:
        assert management.message_count("a") is None


def test_an_answer_that_lacks_what_has_to_be_there_is_an_error() -> None:
    with (
        answering(200, "[{}]") as address,
        ManagementAPI(BROKER, address) as management,
        pytest.raises(BrokerUnavailable, match="an object has no 'name'"),
    ):
        management.counts()
