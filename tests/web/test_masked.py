"""What a console masks is on no page and in no download, and can't be found out by asking."""

import json
from collections.abc import Sequence
from itertools import product

import pytest

from contract.support import Service
from effort import effort
from redrive.failures.message.mask import Mask
from redrive.web.console_settings import Permit
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens, fail, failure
from web.test_acting import group_of

SECRET = "4111-1111-1111-1111"
ALL = LOOKUP + SLOW + 2


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    """A console that masks a number which a body has, over a queue that was looked at."""
    body = json.dumps({"card": {"number": SECRET, "type": "debit"}, "lines": [{"iban": SECRET}]})
    fail(service, failure("paid", "OSError", "card refused", body=body.encode()))
    fail(service, failure("form", "OSError", "card refused", body=f"card={SECRET}".encode()))
    console = opens(
        Permit.REQUEUE,
        Permit.EDIT,
        Permit.NOTE,
        Permit.DISCARD,
        mask=Mask.of(["$.card.number", "$.lines[*].iban"]),
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


WAYS_TO_A_BODY = (
    *("body->>'$.card.number'", "body_text", "body_bytes::varchar", "BODY::varchar"),
    *("failed.body::varchar", '"body"::varchar', "cast(body as varchar)", "columns('^body$')"),
    *("#15::varchar", "#16", "error(#15::varchar)", "coalesce(#17::varchar, '')"),
    *("failed::varchar", "to_json(failed)::varchar", "FAILED::varchar", '"failed"::varchar'),
    *("hash(failed)::varchar", "md5(failed::varchar)", "row(failed)::varchar", "[failed]::varchar"),
    *("list_transform([failed], lambda x: x::varchar)[1]", "struct_pack(a := failed).a::varchar"),
)
PAGES = ["/causes", "/cause", "/plan", "/discard"]
ACTS = ["/begin", "/ask", "/discard/begin"]


def ways_for(path: str, paths: list[str]) -> Sequence[str]:
    """Some ways for each path, half of the ways in all; at night, all pairs."""
    return effort(WAYS_TO_A_BODY[paths.index(path) :: 2 * len(paths)], nightly=WAYS_TO_A_BODY)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_answers_a_filter_that_asks_for_it(console: OpenConsole, path: str) -> None:
    group = group_of(console, "OSError")
    told = []
    for way in ways_for(path, PAGES):
        answer = console.get(path, queue=QUEUE, group=group, where=f"{way} like '%4111%'")
        assert SECRET not in answer.text
        if answer.status_code != 400:
            told.append(way)
    assert told == []


@pytest.mark.parametrize("path", ACTS)
def test_no_act_is_done_by_a_filter_that_asks_for_it(
    console: OpenConsole, service: Service, path: str
) -> None:
    for way in ways_for(path, ACTS):
        form = {"planned": "1", "typed": "1", "reason": "a guess", "canary": "0"}
        answer = console.post(path, queue=QUEUE, where=f"{way} like '%4111%'", **form)
        assert (answer.status_code, SECRET in answer.text) == (400, False), way
    assert service.failed_queue.depth() == ALL
    assert console.server.console.context.worker.process is None


def test_the_difference_that_a_patch_makes_does_not_have_it(console: OpenConsole) -> None:
    asked = {"queue": QUEUE, "where": "failure_id = 'paid'"}
    page = console.get("/plan", **asked, patch='{"currency": "EUR"}')
    assert "1 of 1 body will be changed" in page.text
    assert SECRET not in page.text
    moved = '[{"op": "move", "from": "/card/number", "path": "/note"}]'
    answer = console.get("/plan", **asked, patch=moved)
    assert answer.status_code == 400
    assert "where something is masked" in answer.text
