"""Completion of jobs and groups, and what it does when something is wrong: nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import typer

from redrive.cli import completion
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.jobs.local_journal import LocalJournal, default_path
from redrive.failures.message.cause import Cause
from redrive.failures.message.groups import Group

URL = "amqp://guest:guest@127.0.0.1:1/"


class _Context:
    """What a shell has typed so far."""

    def __init__(self, command_path: str, **given: object) -> None:
        self.command_path = command_path
        self.params = {"url": URL, "management_url": "http://127.0.0.1:1", **given}


def context(command_path: str = "redrive status", **given: object) -> typer.Context:
    return cast(typer.Context, _Context(command_path, **given))


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def group(count: int) -> Group:
    found = Group(Cause("shop.OutOfStock", "none of <n>", ""), "an id")
    found.count = count
    return found


def test_where_no_broker_answers_no_queue_is_offered() -> None:
    assert completion.queues(context(), "") == []


def test_what_is_no_address_is_no_error() -> None:
    assert completion.queues(context(url="nonsense"), "") == []
    assert completion.groups(context(url="nonsense", source="shop@orders"), "") == []


def test_an_answer_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_TIME_LIMIT", 0.01)
    never = threading.Event()

    def ask() -> completion.Offers:
        never.wait()
        return [("late", "")]

    assert completion._quickly(ask) == []
    never.set()


def test_what_was_found_in_time_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_TIME_LIMIT", 1.0)
    never = threading.Event()

    def ask() -> Iterator[tuple[str, str]]:
        yield "soon", ""
        never.wait()

    assert completion._quickly(ask) == [("soon", "")]
    never.set()


def test_jobs_are_offered_with_what_they_did() -> None:
    job = JobRecord("3f2a9c1e-0000-4000-8000-000000000001", "discard", "shop@orders", "a broker")
    with LocalJournal() as journal:
        journal.begin(job)
    assert completion.jobs(context(), "3f") == [("3f2a9c1e", "discard shop@orders interrupted")]
    assert completion.jobs(context(), "9") == []


def test_without_a_journal_none_is_made() -> None:
    assert completion.jobs(context(), "") == []
    assert not default_path().exists()


def test_the_groups_shown_last_for_a_queue_are_offered() -> None:
    shown = [group(1200)]
    completion.remember_groups(URL, "shop@orders", shown)
    (offered,) = completion.groups(context(source="shop@orders"), "")
    assert offered == (cast(Cause, shown[0].key).group_id, "1,200 shop.OutOfStock")
    assert completion.groups(context(queue="billing@invoices"), "") == []


def test_of_a_message_nothing_but_its_error_type_is_kept() -> None:
    completion.remember_groups(URL, "shop@orders", [group(1)])
    kept = default_path().with_name("groups.json")
    assert "none of" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_damaged_file_of_groups_offers_none_and_is_replaced() -> None:
    kept = default_path().with_name("groups.json")
    kept.parent.mkdir(parents=True)
    kept.write_text("[")
    assert completion.groups(context(source="shop@orders"), "") == []
    completion.remember_groups(URL, "shop@orders", [group(1)])
    assert len(completion.groups(context(source="shop@orders"), "")) == 1
