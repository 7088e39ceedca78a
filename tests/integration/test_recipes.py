"""Each recipe of docs/recipes.md does what the page says: its program is run as it stands there,
and for asyncio with the changes that the page names."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from page_code import ROOT, for_asyncio, programs_of
from waiting import DEADLINE

PROGRAM = Path(__file__).with_name("recipe_program.py")
PAGE = programs_of("docs/recipes.md")


class Ran(NamedTuple):
    """What came of a recipe: what its program found, and what it logged."""

    found: Any
    logged: str


Run = Callable[[str, str], Ran]


PROGRAMS = {
    "sentry": PAGE["Sentry hears of the last attempt only"],
    "sentry in asyncio": for_asyncio(PAGE["Sentry hears of the last attempt only"]),
    "sqlalchemy": PAGE["A SQLAlchemy session for each attempt"],
    "sqlalchemy in asyncio": PAGE["A SQLAlchemy session in asyncio"],
    "tenants": PAGE["Tenants from a header"],
    "tenants in asyncio": for_asyncio(PAGE["Tenants from a header"]),
    "structlog": PAGE["structlog"],
    "structlog in asyncio": for_asyncio(PAGE["structlog"]),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a recipe, in a shell of its own folder; each once."""

    @functools.cache
    def run(recipe: str, shell: str) -> Ran:
        return ran(recipe, PROGRAMS[recipe + shell], tmp_path_factory.mktemp(recipe))

    return run


def ran(how: str, program: str, folder: Path) -> Ran:
    """What comes of a recipe's program, in a folder of its own."""
    (folder / "recipe.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), how],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Ran(json.loads(done.stdout.splitlines()[-1]), done.stderr)


both_shells = pytest.mark.parametrize("shell", ["", " in asyncio"], ids=["blocking", "asyncio"])


def test_every_recipe_of_the_page_is_run() -> None:
    assert set(PAGE.values()) <= set(PROGRAMS.values())
    assert all("AsyncApp(" in PROGRAMS[name] for name in PROGRAMS if "asyncio" in name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_runs_to_its_last_line_until_it_is_asked_to_leave(
    tmp_path: Path, name: str
) -> None:
    assert ran("program", PROGRAMS[name], tmp_path).found == {"asked to leave": True}


# --- Sentry ---------------------------------------------------------------------------------------


@both_shells
def test_sentry_hears_of_a_message_that_is_set_aside_once_and_of_no_retry(
    run: Run, shell: str
) -> None:
    events = run("sentry", shell).found
    assert [event["errors"] for event in events if event["queue"] == "shop@orders"] == [
        ["ConnectionError: the stock is down"]
    ]
    assert len(events) == 2


@both_shells
def test_sentry_is_told_which_message_it_was_and_what_led_to_the_error(
    run: Run, shell: str
) -> None:
    (event,) = (event for event in run("sentry", shell).found if event["queue"] == "shop@orders")
    assert event["about"].pop("id")
    assert event["about"] == {"key": "order.new", "attempt": 3}
    assert event["breadcrumbs"] == ["order 1, attempt 3"]


@both_shells
def test_sentry_hears_of_a_handler_that_hangs(run: Run, shell: str) -> None:
    (event,) = (event for event in run("sentry", shell).found if event["queue"] == "shop@hung")
    assert (event["errors"], event["level"]) == ([], "error")
    assert event["message"] == "shop@hung: gave up: retries-exhausted"
    assert event["about"]["key"] == "hung.new"


# --- SQLAlchemy -----------------------------------------------------------------------------------


@both_shells
def test_what_a_handler_wrote_is_committed_once_it_has_returned(run: Run, shell: str) -> None:
    assert run("sqlalchemy", shell).found["rows"] == {"2": 20, "3": 30}


@both_shells
def test_what_an_attempt_that_failed_wrote_is_rolled_back(run: Run, shell: str) -> None:
    found = run("sqlalchemy", shell).found
    assert found["found"]["1"] == [False, False, False]
    assert found["found"]["2"] == [False, False]
    assert found["set aside"]["1"] == "ConnectionError"


@both_shells
def test_an_order_that_comes_again_finds_what_it_wrote(run: Run, shell: str) -> None:
    assert run("sqlalchemy", shell).found["found"]["3"] == [False, True]


@both_shells
def test_a_commit_that_fails_is_a_failed_attempt(run: Run, shell: str) -> None:
    found = run("sqlalchemy", shell).found
    assert found["found"]["4"] == [False, False, False]
    assert found["set aside"].keys() == {"1", "4"}


# --- tenants --------------------------------------------------------------------------------------


@both_shells
def test_each_message_is_handled_for_its_own_tenant_and_hands_it_on(run: Run, shell: str) -> None:
    assert run("tenants", shell).found["invoices"] == [
        [n, f"invoices/{tenant}", tenant, tenant]
        for n in range(20)
        for tenant in ["north" if n % 2 else "south"]
    ]


@both_shells
def test_a_message_without_a_tenant_is_set_aside(run: Run, shell: str) -> None:
    assert run("tenants", shell).found["set aside"] == [
        [20, "the message has no header `tenant`"],
        [21, "the message has no header `tenant`"],
    ]


# --- structlog ------------------------------------------------------------------------------------


def lines_of(ran: Ran) -> list[dict[str, Any]]:
    """The log lines, of which each is an object."""
    return [json.loads(line) for line in ran.logged.splitlines()]


@both_shells
def test_a_handlers_line_says_its_message_its_queue_and_its_attempt(run: Run, shell: str) -> None:
    lines = lines_of(run("structlog", shell))
    (order,) = (line for line in lines if line["event"] == "an order")
    tries = [line for line in lines if line["event"] == "tries"]

    assert (order["id"], order["queue"], order["attempt"]) == (121, "shop@orders", 1)
    assert [(line["queue"], line["attempt"]) for line in tries] == [
        ("shop@stock", 1),
        ("shop@stock", 2),
    ]
    assert tries[0]["message_id"] == tries[1]["message_id"] != order["message_id"]


@both_shells
def test_a_librarys_line_within_a_handler_says_it_too(run: Run, shell: str) -> None:
    slow = [line for line in lines_of(run("structlog", shell)) if line["event"] == "is slow"]
    assert [(line["level"], line["queue"], line["attempt"]) for line in slow] == [
        ("warning", "shop@stock", 1),
        ("warning", "shop@stock", 2),
    ]


@both_shells
def test_a_line_outside_of_a_handler_is_of_no_message(run: Run, shell: str) -> None:
    (starts,) = (line for line in lines_of(run("structlog", shell)) if line["event"] == "starts")
    assert starts.keys() == {"event", "level", "timestamp"}


@both_shells
def test_redrives_own_line_has_the_fields_of_the_move(run: Run, shell: str) -> None:
    moves = [line["redrive"] for line in lines_of(run("structlog", shell)) if "redrive" in line]
    (retried,) = (move for move in moves if move["event"] == "retried")
    assert (retried["queue"], retried["now_in"]) == ("shop@stock", "shop@stock@retry")
