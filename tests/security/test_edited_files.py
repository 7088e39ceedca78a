"""`requeue --edit` writes bodies to files for an editor: nothing of such a file's place is the
message's to choose."""

from pathlib import Path

import pytest

from cli_support import Terminal, redrive
from effort import nightly
from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.topology.headers import Delivery

QUEUE = "shop@orders"


def failed_with(url: str, *ids: str) -> None:
    redrive("declare", "--queue", QUEUE, "--routing-key", "order.*", url=url)
    FailedQueue(url, QUEUE).restore(
        Delivery(
            QUEUE,
            "master.failed",
            QUEUE,
            Properties(headers=Table.of({"redrive-failure-id": id_})),
            b'{"attacker":"content"}',
        )
        for id_ in ids
    )


@pytest.mark.parametrize(
    "id_",
    [
        "{folder}/pwn",
        "../../pwn",
        *(nightly(id_, why="it names no other place") for id_ in ("a\0b", "")),
    ],
)
def test_no_failure_id_says_where_a_body_is_written(
    rabbitmq_url: str, tmp_path: Path, id_: str
) -> None:
    temporary, target = tmp_path / "temporary", tmp_path / "target"
    temporary.mkdir()
    target.mkdir()
    failed_with(rabbitmq_url, id_.format(folder=target))
    seen = tmp_path / "seen"
    editor = tmp_path / "editor.sh"
    editor.write_text(f'#!/bin/sh\nls -ld "$(dirname "$1")" "$1" >> {seen}\n')
    editor.chmod(0o700)
    environment = {"EDITOR": str(editor), "TMPDIR": str(temporary)}
    with Terminal(
        "failed", "requeue", QUEUE, "--edit", "--dry-run", url=rabbitmq_url, environment=environment
    ) as terminal:
        assert terminal.end() == 0, terminal.words
    folder, file = seen.read_text().splitlines()
    assert folder.startswith("drwx------")
    assert file.endswith("/message-1.json")
    assert f" {temporary}/redrive-" in file
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "editor.sh",
        "seen",
        "target",
        "temporary",
    ]
