"""What a drain task records of its sessions, without a broker."""

from pathlib import Path

import pytest

from redrive.errors import BrokerUnavailable
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub.blocking.connection import Connector
from redrive.spark_reprocess.drain_task import DrainTask, TaskShare, _Files
from redrive.spark_reprocess.storage import Storage

SHARE = TaskShare(FailedSource.of_subscription("orders"), 3, "part-a")


def test_a_share_whose_last_acks_were_lost_is_settled_by_a_session_without_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost_before_the_acks(
        self: DrainTask, connector: Connector, share: TaskShare, count: int, files: _Files
    ) -> None:
        files.rows = count
        raise BrokerUnavailable("localhost", "the connection was lost")

    monkeypatch.setattr(DrainTask, "_take", lost_before_the_acks)
    storage = Storage.at(str(tmp_path))
    task = DrainTask("amqp://localhost", storage, "run", file_rows=10, timeout=60)
    assert task.take(SHARE, attempt=0) == 3
    assert storage.names("runs/run/settled") == ["part-a-0-1"]
    assert storage.read("runs/run/settled/part-a-0-1") == b"0"
