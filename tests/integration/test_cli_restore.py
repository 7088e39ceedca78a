"""`redrive failed restore` skips messages that are in their failed queue already."""

from pathlib import Path

import pytest

from cli_support import Terminal, depth_of, give_up_on, redrive
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.topology.headers import Delivery

QUEUE = "ucenter@user"


@pytest.fixture
def file(rabbitmq_url: str, tmp_path: Path) -> str:
    """A file with three messages that were discarded."""
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    path = str(tmp_path / "gone.jsonl")
    assert redrive("failed", "discard", QUEUE, "-o", path, "--yes", url=rabbitmq_url).code == 0
    return path


def test_a_file_that_is_restored_once_is_restored_without_a_warning(
    rabbitmq_url: str, file: str
) -> None:
    done = redrive("failed", "restore", file, "--yes", "--output", "json", url=rabbitmq_url)
    assert (done.json()["restored"], done.json()["there_already"]) == ({QUEUE: 3}, {QUEUE: 0})
    assert "already" not in done.err


@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_what_is_there_already_is_skipped_whoever_has_said_yes(
    rabbitmq_url: str, file: str, how: str
) -> None:
    redrive("failed", "restore", file, "--yes", url=rabbitmq_url)
    done = redrive("failed", "restore", file, how, "--output", "json", url=rabbitmq_url)
    assert (done.code, done.json()["there_already"], done.json()["restored"]) == (0, {QUEUE: 3}, {})
    assert "3 messages of this file are in ucenter@user@failed already and are skipped" in done.err
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 3


def test_a_restore_that_was_broken_off_goes_on_with_what_is_missing(
    rabbitmq_url: str, file: str
) -> None:
    some = ("--where", "body = 2")
    redrive("failed", "restore", file, *some, "--yes", url=rabbitmq_url)
    done = redrive("failed", "restore", file, "--yes", "--output", "json", url=rabbitmq_url)
    assert (done.json()["there_already"], done.json()["restored"]) == ({QUEUE: 1}, {QUEUE: 2})
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 3


def test_who_asks_for_duplicates_is_told_before(rabbitmq_url: str, file: str) -> None:
    redrive("failed", "restore", file, "--yes", url=rabbitmq_url)
    with Terminal("failed", "restore", file, "--duplicates", url=rabbitmq_url) as terminal:
        terminal.wait_for("[y/N]")
        assert "some of them twice" in terminal.words
        terminal.type("n\n")
        assert terminal.end() == 1
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 3


def test_what_could_not_travel_as_it_was_is_found_again(rabbitmq_url: str, tmp_path: Path) -> None:
    redrive("declare", "--queue", QUEUE, "--routing-key", "user.*", url=rabbitmq_url)
    headers = Table.of(
        {
            "redrive-failure-id": "one",
            "CC": ["elsewhere"],
            "x-death": [{"count": 1}],
            "x-delivery-count": 7,
        }
    )
    path = tmp_path / "gone.jsonl"
    delivery = Delivery(
        QUEUE, "", QUEUE, Properties(headers=headers, expiration="60000", user_id="somebody"), b"{}"
    )
    Snapshot(path).write([FailedMessage(delivery)])
    for already in (0, 1, 1):
        done = redrive(
            "failed",
            "restore",
            str(path),
            "--duplicates",
            "--yes",
            "--output",
            "json",
            url=rabbitmq_url,
        )
        assert done.json()["there_already"] == {QUEUE: already}


def test_a_broker_that_is_away_is_noted_where_nothing_is_done(tmp_path: Path) -> None:
    path = tmp_path / "gone.jsonl"
    Snapshot(path).write([FailedMessage(Delivery(QUEUE, "", QUEUE, Properties(), b"{}"))])
    done = redrive(
        "failed",
        "restore",
        str(path),
        "--dry-run",
        "--output",
        "json",
        url="amqp://guest:guest@127.0.0.1:1/",
    )
    assert (done.code, done.json()["there_already"]) == (0, {QUEUE: None})
    assert "Can't tell" in done.err
