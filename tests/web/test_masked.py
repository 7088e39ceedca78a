"""What a console masks is on no page and in no download, and can't be found out by asking."""

import json
from itertools import product

import pytest

from contract.support import Service
from redrive.failures.mask import Mask
from redrive.web.console_settings import Permit
from web.conftest import QUEUE, OpenConsole, Opens, fail, failure

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that masks a number which a body has, over a queue that was looked at."""
    body = json.dumps({"card": {"number": SECRET, "type": "debit"}, "lines": [{"iban": SECRET}]})
    fail(service, failure("paid", "OSError", "card refused", body=body.encode()))
    fail(service, failure("form", "OSError", "card refused", body=f"card={SECRET}".encode()))
    console = opens(
        Permit.REQUEUE, Permit.EDIT, Permit.NOTE, mask=Mask.of(["$.card.number", "$.lines[*].iban"])
    )
    console.look()
    return console


def test_no_view_of_a_body_has_it(console: OpenConsole) -> None:
    for id_, view in product(("paid", "form"), ("tree", "text", "hex")):
        answer = console.get("/message", queue=QUEUE, id=id_, view=view)
        assert answer.status_code == 200
        assert "***" in answer.text or "2a 2a 2a" in answer.text
        assert SECRET not in answer.text
        assert SECRET.encode().hex(" ")[:20] not in answer.text


def test_no_download_has_it(console: OpenConsole) -> None:
    for id_ in ("paid", "form"):
        assert SECRET.encode() not in console.get("/body", queue=QUEUE, id=id_).content
    body = json.loads(console.get("/body", queue=QUEUE, id="paid").content)
    assert body == {"card": {"number": "***", "type": "debit"}, "lines": [{"iban": "***"}]}


def test_no_query_has_it(console: OpenConsole) -> None:
    queries = (
        "select body from failed",
        "select body_text from failed",
        "select body_bytes::varchar as b from failed",
        "select body->>'$.card.number' as n from failed",
        "select failed from failed",
        "select * from failed",
    )
    for sql, form in product(queries, ("", "csv", "json")):
        answer = console.get("/query", queue=QUEUE, sql=sql, format=form)
        assert answer.status_code == 200, answer.text
        assert SECRET not in answer.text, (sql, form)


def test_a_query_by_it_finds_nothing(console: OpenConsole) -> None:
    sql = f"select failure_id from failed where body->>'$.card.number' = '{SECRET}'"
    assert json.loads(console.get("/query", queue=QUEUE, sql=sql, format="json").text) == []


def test_no_filter_asks_for_it(console: OpenConsole) -> None:
    filters = ("body->>'$.card.number' like '4%'", "failed::varchar like '%4111%'")
    for path, where in product(("/causes", "/plan", "/discard"), filters):
        answer = console.get(path, queue=QUEUE, where=where)
        assert answer.status_code == 400 or "1 message" not in answer.text, (path, where)
        assert SECRET not in answer.text


def test_the_difference_that_a_patch_makes_does_not_have_it(console: OpenConsole) -> None:
    asked = {"queue": QUEUE, "where": "failure_id = 'paid'"}
    page = console.get("/plan", **asked, patch='{"currency": "EUR"}')
    assert "1 of 1 body would be changed" in page.text
    assert SECRET not in page.text
    moved = '[{"op": "move", "from": "/card/number", "path": "/note"}]'
    answer = console.get("/plan", **asked, patch=moved)
    assert answer.status_code == 400
    assert "where something is masked" in answer.text


def test_no_cause_is_split_by_it(console: OpenConsole) -> None:
    split = {"kind": "split", "group": "0" * 12, "name": "a part", "back": "/"}
    answer = console.post("/remark", **split, where="body->>'$.card.number' like '4%'")
    assert answer.status_code == 400
    assert "masks parts of bodies, and the filter asks for it" in answer.text
