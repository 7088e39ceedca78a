"""`redrive failed groups` without a queue, over subscriptions and a queue that others made."""

import re
from pathlib import Path

import pytest

from cli_support import Outcome, redrive
from contract.administration import Administration
from contract.shells import BlockingShell
from contract.support import Service
from dead_letters import DeadLetters

FIRST, SECOND = "shop@orders", "shop@bills"


@pytest.fixture
def services(rabbitmq_url: str) -> tuple[Service, Service]:
    """Two subscriptions of one cause, the first with three messages, the second with two."""
    first, second = (
        Service(rabbitmq_url, BlockingShell(), queue=queue) for queue in (FIRST, SECOND)
    )
    for service, count in ((first, 3), (second, 2)):
        service.declare()
        service.set_aside_declared(
            count,
            {"redrive-error-type": "KeyError", "redrive-failed-at": "2026-11-22T12:00:00+00:00"},
        )
    return first, second


def groups(url: str, management_url: str, *arguments: str) -> Outcome:
    """What `redrive failed groups` says of all queues."""
    return redrive(
        *("failed", "groups", *arguments, "--management-url", management_url, "--index", "off"),
        url=url,
    )


def test_a_cause_is_shown_once_with_the_queues_that_have_it(
    services: tuple[Service, Service], rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    ids = dead.fail(4)
    done = groups(rabbitmq_url, rabbitmq_management_url, "--output", "json")

    assert done.code == 0, done.err
    found = done.json()
    counted = {one["queue"]: one["messages"] for one in found["queues"]}
    assert counted == {f"{FIRST}@failed": 3, f"{SECOND}@failed": 2, dead.place: 4}
    assert (found["messages"], found["unread"]) == (9, [])
    # The most recent first: what the broker dead-lettered has just failed.
    assert [(one["error_type"], one["queues"]) for one in found["groups"]] == [
        (None, {dead.place: 4}),
        ("KeyError", {f"{FIRST}@failed": 3, f"{SECOND}@failed": 2}),
    ]
    assert [service.failed_ids() for service in services] == [["0", "1", "2"], ["0", "1"]]
    assert [id_ for id_, _ in dead.drain(dead.place)] == ids


def test_people_are_told_where_each_cause_is(
    services: tuple[Service, Service], rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    told = groups(rabbitmq_url, rabbitmq_management_url)

    assert told.code == 0, told.err
    assert f"queues: {FIRST}@failed 3, {SECOND}@failed 2" in told.out
    assert "5 messages of 2 queues in 1 group." in told.out


def test_a_filter_and_a_column_hold_for_all_queues(
    services: tuple[Service, Service], rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    arguments = ("--where", "message_id <> '0'", "--by", "message_id", "--limit", "1")
    found = groups(rabbitmq_url, rabbitmq_management_url, *arguments, "--output", "json").json()

    assert (found["messages"], found["group_count"], len(found["groups"])) == (3, 2, 1)


def test_a_queue_that_can_not_be_read_is_named_and_the_rest_is_shown(
    services: tuple[Service, Service], rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with administration.user(
        administration.unique("reader"), read=f"^(?!{re.escape(SECOND)}).*", tags="monitoring"
    ) as url:
        done = groups(url, rabbitmq_management_url, "--output", "json")

    assert done.code == 1
    found = done.json()
    assert [one["queue"] for one in found["queues"]] == [f"{FIRST}@failed"]
    (unread,) = found["unread"]
    assert unread["queue"] == f"{SECOND}@failed"
    assert unread["reason"] in done.err


def test_it_is_said_that_no_failed_queue_has_a_message(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    Service(rabbitmq_url, BlockingShell(), queue=FIRST).declare()
    told = groups(rabbitmq_url, rabbitmq_management_url)

    assert told.code == 0, told.err
    assert told.out == "No failed queue of this virtual host has a message.\n"


def test_without_the_management_api_it_says_to_name_a_queue(rabbitmq_url: str) -> None:
    told = groups(rabbitmq_url, "http://127.0.0.1:9")

    assert told.code == 2
    assert "redrive failed groups QUEUE" in told.err


def test_the_second_overview_is_from_what_the_first_one_has_found(
    services: tuple[Service, Service],
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_INDEX", raising=False)
    arguments = ("failed", "groups", "--management-url", rabbitmq_management_url)
    first, second = (redrive(*arguments, "--output", "json", url=rabbitmq_url) for _ in range(2))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    for done, place in ((first, "queue"), (second, "index")):
        found = done.json()
        assert {one["answered_from"] for one in found["queues"]} == {place}
        assert found["messages"] == 5
    assert second.json()["groups"] == first.json()["groups"]
    assert second.err.count("From the look of ") == 2

    services[1].failed_queue.purge()
    again = redrive(*arguments, "--output", "json", url=rabbitmq_url)
    assert [(one["queue"], one["messages"]) for one in again.json()["queues"]] == [
        (f"{FIRST}@failed", 3)
    ]
