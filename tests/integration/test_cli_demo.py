"""`redrive demo`: the story, and what it counts."""

import json

import pytest

from cli_support import PATIENCE, redrive, run_redrive
from redrive.cli.demo import Demo

COUNTED = {
    "published": 6,
    "attempts": 13,
    "retried": 5,
    "failed": 2,
    "requeued": 2,
    "succeeded": 6,
    "lost": 0,
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be slow: what takes long is not lost."""
    monkeypatch.setattr(Demo._watch_until, "__defaults__", (PATIENCE,))


def test_the_last_line_is_what_was_counted(rabbitmq_url: str) -> None:
    done = redrive("demo", "--output", "json", url=rabbitmq_url)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert lines[-1].pop("broker")
    assert lines[-1] == COUNTED
    assert {line["event"] for line in lines[:-1]} == {
        "published",
        "attempt",
        "queues",
        "failed",
        "requeued",
    }


def test_a_broker_of_somebody_else_is_left_as_it_was(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declared = ("declare", "--queue", "mine", "--routing-key", "#", "--exchange", "shop")
    assert redrive(*declared, url=rabbitmq_url).code == 0
    assert redrive("demo", "--exchange", "shop", url=rabbitmq_url).code == 0
    found = redrive(
        "status", "--management-url", rabbitmq_management_url, "--output", "json", url=rabbitmq_url
    ).json()
    assert [one["queue"] for one in found] == ["mine"]
    assert redrive(*declared, "--dry-run", url=rabbitmq_url).code == 0


def test_the_story_is_told_in_order(rabbitmq_url: str) -> None:
    done = redrive("demo", url=rabbitmq_url)
    assert done.code == 0
    chapters = [line[:2] for line in done.out.splitlines() if line[1:2] == "."]
    assert chapters == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert done.out.endswith("No message was lost.\n")


@pytest.mark.nightly("a private broker as in all tests")
def test_without_a_broker_it_starts_one_of_its_own() -> None:
    done = run_redrive("demo", "--output", "json")
    assert done.code == 0
    assert json.loads(done.out.splitlines()[-1])["lost"] == 0
