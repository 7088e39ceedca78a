"""Each act by its address, whoever tries it: the addresses are those that the router has, so that
none is forgotten."""

from collections import Counter
from typing import Any

import httpx
import pytest

from contract.support import Service
from redrive import FailedQueue
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.auth.middleware import ENTRY, LOGIN, LOGOUT
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens
from web.test_acting import begun, wait_for_end
from web.test_login import HasRights, administration, log_in, user_with

__all__ = ["administration", "user_with"]

ALL = LOOKUP + SLOW
OWN = {"sec-fetch-site": "same-origin"}
READS = frozenset({"/look", "/look-at-all", "/outcome", "/edit/compare", "/rehearsed"})
"""What is posted and changes nothing: a look, and what was typed beside what is there."""


def posts(console: OpenConsole) -> list[str]:
    """All that is posted to, but the login."""
    found = [one.path for one in console.server.console.routes if "POST" in (one.methods or ())]
    return sorted(set(found) - {LOGIN, LOGOUT})


def pages(console: OpenConsole) -> list[str]:
    """All that is read."""
    found = [one.path for one in console.server.console.routes if "GET" in (one.methods or ())]
    return sorted(set(found) - {LOGIN, ENTRY})


def form(id_: str = "x") -> dict[str, str]:
    """A form that any of the acts would take."""
    return {
        "queue": QUEUE,
        "id": id_,
        "planned": str(ALL),
        "typed": str(ALL),
        "reason": "why not",
        "canary": "0",
        "body": "{}",
        "kind": "state",
        "state": "muted",
        "group": "0123456789ab",
        "words": "x",
        "note": "nothing to see",
        "name": "a.parquet",
    }


def untouched(console: OpenConsole, service: Service) -> None:
    """Checks that nothing has gone, and nothing was said."""
    assert FailedQueue(service.url, QUEUE).depth() == ALL
    with console.server.console.context.worker.journal() as journal:
        assert [job for job in journal.jobs(50) if job.reason == "why not"] == []
        assert not journal.causes().remarks


def answers(client: httpx.Client, paths: list[str], **sent: Any) -> Counter[int]:
    assert paths
    return Counter(client.post(path, **sent).status_code for path in paths)


def test_a_user_without_rights_does_nothing_by_any_address(
    opens: Opens, service: Service, user_with: HasRights
) -> None:
    console = opens(*Permit, access=AccessConfig(login=Login.BROKER))
    log_in(console, user_with())
    for path in posts(console):
        assert console.post(path, **form()).status_code in (400, 403), path
    assert console.post("/look-at-all").status_code == 303
    assert console.post("/remark", **form()).status_code == 403
    assert all(
        context.looks.look_under_way(line.place) is None
        for context in console.server.console.session_users.contexts()
        for line in context.queue_states.counts()
    )
    untouched(console, service)


def test_a_user_without_rights_does_nothing_with_a_job_of_somebody_elses(
    opens: Opens, service: Service, user_with: HasRights
) -> None:
    own = opens(Permit.REQUEUE)
    own.look()
    id_ = begun(own, planned=str(ALL), reason="fixed", canary="0", stop_at="100")
    wait_for_end(own, id_)
    console = opens(*Permit, access=AccessConfig(login=Login.BROKER))
    log_in(console, user_with())
    for path in ("/stop", "/resume", "/approve", "/decline", "/outcome"):
        assert console.post(path, **form(id_)).status_code in (400, 403), path
    for path in ("/job", "/proof"):
        assert console.get(path, id=id_).status_code == 403


def test_a_console_that_only_reads_changes_nothing_by_any_address(
    opens: Opens, service: Service
) -> None:
    console = opens()
    console.look()
    for path in posts(console):
        answer = console.post(path, **form())
        assert path in READS or answer.status_code == 400, path
        assert path in READS or "Start it with --allow" in answer.text, path
    looks = console.server.console.context.looks
    wait_until(lambda: not looks.is_looking, "the looks that were asked for have ended")
    untouched(console, service)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
@pytest.mark.parametrize("login", [Login.LINK, Login.BROKER])
def test_what_another_sites_page_sends_is_refused_at_any_address(
    opens: Opens, login: Login, headers: dict[str, str]
) -> None:
    console = opens(*Permit, access=AccessConfig(login=login))
    paths = posts(console) + ([LOGIN, LOGOUT] if login is Login.BROKER else [])
    assert set(answers(console.client, paths, data=form(), headers=headers)) == {403}


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "localhost"])
def test_no_address_answers_to_another_name_for_this_machine(opens: Opens, host: str) -> None:
    console = opens(*Permit)
    sent = {**OWN, "host": host}
    assert set(answers(console.client, posts(console), data=form(), headers=sent)) == {421}
    for path in pages(console):
        assert console.client.get(path, headers={"host": host}).status_code == 421


def test_who_was_not_let_in_gets_nothing_at_any_address(opens: Opens) -> None:
    console = opens(*Permit)
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as stranger:
        assert set(answers(stranger, posts(console), data=form(), headers=OWN)) == {403}
        for path in pages(console):
            assert stranger.get(path).status_code == 403, path


def test_whoever_uses_a_link_a_second_time_gets_nothing_at_any_address(opens: Opens) -> None:
    console = opens(*Permit)
    link = console.server.new_link()
    with httpx.Client(trust_env=False, timeout=60) as first:
        assert first.get(link).status_code == 303
    with httpx.Client(base_url=console.address, trust_env=False, timeout=60) as thief:
        assert thief.get(link).status_code == 403
        assert set(answers(thief, posts(console), data=form(), headers=OWN)) == {403}
        for path in pages(console):
            assert thief.get(path).status_code == 403, path
