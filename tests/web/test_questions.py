"""What people ask by an expression or a query of their own: it costs a console no more than a
little, and nobody else waits for it."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

from contract.support import Service
from redrive.web import questions
from waiting import wait_until
from web.conftest import QUEUE, OpenConsole, Opens

ENDLESS = "select count(*) from range(1000000) a, range(1000000) b"
MATCHES = "regexp_matches(body_text, x::varchar || '.*' || x::varchar)"
ENDLESS_FILTER = f"len(list_filter(range(999999), lambda x: {MATCHES})) > 0"
MIB = 1024 * 1024


@pytest.fixture
def console(opens: Opens, service: Service) -> OpenConsole:
    console = opens()
    console.look()
    return console


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console that waits for no answer longer than a second."""
    monkeypatch.setattr(questions, "_SECONDS", 1.0)


def asked(console: OpenConsole, sql: str) -> httpx.Response:
    return console.get("/query", queue=QUEUE, sql=sql, format="json")


@pytest.mark.parametrize(
    "sql",
    [ENDLESS, "with recursive t(n) as (select 1 union all select n + 1 from t) select * from t"],
    ids=["of rows", "of recursion"],
)
def test_a_query_without_an_end_is_ended(
    console: OpenConsole, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as impatient:  # the query after it may take as long as it needs
        impatient.setattr(questions, "_SECONDS", 1.0)
        answer = asked(console, sql)
    assert answer.status_code == 400
    assert "took longer than 1 s" in answer.text or "more than 100,000 rows" in answer.text
    assert asked(console, "select count(*) as n from failed").json() == [{"n": 17}]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from failed, range(1000000)",
        "select repeat(error_message, 900000) as text from failed, range(1000)",
        "select list(a.range) as list from range(1000000) a, range(50) b",
    ],
    ids=["rows", "long texts", "a list"],
)
def test_an_answer_that_is_too_large_takes_no_memory_of_the_console(
    console: OpenConsole, sql: str
) -> None:
    before = memory_of_this_process()
    assert asked(console, sql).status_code == 400
    assert memory_of_this_process() - before < 300 * MIB
    assert asked(console, "select count(*) as n from failed").json() == [{"n": 17}]


def memory_of_this_process() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", ["/causes", "/cause", "/plan"])
def test_a_filter_that_takes_too_long_is_ended(console: OpenConsole, path: str) -> None:
    answer = console.get(path, queue=QUEUE, where=ENDLESS_FILTER)
    assert (answer.status_code, "took longer than 1 s" in answer.text) == (400, True)


@dataclass(frozen=True, slots=True)
class BusyConsole:
    """A console that is answering two endless queries of one browser."""

    console: OpenConsole
    browser: tuple[http.client.HTTPConnection, ...]

    @property
    def pool(self) -> questions.Questions:
        return self.console.server.console.context.looks.questions

    def hang_up(self) -> None:
        for connection in self.browser:
            connection.close()


@pytest.fixture
def busy(console: OpenConsole) -> Iterator[BusyConsole]:
    browser = tuple(http.client.HTTPConnection(urlsplit(console.address).netloc) for _ in range(2))
    cookies = "; ".join(f"{name}={value}" for name, value in console.client.cookies.items())
    for connection in browser:
        query = urlencode({"queue": QUEUE, "sql": ENDLESS})
        connection.request("GET", f"/query?{query}", headers={"cookie": cookies})
    busy = BusyConsole(console, browser)
    wait_until(lambda: len(busy.pool._asking) == 2, "both are asked")
    yield busy
    busy.hang_up()


def test_a_third_question_of_a_user_is_refused_and_all_else_is_answered(busy: BusyConsole) -> None:
    refused = asked(busy.console, "select 1 as one")
    assert (refused.status_code, "too many filters and queries" in refused.text) == (503, True)
    assert busy.console.get("/causes", queue=QUEUE).status_code == 200
    assert httpx.get(f"{busy.console.address}/healthz", trust_env=False).text == "ok"


def test_what_nobody_waits_for_any_more_is_ended(busy: BusyConsole) -> None:
    busy.hang_up()
    wait_until(lambda: not busy.pool._asking, "both have ended before their time")
    assert asked(busy.console, "select count(*) as n from failed").json() == [{"n": 17}]


KILLED = """
import time
from redrive.web.questions import _Process

class Endless:
    def __reduce__(self):
        return time.sleep, (600,)

process = _Process()
process.wait_for_start()
process._connection.send(Endless())
print(process._process.pid, flush=True)
time.sleep(600)
"""


def test_a_question_ends_with_a_console_that_is_killed() -> None:
    console = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert console.stdout is not None
    with console.stdout as said:
        process = Path("/proc", said.readline().decode().strip())
    assert b"question_process" in (process / "cmdline").read_bytes()
    console.kill()
    console.wait()
    wait_until(lambda: not process.exists() or not (process / "cmdline").read_bytes(), "it ends")
