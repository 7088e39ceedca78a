"""What a rehearsal reports, and what a handler may do to the process that runs it."""

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from redrive import ConfigurationError
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.message.cause import Cause
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.rehearsal.rehearsal import (
    Handler,
    HandlerRefused,
    Rehearsal,
    Tried,
    rehearse,
    request_of,
)
from redrive.topology.headers import Delivery

QUEUE = "shop@orders"
PLAN = Cause("KeyError", "'…'", "shop/orders.py in on_order")
HANG = Cause("redrive.errors.HandlerTimeout", "the handler ran for more than <n> s", "")
PROGRAM = """
import contextlib, ctypes, os, sys, time
from collections.abc import Iterator
from typing import Annotated, Any
from fast_depends import Depends
from redrive import App, AsyncApp, Subscriber

app, async_app = App(), AsyncApp()

def database() -> str:
    return "real"

def nowhere() -> str:
    raise ConnectionError("no database here")

def needy(order: dict, database: Annotated[str, Depends(nowhere)]): ...

@app.lifespan
def life(app):
    print("up")
    yield

@app.middleware
def around(attempt):
    print("around")
    yield

@app.subscriber(QUEUE)
def handle(order: dict, database: Annotated[str, Depends(database)]):
    act(order, database)
    app.publisher.publish({}, "invoice.created", delay=5 if order["n"] else None)
    app.publisher.publish_many([({}, "mail.send"), ({}, "mail.send")])
    app.publisher.publish_then_ack({}, "order.done")

@async_app.subscriber(QUEUE)
async def handle_async(order: dict, database: Annotated[str, Depends(database)]):
    act(order, database)
    await async_app.publisher.publish({}, "invoice.created", delay=5 if order["n"] else None)
    await async_app.publisher.publish_many([({}, "mail.send"), ({}, "mail.send")])
    async_app.publisher.publish_then_ack({}, "order.done")

def act(order, database):
    match order["do"]:
        case "ok":
            print("with the", database, "database")
        case "hang":
            time.sleep(1000)
        case "exit":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "fork":
            os.fork()
        case "leave":
            if not os.fork():
                time.sleep(1000)
        case "flood":
            print("x" * 1_000_000)
        case "key":
            order["plan"]

def plain(order: dict):
    act(order, None)

picky = Subscriber(None, QUEUE, where=lambda message: b"ok" not in message.body)
picky.handler(plain)
other = Subscriber(None, "shop@mail")
other.handler(plain)

@contextlib.contextmanager
def undone(message):
    yield {database: lambda: "fake"}

@contextlib.contextmanager
def unreachable(message):
    raise ConnectionError("no database here")
    yield
"""


def message(number: int, do: str = "ok", error: str = "KeyError") -> FailedMessage:
    """A message that says what its handler does."""
    headers = {
        "redrive-failure-id": f"failure-{number}",
        "redrive-error-type": error,
        "redrive-error-message": "'plan'",
    }
    properties = Properties(headers=Table.of(headers), message_id=f"order-{number}")
    body = json.dumps({"n": number, "do": do}).encode()
    return FailedMessage(Delivery(QUEUE, "master.failed", QUEUE, properties, body))


def tried(number: int, after: Cause | None = None, **about: object) -> Tried:
    """What came of a message that had failed for want of a plan."""
    return Tried(f"failure-{number}", None, PLAN, after, **about)  # type: ignore[arg-type]


def report(*results: Tried) -> Rehearsal:
    """A report of these results."""
    return Rehearsal(QUEUE, "shop:app", len(results), tried=list(results))


Try = Callable[..., Rehearsal]


@pytest.fixture
def try_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Tries what a program does to messages."""
    (tmp_path / "shop.py").write_text(PROGRAM.replace("QUEUE", repr(QUEUE)))
    monkeypatch.chdir(tmp_path)

    def run(*do: str, name: str = "shop:app", within: str = "", timeout: float = 30) -> Rehearsal:
        messages = [message(number, one) for number, one in enumerate(do)]
        handler = Handler(name, within=within, timeout=timeout)
        return rehearse(messages, handler, queue=QUEUE, jobs=2)

    return run


def test_the_report_says_which_causes_are_gone_which_stay_and_which_are_new() -> None:
    found = report(*(tried(n) for n in range(3)), tried(3, PLAN), tried(4, HANG))
    first, new, *_ = found.sentences()
    assert first == (
        "3 of 5 would succeed; 2 fail: 1 still `KeyError: '…'` (the same cause), 1 with a new one."
    )
    assert new == "1 × new: HandlerTimeout: the handler ran for more than <n> s"
    assert [row[1:] for row in found.causes] == [(3, 1, 1)]
    assert not found.is_good


def test_a_cause_without_a_frame_is_the_same_where_the_error_is() -> None:
    assert tried(1, PLAN._replace(frame="")).comparison == "same cause"
    assert tried(1, PLAN._replace(frame="shop/other.py in f")).comparison == "new cause"


def test_the_report_for_pipelines_is_xml_whatever_a_handler_prints() -> None:
    found = report(
        tried(1, output="\x1b[31m]]></system-out>\x00"), tried(2, HANG, error="<&\ud800")
    )
    suite = ET.fromstring(found.junit().encode())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["failure-1", "failure-2"]


def test_what_would_succeed_has_a_plan_in_the_console_unless_its_address_is_too_long() -> None:
    found = report(tried(1), tried(2, PLAN))
    link = urlsplit(found.plan_link("http://console:8000/", literal=False))
    assert link.path == "/plan"
    asks = parse_qs(link.query)
    assert (asks["queue"], asks["where"]) == ([QUEUE], ["failure_id IN ('failure-1')"])
    assert asks["reason"][0].endswith("1 of 2 would succeed")
    assert report(*map(tried, range(1000))).plan_link("http://console", literal=False) == ""


def test_a_message_is_tried_as_it_would_come_after_a_requeue() -> None:
    headers = request_of(message(1))["headers"]
    assert isinstance(headers, dict)
    assert headers["redrive-count"] == 1
    assert "redrive-error-type" not in headers


@pytest.mark.parametrize("app", ["shop:app", "shop:async_app"])
def test_a_message_that_hangs_ends_or_crashes_its_process_costs_only_itself(
    try_: Try, app: str
) -> None:
    found = try_("ok", "exit", "crash", "hang", "fork", "leave", "ok", name=app, timeout=2)
    assert [one.after.error_type if one.after else "" for one in found.tried] == [
        "",
        "redrive.Crashed",
        "redrive.Crashed",
        "redrive.errors.HandlerTimeout",
        "",
        "",
        "",
    ]
    assert [found.tried[n].error for n in (1, 2)] == [
        "its process exited with 3",
        "its process was ended by SIGSEGV",
    ]
    hung = found.tried[3].after
    assert hung is not None
    assert hung.frame.endswith("/shop.py in act")


@pytest.mark.parametrize("app", ["shop:app", "shop:async_app"])
def test_what_an_app_publishes_is_counted_and_not_sent(try_: Try, app: str) -> None:
    found = try_("ok", "ok", "key", name=app)
    assert found.published == {"invoice.created": 2, "mail.send": 4, "order.done": 2}
    assert "It would publish 2 × invoice.created." in list(found.sentences())


@pytest.mark.parametrize("app", ["shop:app", "shop:async_app"])
def test_the_context_around_a_handler_replaces_its_dependencies(try_: Try, app: str) -> None:
    (found,) = try_("ok", name=app, within="shop:undone").tried
    assert "with the fake database" in found.output


def test_lifespans_and_middleware_run_around_a_handler(try_: Try) -> None:
    (found,) = try_("ok").tried
    assert found.output.splitlines() == ["up", "around", "with the real database"]


def test_a_function_is_a_handler_too(try_: Try) -> None:
    assert try_("ok", name="shop:plain").is_good


def test_what_a_subscriber_declines_succeeds_and_is_told(try_: Try) -> None:
    found = try_("ok", "fork", name="shop:picky")
    assert [one.declined for one in found.tried] == [True, False]
    assert "1 of them would be declined by the subscriber's `where`, and acked." in list(
        found.sentences()
    )


def test_of_a_flood_of_output_the_beginning_is_kept(try_: Try) -> None:
    (found,) = try_("flood").tried
    assert 0 < len(found.output) < 100_000


@pytest.mark.parametrize(("name", "within"), [("shop:app", "shop:unreachable"), ("shop:needy", "")])
def test_ten_that_fail_alike_at_the_set_up_end_the_rehearsal(
    try_: Try, name: str, within: str
) -> None:
    found = try_(*(["ok"] * 40), name=name, within=within)
    assert 10 <= len(found.tried) < 40
    assert "ConnectionError: no database here" in found.stopped
    assert not found.is_good


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("shop:nothing", "has no 'nothing'"),
        ("nowhere:app", "there is no module 'nowhere'"),
        ("shop", "does not name a handler"),
        ("shop:other", "is the subscriber of queue 'shop@mail'"),
        ("shop:os", "not an app, a subscriber or a function"),
    ],
)
def test_a_handler_that_is_not_there_ends_it_at_once(try_: Try, name: str, problem: str) -> None:
    with pytest.raises(HandlerRefused, match=problem):
        try_("ok", name=name)


def test_an_app_for_other_queues_is_refused(try_: Try) -> None:
    other = FailedMessage(Delivery("shop@mail", "", "shop@mail", Properties(), b"{}"))
    with pytest.raises(HandlerRefused, match="no subscriber of queue 'shop@mail'"):
        rehearse([other], Handler("shop:app"), queue="shop@mail")


def test_a_program_that_can_not_be_imported_is_shown_whole(try_: Try) -> None:
    Path("broken.py").write_text("import os\nos.environ['DATABASE_OF_THE_SHOP']\n")
    with pytest.raises(HandlerRefused, match="DATABASE_OF_THE_SHOP") as refused:
        try_("ok", name="broken:app")
    assert "broken.py" in refused.value.traceback


def test_a_large_body_reaches_the_handler(try_: Try) -> None:
    body = json.dumps({"n": 0, "do": "ok", "more": "x" * 20_000_000}).encode()
    large = FailedMessage(Delivery(QUEUE, "", QUEUE, Properties(), body))
    assert rehearse([large], Handler("shop:app"), queue=QUEUE).is_good


COMMAND = """
import json, os, sys, time
for line in sys.stdin:
    one = json.loads(line)
    match one["message_id"]:
        case "order-1":
            answer = {"ok": False, "error_type": "KeyError", "error_message": "'plan'"}
        case "order-2":
            os._exit(7)
        case "order-3":
            time.sleep(1000)
        case _:
            print("of", one["routing_key"], file=sys.stderr)
            answer = {"ok": True}
    print(json.dumps(answer), flush=True)
"""


def test_a_command_of_another_language_answers_each_message_with_a_line() -> None:
    handler = Handler(command=(sys.executable, "-c", COMMAND), timeout=5)
    found = rehearse([message(n) for n in range(5)], handler, queue=QUEUE, jobs=1)
    assert [one.comparison for one in found.tried] == [
        "succeeds",
        "same cause",
        "new cause",
        "new cause",
        "succeeds",
    ]
    assert found.tried[2].error == "its process exited with 7"
    assert found.tried[0].output == f"of {QUEUE}\n"


def test_what_a_command_does_not_say_is_not_known() -> None:
    answer = '{"ok": true, "published": {"a": 2, "b": "?"}}'
    words = (sys.executable, "-c", f"input(); print({answer!r})")
    handler = Handler(command=words, timeout=60)
    found = rehearse([message(1)], handler, queue=QUEUE)
    (tried,) = found.tried
    assert (tried.seconds, tried.published) == (None, {"a": 2})
    (case,) = ET.fromstring(found.junit()).iter("testcase")
    assert "time" not in case.attrib


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("no-such-command",), "can't be started"),
        ((sys.executable, "-c", "print('hello')"), "answered hello"),
    ],
)
def test_a_command_that_does_not_answer_is_an_error_that_helps(
    words: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        rehearse([message(1)], Handler(command=words), queue=QUEUE)


def test_one_handler_is_given() -> None:
    for given in ({}, {"name": "shop:app", "command": ("php",)}):
        with pytest.raises(ConfigurationError, match="handler"):
            Handler(**given)  # type: ignore[arg-type]


def test_a_command_that_reads_nothing_and_ends_no_line_is_overdue() -> None:
    words = (sys.executable, "-c", "import time; print('…', end='', flush=True); time.sleep(1000)")
    large = FailedMessage(Delivery(QUEUE, "", QUEUE, Properties(), b"x" * 1_000_000))
    found = rehearse([large], Handler(command=words, timeout=2), queue=QUEUE)
    assert [one.after and one.after.error_type for one in found.tried] == [HANG.error_type]
