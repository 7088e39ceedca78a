"""People log in with a user of the broker's: who is let in, until when, and what they may see and
do then, by whichever address they try it."""

import contextlib
import html
import logging
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest

from contract.administration import Administration
from contract.support import Service, retrying
from redrive import FailedQueue
from redrive.topology.doctor.act_rights import (
    OperatorAct,
    rights_needed,
    rights_wanted,
)
from redrive.topology.doctor.permissions import VERBS, Right, granted_pattern
from redrive.topology.names import ExchangeFamily
from redrive.web.auth import login_page
from redrive.web.auth.access_config import AccessConfig, Login, networks_of
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens
from web.test_entrance import ACTS, PAGES

pytestmark = pytest.mark.versions("what the management API says of users and rights")

PASSWORD = "p@ss/wörd?#&"
OWN = {"sec-fetch-site": "same-origin"}
EVERY = (Permit.REQUEUE, Permit.EDIT, Permit.DISCARD)

HasRights = Callable[..., str]
"""Makes a user with the rights of some acts on the queue; returns the name."""


@pytest.fixture
def administration(rabbitmq_url: str, rabbitmq_management_url: str) -> Administration:
    return Administration(rabbitmq_management_url, rabbitmq_url)


@pytest.fixture
def user_with(administration: Administration) -> Iterator[HasRights]:
    with contextlib.ExitStack() as held:

        def made(*acts: OperatorAct, name: str = "operator", tags: str = "management") -> str:
            rights: list[Right] = []
            for act in acts:
                rights += rights_wanted(act, QUEUE, ExchangeFamily(), literal=False)
            patterns = {verb: granted_pattern(rights, verb) for verb in VERBS}
            user = administration.unique(name)
            held.enter_context(administration.user(user, password=PASSWORD, tags=tags, **patterns))
            return user

        yield made


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that everybody has to log in to."""
    return opens(*EVERY, access=AccessConfig(login=Login.BROKER))


def log_in(
    console: OpenConsole, user: str, password: str = PASSWORD, **more: str
) -> httpx.Response:
    return console.client.post(
        "/login", data={"user": user, "password": password, **more}, headers=OWN
    )


def look(console: OpenConsole, user: str) -> None:
    """Logs in, looks at the queue, and waits for its end."""
    assert log_in(console, user).status_code == 303
    assert console.post("/look", queue=QUEUE).status_code == 303
    wait_until(
        lambda: console.get("/progress/look", queue=QUEUE).json()["ended"], "the look has ended"
    )


def test_who_has_a_user_and_its_password_comes_in_to_the_page_that_was_asked_for(
    console: OpenConsole, user_with: HasRights
) -> None:
    user = user_with(OperatorAct.LOOK)
    asked = console.get("/causes", queue=QUEUE)
    assert asked.status_code == 303
    page = console.client.get(asked.headers["location"])
    assert "Log in with your RabbitMQ user" in page.text
    back = html.unescape(re.findall(r'name="next" value="([^"]*)"', page.text)[0])
    answer = log_in(console, user, next=back)
    assert answer.headers["location"] == "/causes?queue=shop%40orders"
    overview = console.get("/").text
    assert user in overview
    assert "Log out" in overview


@pytest.mark.parametrize("path", PAGES)
def test_who_has_not_logged_in_sees_the_login_and_no_page(console: OpenConsole, path: str) -> None:
    answer = console.client.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login")
    assert console.client.get(path, headers={"sec-fetch-mode": "cors"}).status_code == 401


@pytest.mark.parametrize("path", [*ACTS, "/discard/begin", "/logout"])
def test_who_has_not_logged_in_does_nothing(console: OpenConsole, path: str) -> None:
    assert console.post(path, queue=QUEUE, id="x").status_code == 401


def test_no_link_lets_in_where_people_log_in(console: OpenConsole) -> None:
    path = console.server.console.new_link()
    answer = console.client.get(path)
    assert "set-cookie" not in answer.headers
    assert console.get("/journal").status_code == 303


def test_a_refusal_does_not_tell_whether_there_is_such_a_user(
    console: OpenConsole, user_with: HasRights
) -> None:
    user = user_with(OperatorAct.LOOK)
    answers = [log_in(console, name, "wrong") for name in (user, "nobody")]
    pages = [one.text.replace(user, "").replace("nobody", "") for one in answers]
    assert pages[0] == pages[1]
    assert {one.status_code for one in answers} == {403}
    assert all("set-cookie" not in one.headers for one in answers)


@pytest.mark.parametrize("password", ["", "x" * 2000, "a\r\nset-cookie: x=y", "\x00"])
def test_no_strange_password_comes_in(
    console: OpenConsole, user_with: HasRights, password: str
) -> None:
    answer = log_in(console, user_with(OperatorAct.LOOK), password)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_who_tries_passwords_waits_and_the_user_comes_in_from_elsewhere(
    opens: Opens, service: Service, user_with: HasRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_page, "time", SimpleNamespace(monotonic=lambda: 0.0))
    access = AccessConfig(login=Login.BROKER, trusted_proxies=networks_of(["127.0.0.1"]))
    console = opens(access=access)
    user = user_with(OperatorAct.LOOK)
    console.client.headers["x-forwarded-for"] = "10.1.1.66"
    for _ in range(5):
        assert log_in(console, user, "wrong").status_code == 403
    waits = log_in(console, user)
    assert waits.status_code == 429
    assert int(waits.headers["retry-after"]) >= 1
    console.client.headers["x-forwarded-for"] = "10.1.1.7"
    assert log_in(console, user).status_code == 303


def test_the_password_is_on_no_page_in_no_cookie_and_in_no_log(
    console: OpenConsole, user_with: HasRights, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        user = user_with(OperatorAct.LOOK, OperatorAct.REQUEUE)
        log_in(console, user, f"{PASSWORD}-wrong")
        look(console, user)
        pages = [console.get(path) for path in ("/", "/me", "/journal", f"/plan?queue={QUEUE}")]
    for text in (
        *(html.unescape(page.text) for page in pages),
        str(console.client.cookies),
        caplog.text,
        repr(console.server.console.session_users.own.context.settings),
        *(repr(context.settings) for context in console.server.console.session_users.contexts()),
    ):
        assert PASSWORD not in text
        assert "p%40ss" not in text


def test_a_session_that_a_stranger_has_planted_is_none_after_the_login(
    console: OpenConsole, user_with: HasRights
) -> None:
    cookie = console.server.console.cookie
    console.client.cookies.set(cookie, "planted", domain="127.0.0.1", path="/")
    assert log_in(console, user_with(OperatorAct.LOOK)).status_code == 303
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as stranger:
        answer = stranger.get("/journal", headers={"cookie": f"{cookie}=planted"})
    assert answer.status_code == 303


def test_each_login_has_a_session_of_its_own_and_ends_the_one_before(
    console: OpenConsole, user_with: HasRights
) -> None:
    user, cookie = user_with(OperatorAct.LOOK), console.server.console.cookie
    log_in(console, user)
    first = console.client.cookies[cookie]
    log_in(console, user)
    assert console.client.cookies[cookie] != first
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as other:
        assert other.get("/me", headers={"cookie": f"{cookie}={first}"}).status_code == 303


def test_a_logout_ends_the_session_at_the_console_and_not_in_the_browser_alone(
    console: OpenConsole, user_with: HasRights
) -> None:
    log_in(console, user_with(OperatorAct.LOOK))
    cookie = console.server.console.cookie
    token = console.client.cookies[cookie]
    assert console.get("/me").status_code == 200
    assert console.post("/logout").headers["location"] == "/login"
    answer = console.client.get("/me", headers={"cookie": f"{cookie}={token}"})
    assert answer.status_code == 303
    assert [
        context.session_user for context in console.server.console.session_users.contexts()
    ] == [""]


def test_another_sites_page_logs_nobody_in_or_out(
    console: OpenConsole, user_with: HasRights
) -> None:
    user = user_with(OperatorAct.LOOK)
    data = {"user": user, "password": PASSWORD}
    crossed = {"sec-fetch-site": "cross-site"}
    assert console.client.post("/login", data=data, headers=crossed).status_code == 403
    log_in(console, user)
    assert console.client.post("/logout", headers=crossed).status_code == 403
    assert console.get("/me").status_code == 200


def test_a_session_that_nobody_uses_ends(
    opens: Opens, service: Service, user_with: HasRights
) -> None:
    access = AccessConfig(login=Login.BROKER, idle_time=timedelta(seconds=2))
    console = opens(access=access)
    assert log_in(console, user_with(OperatorAct.LOOK)).status_code == 303
    poll = {"sec-fetch-mode": "cors"}
    wait_until(
        lambda: console.client.get("/progress/job?id=x", headers=poll).status_code == 401,
        "the session has ended, though its page goes on asking",
    )
    assert console.get("/me").status_code == 303


def test_who_may_not_read_a_queue_sees_nothing_that_another_has_found_in_it(
    console: OpenConsole, user_with: HasRights
) -> None:
    look(console, user_with(OperatorAct.LOOK))
    assert "KeyError" in console.get("/causes", queue=QUEUE).text
    console.post("/logout")
    log_in(console, user_with(name="stranger"))
    for path in ("/causes", "/cause", "/message", "/body", "/plan", "/discard", "/query"):
        answer = console.get(path, queue=QUEUE, id="sku-1", sql="select body from failed")
        assert answer.status_code == 403, path
        assert "KeyError" not in answer.text
    wait_until(lambda: QUEUE in console.get("/").text, "the broker counts them")
    assert "KeyError" not in console.get("/").text


def test_who_may_read_a_queue_and_nothing_else_sees_each_page_and_that_nothing_is_followed(
    console: OpenConsole, administration: Administration
) -> None:
    read = rights_needed(OperatorAct.LOOK, QUEUE, ExchangeFamily(), literal=False)
    patterns = {verb: granted_pattern(read, verb) for verb in VERBS}
    user = administration.unique("reader")
    with administration.user(user, password=PASSWORD, tags="management", **patterns):
        look(console, user)
        for path in ("/", "/me", "/journal", "/query"):
            assert console.get(path).status_code == 200, path
        for path in ("/causes", "/message", "/edit", "/plan", "/discard"):
            answer = console.get(path, queue=QUEUE, id="sku-1")
            assert answer.status_code == 200, path
            assert "New failures do not appear automatically" in answer.text, path
        assert console.get("/live", queue=QUEUE).status_code in (200, 204)


@pytest.mark.parametrize("path", ["/look", "/begin", "/discard/begin"])
def test_a_user_without_rights_does_nothing_by_an_address_either(
    console: OpenConsole, service: Service, user_with: HasRights, path: str
) -> None:
    log_in(console, user_with())
    form = {"planned": str(LOOKUP + SLOW), "typed": str(LOOKUP + SLOW), "reason": "why not"}
    answer = console.post(path, queue=QUEUE, **form)
    assert answer.status_code == 403
    assert "the broker does not grant it" in answer.text
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


def test_who_may_only_look_is_offered_no_act_and_does_none(
    console: OpenConsole, service: Service, user_with: HasRights
) -> None:
    look(console, user_with(OperatorAct.LOOK))
    page = console.get("/plan", queue=QUEUE).text
    assert "Start the canary" not in page
    assert "You lack rights at the broker" in page
    form = {"planned": str(LOOKUP + SLOW), "reason": "why not", "canary": "0"}
    assert console.post("/begin", queue=QUEUE, **form).status_code == 403
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


def test_a_job_is_done_as_the_user_and_the_journal_has_the_name(
    console: OpenConsole, service: Service, user_with: HasRights
) -> None:
    user = user_with(OperatorAct.REQUEUE)
    look(console, user)
    form = {"planned": str(LOOKUP + SLOW), "reason": "fixed", "canary": "0", "stop_at": "100"}
    begun = console.post("/begin", queue=QUEUE, **form)
    assert begun.status_code == 303, begun.text
    id_ = begun.headers["location"].rpartition("=")[2]
    wait_until(lambda: console.get("/progress/job", id=id_).json()["ended"], "the job has ended")
    assert FailedQueue(service.url, QUEUE).depth() == 0
    assert f"as {user}" in console.get("/job", id=id_).text
    # Who may not read the queue does not see what was done with it.
    console.post("/logout")
    log_in(console, user_with(name="stranger"))
    assert id_[:8] not in console.get("/journal").text
    for path in ("/stop", "/resume", "/outcome"):
        assert console.post(path, id=id_).status_code in (400, 403)
    assert console.get("/job", id=id_).status_code == 403


def test_a_discard_writes_a_file_first_and_the_journal_has_it(
    console: OpenConsole, service: Service, user_with: HasRights
) -> None:
    look(console, user_with(OperatorAct.DISCARD))
    asked = {"queue": QUEUE, "where": "error_type = 'TimeoutError'"}
    assert f"Type {SLOW} to confirm" in console.get("/discard", **asked).text
    assert console.post("/discard/begin", **asked, reason="x", typed="4").status_code == 400
    done = console.post("/discard/begin", **asked, reason="too old", typed=str(SLOW))
    assert done.status_code == 303, done.text
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP
    assert "too old" in console.client.get(done.headers["location"]).text


def test_what_a_console_does_not_allow_is_not_done_by_whom_the_broker_lets(
    opens: Opens, service: Service, user_with: HasRights
) -> None:
    console = opens(Permit.REQUEUE, access=AccessConfig(login=Login.BROKER))
    look(console, user_with(OperatorAct.REQUEUE, OperatorAct.DISCARD))
    answer = console.post("/discard/begin", queue=QUEUE, reason="x", typed=str(LOOKUP + SLOW))
    assert answer.status_code == 400
    assert "--allow discard,requeue" in html.unescape(answer.text)
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + SLOW


def test_the_page_me_has_what_is_missing_and_a_command_that_grants_it(
    console: OpenConsole, administration: Administration, user_with: HasRights
) -> None:
    user = user_with(OperatorAct.LOOK)
    log_in(console, user)
    page = html.unescape(console.get("/me", queue=QUEUE).text)
    assert "requeue lacks" in page
    words = shlex.split(re.findall(r"<code[^>]*>(rabbitmqctl [^<]*)</code>", page)[0])
    assert words[:2] == ["rabbitmqctl", "set_permissions"]
    assert words[words.index("-p") + 1] == administration.virtual_host
    assert words[-4] == user
    patterns = dict(zip(VERBS, words[-3:], strict=True))
    other = administration.unique("granted")
    with administration.user(other, password=PASSWORD, tags="management", **patterns):
        console.post("/logout")
        log_in(console, other)
        page = html.unescape(console.get("/me", queue=QUEUE).text)
    assert "lacks" not in page
    assert page.count("<td>yes</td>") == len(OperatorAct) - 1
    assert page.count("granted, but not allowed by this console") == 1  # to pause


def test_who_is_deleted_at_the_broker_is_out_once_rights_are_asked_for_again(
    console: OpenConsole, administration: Administration
) -> None:
    user = administration.unique("gone")
    with administration.user(user, password=PASSWORD, tags="management"):
        log_in(console, user)
    assert console.get("/causes", queue=QUEUE).headers["location"] == "/login"
    assert console.get("/journal").headers["location"].startswith("/login")


def test_the_user_guest_comes_in_on_this_machine_alone(opens: Opens) -> None:
    access = AccessConfig(login=Login.BROKER, trusted_proxies=networks_of(["127.0.0.1"]))
    answer = log_in(opens(access=access), "guest", "guest")
    assert answer.status_code == 403
    assert "on the broker" in answer.text


def test_all_queues_that_a_user_may_look_at_are_looked_at_whatever_others_there_are(
    console: OpenConsole, rabbitmq_url: str, user_with: HasRights
) -> None:
    other = Service(rabbitmq_url, queue="a@fuller", retry=retrying(0))
    other.set_aside(LOOKUP + SLOW + 1)
    wait_until(
        lambda: (
            len(
                [
                    line
                    for line in console.server.console.context.queue_states.counts()
                    if line.failed
                ]
            )
            == 2
        ),
        "the broker counts them",
    )
    log_in(console, user_with(OperatorAct.LOOK))
    assert console.post("/look-at-all").status_code == 303
    wait_until(
        lambda: console.get("/causes", queue=QUEUE).status_code == 200, "its own queue is looked at"
    )
    assert console.get("/causes", queue="a@fuller").status_code == 403
