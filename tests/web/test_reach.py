"""A console over TLS, behind a proxy, and for whoever watches over its process: what is believed of
whom, and what a stranger gets."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import trustme

from contract.support import Service
from redrive.web import timeout_protocol
from redrive.web.auth.access_config import AccessConfig, Login, networks_of
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import QUEUE, OpenConsole, Opens

PROXIES = networks_of(["127.0.0.1"])
OTHERS = networks_of(["10.9.9.9"])
HEADER = "x-forwarded-user"


@pytest.fixture
def certified(tmp_path: Path) -> tuple[AccessConfig, ssl.SSLContext]:
    """How a console with a certificate is reached, and what trusts that."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    for file, blob in (
        ("cert.pem", certificate.cert_chain_pems[0]),
        ("key.pem", certificate.private_key_pem),
    ):
        blob.write_to_path(tmp_path / file)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return AccessConfig(certfile=tmp_path / "cert.pem", keyfile=tmp_path / "key.pem"), context


@pytest.fixture
def behind(opens: Opens) -> OpenConsole:
    """A console behind a proxy that says who somebody is."""
    access = AccessConfig(
        login=Login.PROXY,
        trusted_proxies=PROXIES,
        trust_header=HEADER,
        hosts=("console.example",),
    )
    return opens(Permit.REQUEUE, access=access)


def test_over_tls_the_session_is_a_cookie_that_never_goes_unencrypted(
    opens: Opens, certified: tuple[AccessConfig, ssl.SSLContext]
) -> None:
    access, context = certified
    console = opens(access=access)
    assert console.address.startswith("https://")
    with httpx.Client(
        base_url=console.address, trust_env=False, verify=context, timeout=60
    ) as client:
        answer = client.get(console.server.new_link())
        assert answer.headers["set-cookie"].startswith("__Host-redrive-")
        assert "secure" in answer.headers["set-cookie"].lower()
        assert client.get("/journal").status_code == 200
        # To tell a browser so of this machine would be told of its other services, too.
        assert "strict-transport-security" not in answer.headers
    plain = console.address.replace("https", "http")
    with pytest.raises(httpx.HTTPError):
        httpx.get(plain, trust_env=False, timeout=60)


def test_a_browser_is_told_to_come_encrypted_to_a_host_with_a_name(
    opens: Opens, certified: tuple[AccessConfig, ssl.SSLContext]
) -> None:
    access, context = certified
    console = opens(access=replace(access, hosts=("console.example",)))
    with httpx.Client(
        base_url=console.address, trust_env=False, verify=context, timeout=60
    ) as client:
        answer = client.get("/me", headers={"host": "console.example"})
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


def test_who_comes_by_the_proxy_is_who_it_says_and_stands_so_in_the_journal(
    behind: OpenConsole, service: Service
) -> None:
    behind.client.headers.encoding = "utf-8"
    alice = httpx.Headers({HEADER: "älice"}, encoding="utf-8")
    page = behind.client.get("/me", headers=alice)
    assert page.status_code == 200
    assert "älice" in page.text
    own = httpx.Headers({HEADER: "älice", "sec-fetch-site": "same-origin"}, encoding="utf-8")
    assert behind.client.post("/look", data={"queue": QUEUE}, headers=own).status_code == 303
    asked = f"/progress/look?queue={QUEUE}"
    wait_until(
        lambda: behind.client.get(asked, headers=alice).json()["ended"], "the look has ended"
    )
    form = {"queue": QUEUE, "planned": "17", "reason": "x", "canary": "0", "stop_at": "100"}
    begun = behind.client.post("/begin", data=form, headers=own)
    assert begun.status_code == 303, begun.text
    wait_until(
        lambda: "älice by " in behind.client.get("/journal", headers=alice).text,
        "the journal has who did it",
    )


def test_who_is_named_by_nobody_is_not_let_in(behind: OpenConsole) -> None:
    answer = behind.client.get("/")
    assert answer.status_code == 403
    assert "the proxy did not name a user" in answer.text


def test_who_says_himself_who_he_is_is_not_believed(opens: Opens) -> None:
    access = AccessConfig(login=Login.PROXY, trusted_proxies=OTHERS, trust_header=HEADER)
    answer = opens(access=access).client.get("/", headers={HEADER: "alice"})
    assert answer.status_code == 403
    assert "only the proxy may name the user" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        [(HEADER, "alice"), (HEADER, "bob")],
        [(HEADER, "x" * 300)],
        [(HEADER, "a\tb")],
        [(HEADER, "\xff\xfe")],
        [(HEADER, "alice"), ("x-forwarded-proto", "ftp")],
        [(HEADER, "alice"), ("x-forwarded-host", "console.example"), ("x-forwarded-host", "a")],
    ],
)
def test_a_word_that_can_not_be_is_not_believed(
    behind: OpenConsole, headers: list[tuple[str, str]]
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    assert behind.client.get("/", headers=raw).status_code == 403


def test_the_names_that_the_proxy_is_asked_by_have_to_be_known(behind: OpenConsole) -> None:
    named = {HEADER: "alice", "x-forwarded-host": "console.example"}
    assert behind.client.get("/journal", headers=named).status_code == 200
    other = {HEADER: "alice", "x-forwarded-host": "evil.example"}
    assert behind.client.get("/journal", headers=other).status_code == 421


def test_what_came_encrypted_to_the_proxy_has_a_cookie_that_stays_so(opens: Opens) -> None:
    console = opens(access=AccessConfig(trusted_proxies=PROXIES))
    headers = {"x-forwarded-proto": "https"}
    answer = console.client.get(console.server.new_link(), headers=headers)
    assert "secure" in answer.headers["set-cookie"].lower()


def test_what_somebody_else_says_of_the_way_is_not_believed(opens: Opens) -> None:
    console = opens(access=AccessConfig(trusted_proxies=OTHERS))
    headers = {"x-forwarded-proto": "https", "x-forwarded-host": "evil.example"}
    answer = console.client.get(console.server.new_link(), headers=headers)
    assert answer.status_code == 303
    assert "secure" not in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_is_answered_by_any_name_without_a_session_and_told_nothing(
    opens: Opens, path: str
) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    answer = httpx.get(
        f"{console.address}{path}", headers={"host": "10.2.3.4:8015"}, trust_env=False, timeout=60
    )
    assert (answer.status_code, answer.text) == (200, "ok")
    assert httpx.post(f"{console.address}{path}", trust_env=False, timeout=60).status_code == 405
    console.server.console.close()
    ending = httpx.get(f"{console.address}{path}", trust_env=False, timeout=60)
    assert ending.status_code == (503 if path == "/readyz" else 200)


@contextlib.contextmanager
def connected(console: OpenConsole) -> Iterator[socket.socket]:
    host, _, port = console.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as found:
        yield found


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127"])
def test_who_is_slow_to_ask_is_hung_up_on(
    opens: Opens, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    console = opens()
    monkeypatch.setattr(timeout_protocol, "SECONDS_TO_ASK", 0.3)
    with connected(console) as client:
        client.sendall(sent)
        assert client.recv(1) == b""


def test_a_crowd_that_asks_nothing_keeps_nobody_out(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = opens()
    monkeypatch.setattr(timeout_protocol, "MOST_WAITING", 5)
    with contextlib.ExitStack() as held:
        crowd = [held.enter_context(connected(console)) for _ in range(12)]
        assert crowd[0].recv(1) == b""  # the oldest is the first to be hung up on
        assert console.get("/me").status_code == 200
        crowd[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in crowd[-1].recv(100)


def half_a_form(console: OpenConsole) -> bytes:
    """A form of the login whose body is not all there."""
    host = console.address.removeprefix("http://")
    return (
        f"POST /login HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\n".encode()
        + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nuser"
    )


def test_a_crowd_that_sends_half_a_form_keeps_nobody_out(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    monkeypatch.setattr(timeout_protocol, "MOST_WAITING", 5)
    with contextlib.ExitStack() as held:
        crowd = []
        for _ in range(8):
            crowd.append(held.enter_context(connected(console)))
            crowd[-1].sendall(half_a_form(console))
            assert console.get("/healthz").status_code == 200
        assert [one.recv(1) for one in crowd[:2]] == [b"", b""]


def test_a_second_half_form_on_a_connection_is_not_waited_for_either(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    monkeypatch.setattr("redrive.web.console._LONGEST_FORM", 600.0)
    monkeypatch.setattr(timeout_protocol, "SECONDS_TO_SEND", 0.3)
    with connected(console) as client:
        client.sendall(half_a_form(console))
        client.sendall(b"=none")
        answer = b""
        while not answer.rstrip().endswith(b"</html>"):
            answer += client.recv(4096)
        client.sendall(half_a_form(console))
        while client.recv(4096):
            pass


def test_a_form_that_never_comes_is_not_waited_for(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.web.console._LONGEST_FORM", 0.3)
    console = opens(access=AccessConfig(login=Login.BROKER))
    with connected(console) as client:
        client.sendall(half_a_form(console))
        assert b"400" in client.recv(100)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: {host}\r\nX-A: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nX-A: " + b"a" * 3_000_000 + b"\r\n\r\n",
        b"GET /\r\nset-cookie: x HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
    ids=["a bare CR", "two hosts", "huge headers", "a line break in the path", "two lengths"],
)
def test_a_request_that_is_none_is_refused(opens: Opens, head: bytes) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    host = console.address.removeprefix("http://").encode()
    with connected(console) as client:
        status = b""
        with contextlib.suppress(ConnectionError):  # it hangs up before all was sent
            client.sendall(head.replace(b"{host}", host))
            status = client.recv(12)
        assert not status or status[9:10] == b"4"


def test_no_address_breaks_out_of_a_header(opens: Opens) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    answer = console.client.get("/causes?queue=%0d%0aset-cookie:%20x=y")
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers
