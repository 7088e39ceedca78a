"""Who is let in, from where, and what a browser is told: what a stranger, a stranger's page and a
thief of the link get."""

import re
from collections.abc import Iterator
from itertools import product

import httpx
import pytest

from redrive.web.console_settings import Permit
from web.conftest import QUEUE, OpenConsole, Opens

PAGES = (
    "/",
    "/causes?queue=x",
    "/cause?queue=x",
    "/message?queue=x",
    "/body?queue=x",
    "/query",
    "/plan?queue=x",
    "/job?id=x",
    "/journal",
    "/progress/look?queue=x",
    "/progress/job?id=x",
)
ACTS = ("/look", "/look-at-all", "/begin", "/stop", "/resume", "/outcome")


@pytest.fixture
def console(opens: Opens) -> OpenConsole:
    return opens(Permit.REQUEUE)


@pytest.fixture
def stranger(console: OpenConsole) -> Iterator[httpx.Client]:
    """Somebody who was not let in."""
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.parametrize("path", PAGES)
def test_who_was_not_let_in_sees_no_page(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert "this browser is not signed in" in answer.text


@pytest.mark.parametrize("path", ACTS)
def test_who_was_not_let_in_does_nothing(stranger: httpx.Client, path: str) -> None:
    headers = {"sec-fetch-site": "same-origin"}
    assert stranger.post(path, data={"queue": QUEUE}, headers=headers).status_code == 403


def test_a_link_lets_in_one_browser_once(console: OpenConsole, stranger: httpx.Client) -> None:
    link = console.server.new_link()
    assert stranger.get(link).status_code == 303
    assert stranger.get("/journal").status_code == 200
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as thief:
        answer = thief.get(link)
        assert answer.status_code == 403
        assert "already used" in answer.text
        assert "set-cookie" not in answer.headers
        assert thief.get("/journal").status_code == 403


def test_a_new_link_takes_the_place_of_the_former_one(
    console: OpenConsole, stranger: httpx.Client
) -> None:
    former = console.server.new_link()
    console.server.new_link()
    assert stranger.get(former).status_code == 403


@pytest.mark.parametrize("token", ["", "x", "x" * 5000, "%00", "%ff"])
def test_a_made_up_link_is_refused(stranger: httpx.Client, token: str) -> None:
    assert stranger.get(f"/open?token={token}").status_code == 403


def test_a_session_is_a_cookie_that_no_script_and_no_other_site_uses(
    console: OpenConsole, stranger: httpx.Client
) -> None:
    cookie = stranger.get(console.server.new_link()).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie


@pytest.mark.parametrize("cookie", ["x", "", '"', "a=b; c", "x" * 8000])
def test_a_made_up_session_is_none(
    console: OpenConsole, stranger: httpx.Client, cookie: str
) -> None:
    name = console.server.console.cookie
    assert stranger.get("/", headers={"cookie": f"{name}={cookie}"}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_name_for_this_machine_is_not_answered(console: OpenConsole, host: str) -> None:
    answer = console.client.get("/", headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "What is failing" not in answer.text


def test_what_another_sites_page_sends_does_nothing(console: OpenConsole) -> None:
    headers: tuple[dict[str, str], ...] = (
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "cross-site", "origin": console.address},
    )
    for path, sent in product(ACTS, headers):
        answer = console.client.post(path, data={"queue": QUEUE}, headers=sent)
        assert answer.status_code == 403, (path, sent)
        assert "did not come from the console" in answer.text


def test_an_older_browser_says_with_its_origin_that_a_form_is_the_consoles_own(
    console: OpenConsole,
) -> None:
    answer = console.client.post("/stop", data={"id": "x"}, headers={"origin": console.address})
    assert answer.status_code == 400
    assert "there is no job" in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_no_other_method_is_understood(console: OpenConsole, method: str) -> None:
    assert console.client.request(method, "/journal").status_code == 405


@pytest.mark.parametrize("path", ACTS)
def test_no_act_is_an_address_that_a_link_can_lead_to(console: OpenConsole, path: str) -> None:
    assert console.client.get(path).status_code in (404, 405)


@pytest.mark.parametrize(
    "path", ["/", "/no-such-page", "/open", "/static/console.css", "/job?id=x"]
)
def test_every_answer_tells_the_browser_what_it_may_not_do(console: OpenConsole, path: str) -> None:
    headers = console.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*|data:", policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize(
    "path", ["/static/../console.py", "/static/%2e%2e/console.py", "/static//etc/passwd"]
)
def test_no_other_file_of_the_machine_is_given(console: OpenConsole, path: str) -> None:
    assert console.client.get(path).status_code == 404


def test_a_form_that_is_too_large_is_refused(console: OpenConsole) -> None:
    answer = console.post("/look", queue="x" * 300_000)
    assert answer.status_code == 400
    assert "too large" in answer.text


@pytest.mark.parametrize("path", ["/begin", "/stop", "/resume"])
def test_a_console_that_only_reads_does_nothing_by_its_address_either(
    opens: Opens, path: str
) -> None:
    answer = opens().post(path, queue=QUEUE, id="x", reason="why not", planned="1")
    assert answer.status_code == 400
    assert "this console is read-only" in answer.text


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_no_form_leads_off_the_console(console: OpenConsole, back: str) -> None:
    answer = console.post("/look", queue="no-such-queue", back=back)
    assert answer.headers["location"] == "/"
