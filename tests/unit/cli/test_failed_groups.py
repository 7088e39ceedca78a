"""`redrive failed groups` of a file: as many groups as were asked for, each on few lines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli_support import Terminal, redrive
from deliveries import failed, table
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def message(kind: str, minute: float, text: str = "m") -> FailedMessage:
    moment = NOON + timedelta(minutes=minute)
    own_id = f"{kind}-{minute}"
    return FailedMessage(
        failed(
            table(
                redrive_failure_id=own_id,
                redrive_error_type=kind,
                redrive_error_message=text,
                redrive_failed_at=moment.isoformat(),
            )
        )
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Three groups; one of them has a message of three days before, and a long text."""
    path = tmp_path / "failed.jsonl"
    many = [message("A", minute, "a word " * 100) for minute in range(60)]
    Snapshot(path).write(
        [
            message("A", -4320, "a word " * 100),
            *many,
            message("B", 1),
            message("B", 2),
            message("C", 3),
        ]
    )
    return str(path)


def test_as_json_it_has_as_many_groups_as_were_asked_for(file: str) -> None:
    found = redrive("failed", "groups", file, "--limit", "2", "--output", "json").json()
    assert [group["error_type"] for group in found["groups"]] == ["A", "B"]
    assert (found["group_count"], found["messages"]) == (3, 64)


def test_a_message_of_days_ago_flattens_no_histogram(file: str) -> None:
    done = redrive("failed", "groups", file)
    assert "…████████████   2026-11-19 12:00:00 – 2026-11-22 12:59:00 UTC" in done.out


def test_a_cause_takes_one_line_of_a_terminal(file: str) -> None:
    with Terminal("failed", "groups", file, columns=80) as terminal:
        assert terminal.end() == 0
        lines = terminal.words.splitlines()
    assert (
        next(number for number, line in enumerate(lines) if line.startswith("64 messages of"))
        == 3 * 3
    )
    assert max(map(len, lines[:9])) <= 80
    assert lines[0].rstrip().endswith("…")


def test_a_cause_is_whole_where_it_is_no_terminal(file: str) -> None:
    assert "a word " * 99 in redrive("failed", "groups", file).out
