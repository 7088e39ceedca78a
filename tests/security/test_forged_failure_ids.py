"""Somebody who may write into the failed queue gives a message the failure id of another one:
nothing may be lost by it."""

import json
import os
from pathlib import Path

import pytest

from cli_support import Terminal, depth_of, redrive
from contract.plain import drain
from contract.support import both_types
from redrive import FailedMessage, FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.queue.snapshot import Snapshot
from redrive.topology.headers import Delivery
from redrive.topology.model import QueueType

QUEUE = "shop@orders"
ID = "0b6f9c1e-6a9c-4a55-8c3e-2f1f8f4f5a10"
GENUINE, ATTACKER = b'{"order":"GENUINE"}', b'{"spam":"ATTACKER"}'


def message(body: bytes, error: str, id_: str = ID) -> Delivery:
    headers = {
        "redrive-failure-id": id_,
        "redrive-error-type": error,
        "x-orig-routing-key": "order.made",
    }
    return Delivery(
        QUEUE, "master.failed", QUEUE, Properties(headers=Table.of(headers), delivery_mode=2), body
    )


def bodies(url: str) -> list[bytes]:
    return sorted(found.body for found in FailedQueue(url, QUEUE).browse())


def in_file(path: Path) -> list[bytes]:
    return sorted(found.body for found in Snapshot(path).browse())


def digest_of(url: str, body: bytes) -> str:
    return next(found.digest for found in FailedQueue(url, QUEUE).browse() if found.body == body)


def two(url: str, queue_type: QueueType = "quorum", *, attacker_first: bool = False) -> str:
    """A failed queue with a message and a forged one of the same failure id."""
    redrive(
        "declare", "--queue", QUEUE, "--routing-key", "order.*", "--queue-type", queue_type, url=url
    )
    both = [message(GENUINE, "KeyError"), message(ATTACKER, "Spam")]
    FailedQueue(url, QUEUE).restore(both[::-1] if attacker_first else both)
    return url


@both_types
@pytest.mark.parametrize("attacker_first", [False, True])
def test_to_discard_the_forged_one_leaves_the_genuine_one(
    rabbitmq_url: str, tmp_path: Path, queue_type: QueueType, attacker_first: bool
) -> None:
    url, gone = (
        two(rabbitmq_url, queue_type, attacker_first=attacker_first),
        tmp_path / "gone.jsonl",
    )
    done = redrive(
        "failed",
        "discard",
        QUEUE,
        "--where",
        "error_type = 'Spam'",
        "-o",
        str(gone),
        "--yes",
        url=url,
    )
    assert done.code == 0, done.err
    assert in_file(gone) == [ATTACKER]
    assert bodies(url) == [GENUINE]


def test_what_is_discarded_with_its_forged_twin_is_all_in_the_file(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    url, gone = two(rabbitmq_url), tmp_path / "gone.duckdb"
    done = redrive(
        "failed", "discard", QUEUE, "-o", str(gone), "--yes", "--output", "json", url=url
    )
    assert (done.json()["written"], done.json()["deleted"], done.json()["shared_ids"]) == (2, 2, 1)
    assert in_file(gone) == sorted([GENUINE, ATTACKER])
    assert bodies(url) == []


@pytest.mark.parametrize("command", [("discard", QUEUE, "-o", "gone.jsonl"), ("requeue", QUEUE)])
def test_an_id_of_two_messages_that_differ_is_refused(
    rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = two(rabbitmq_url)
    done = redrive("failed", *command, "--id", ID, "--yes", url=url)
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert f"'{ID}' matches 2 messages of 'shop@orders@failed' that differ" in done.err
    assert digest_of(url, GENUINE)[:16] in done.err
    assert bodies(url) == sorted([GENUINE, ATTACKER])
    assert os.listdir(tmp_path) == []


def test_a_digest_stands_for_one_of_them(rabbitmq_url: str, tmp_path: Path) -> None:
    url, gone = two(rabbitmq_url), tmp_path / "gone.jsonl"
    spam = digest_of(url, ATTACKER)[:16]
    assert (
        redrive("failed", "discard", QUEUE, "--id", spam, "-o", str(gone), "--yes", url=url).code
        == 0
    )
    assert in_file(gone) == [ATTACKER]
    FailedQueue(url, QUEUE).restore([message(ATTACKER, "Spam")])
    assert (
        redrive("failed", "requeue", QUEUE, "--id", digest_of(url, GENUINE), "--yes", url=url).code
        == 0
    )
    assert [body for _, body in drain(url, QUEUE)] == [GENUINE]
    assert bodies(url) == [ATTACKER]


def test_a_digest_that_a_third_message_has_for_its_id_is_refused(rabbitmq_url: str) -> None:
    url = two(rabbitmq_url)
    copied = digest_of(url, GENUINE)[:16]
    FailedQueue(url, QUEUE).restore([message(b"third", "Spam", copied)])
    done = redrive("failed", "requeue", QUEUE, "--id", copied, "--yes", url=url)
    assert done.code == 2
    assert depth_of(url, QUEUE)["failed"] == 3


def test_a_requeue_sends_both_and_says_so(rabbitmq_url: str) -> None:
    url = two(rabbitmq_url)
    planned = redrive("failed", "requeue", QUEUE, "--dry-run", url=url)
    assert "1 failure id is shared by messages that differ" in planned.out
    done = redrive("failed", "requeue", QUEUE, "--yes", "--output", "json", url=url)
    assert (done.json()["requeued"], done.json()["shared_ids"]) == (2, 1)
    assert sorted(body for _, body in drain(url, QUEUE)) == sorted([GENUINE, ATTACKER])
    assert bodies(url) == []


def test_copies_of_one_message_are_no_shared_id(rabbitmq_url: str) -> None:
    url = two(rabbitmq_url)
    FailedQueue(url, QUEUE).restore([message(GENUINE, "KeyError")] * 2)
    done = redrive(
        "failed",
        "requeue",
        QUEUE,
        "--where",
        "error_type = 'KeyError'",
        "--dry-run",
        "--output",
        "json",
        url=url,
    )
    assert (done.json()["planned"], done.json()["shared_ids"]) == (3, 0)


def test_an_edit_changes_one_message_and_not_its_twin(rabbitmq_url: str) -> None:
    url = two(rabbitmq_url)
    editor = {"EDITOR": "sed -i s/GENUINE/EDITED/"}
    where = "error_type = 'KeyError'"
    with Terminal(
        "failed", "requeue", QUEUE, "--where", where, "--edit", url=url, environment=editor
    ) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert [json.loads(body) for _, body in drain(url, QUEUE)] == [{"order": "EDITED"}]
    assert bodies(url) == [ATTACKER]


def test_each_of_two_messages_of_one_id_gets_its_own_edit(rabbitmq_url: str) -> None:
    url = two(rabbitmq_url)
    with Terminal(
        "failed",
        "requeue",
        QUEUE,
        "--edit",
        url=url,
        environment={"EDITOR": "sed -i -e s/GENUINE/EDITED/ -e s/ATTACKER/ATTACKED/"},
    ) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert sorted(body for _, body in drain(url, QUEUE)) == [
        b'{"order":"EDITED"}',
        b'{"spam":"ATTACKED"}',
    ]


def test_a_message_that_comes_while_another_of_its_id_is_discarded_stays(rabbitmq_url: str) -> None:
    """More is left than should be, so what was deleted is looked for once more: a forged twin must
    not be taken for it."""
    url = two(rabbitmq_url)
    failed = FailedQueue(url, QUEUE)
    chosen = 0

    def is_forged(found: FailedMessage) -> bool:
        nonlocal chosen
        if found.body != ATTACKER:
            return False
        if not chosen:
            FailedQueue(url, QUEUE).restore([message(b"late", "KeyError", "late")])
        chosen += 1
        return True

    assert failed.discard(is_forged).discarded == 1
    assert bodies(url) == sorted([GENUINE, b"late"])
