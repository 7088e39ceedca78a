"""The pages of a message: what is next to it, and the edit of its body."""

import json

import httpx
import pytest

from contract.support import Recorder, Service
from redrive import FailedQueue
from redrive.failures.jobs.journal import Journal
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, OpenConsole, Opens, fail, failure


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    console.look()
    return console


def body_of(console: OpenConsole, id_: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(console.get("/body", queue=QUEUE, id=id_).content)
    return found


def edit(console: OpenConsole, id_: str, body: str, **more: str) -> httpx.Response:
    return console.post("/edit/send", queue=QUEUE, id=id_, body=body, **more)


def test_the_messages_next_to_one_are_those_of_its_cause(console: OpenConsole) -> None:
    text = console.get("/message", queue=QUEUE, id="sku-0").text
    assert f"1 of {LOOKUP} with this cause" in text
    assert 'rel="next"' in text
    assert 'rel="prev"' not in text
    last = console.get("/message", queue=QUEUE, id=f"sku-{LOOKUP - 1}").text
    assert f"{LOOKUP} of {LOOKUP} with this cause" in last
    assert 'rel="prev"' in last
    assert 'rel="next"' not in last


def test_headers_have_the_types_that_they_came_with(opens: Opens, service: Service) -> None:
    fail(service, failure("typed", "E", "x", more={"flag": True, "many": 2**40, "part": 1.5}))
    console = opens()
    console.look()
    text = " ".join(console.get("/message", queue=QUEUE, id="typed").text.split())
    for name, type_ in (("flag", "boolean"), ("many", "int64"), ("part", "double")):
        assert f'<code>{name}</code></th><td class="hint">{type_}</td>' in text


def test_an_edit_is_shown_as_a_difference_and_sends_nothing(
    console: OpenConsole, service: Service
) -> None:
    body = json.dumps({**body_of(console, "sku-3"), "country": "DE"}, indent=2)
    answer = console.post("/edit/compare", queue=QUEUE, id="sku-3", body=body)
    assert "<ins>+" in answer.text
    assert "country" in answer.text
    assert FailedQueue(service.url, QUEUE).depth() == LOOKUP + 5


def test_an_edited_message_is_handled_alone_and_the_journal_has_it_as_it_was(
    console: OpenConsole, service: Service
) -> None:
    before = body_of(console, "sku-3")
    body = json.dumps({**before, "country": "DE"}, indent=2).replace("\n", "\r\n")
    handled = Recorder(lambda message: None)
    with service.subscriber(handled):
        answer = edit(console, "sku-3", body, reason="the country was missing")
        assert answer.status_code == 303, answer.text
        handled.wait_for_handled({"sku-3"}, 60)
    id_ = answer.headers["location"].rpartition("=")[2]
    wait_until(lambda: console.get("/progress/job", id=id_).json()["ended"], "it has ended")
    (attempt,) = handled.attempts
    assert attempt.body == json.dumps({**before, "country": "DE"}).encode()
    with Journal(service.url) as journal:
        (original,) = journal.originals(id_)
    assert json.loads(original.body) == before


@pytest.mark.parametrize(
    ("body", "more", "told"),
    [
        ("{", {"reason": "x"}, "the edited one is not"),
        ('{"id": "sku-3"}', {}, "no reason given"),
    ],
)
def test_what_can_not_be_sent_is_told_with_what_was_typed(
    console: OpenConsole, body: str, more: dict[str, str], told: str
) -> None:
    answer = edit(console, "sku-3", body, **more)
    assert answer.status_code == 400
    assert told in answer.text


def test_what_is_not_changed_is_not_sent(console: OpenConsole) -> None:
    answer = edit(console, "sku-3", json.dumps(body_of(console, "sku-3"), indent=2), reason="x")
    assert "nothing has changed" in answer.text


def test_a_console_that_changes_no_bodies_sends_none(opens: Opens, service: Service) -> None:
    console = opens(Permit.REQUEUE)
    console.look()
    assert edit(console, "sku-3", "{}", reason="x").status_code == 400
    hidden = opens(Permit.REQUEUE, Permit.EDIT, hide_bodies=True)
    assert "socks" not in hidden.get("/edit", queue=QUEUE, id="sku-3").text
    assert edit(hidden, "sku-3", "{}", reason="x").status_code == 400


def test_bytes_that_are_no_text_are_not_edited_on_a_page(opens: Opens, service: Service) -> None:
    fail(
        service,
        failure("bytes", "E", "x", body=b"\xff\xfd"),
        failure("invisible", "E", "x", body='{"a": "\u202e"}'.encode()),
        failure("escaped", "E", "x", body=b'{"a": "\\u202e"}'),
    )
    console = opens(Permit.REQUEUE, Permit.EDIT)
    console.look()
    for id_ in ("bytes", "invisible", "escaped"):
        assert console.get("/edit", queue=QUEUE, id=id_).status_code == 400
