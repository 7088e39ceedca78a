"""Snapshots: every byte comes back, and what is no snapshot is said to be none."""

from pathlib import Path

import pytest
from deliveries import failed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_failure_columns import failed_deliveries

from redrive.errors import ConfigurationError
from redrive.failures.snapshot import Snapshot
from redrive.pubsub.message import FailedMessage
from redrive.topology.headers import Delivery

every_kind = pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".duckdb"])


def kept(path: Path) -> list[Delivery]:
    return [message.delivery for message in Snapshot(path).browse()]


@every_kind
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(deliveries=st.lists(failed_deliveries(), max_size=4))
def test_whatever_a_peer_sends_comes_back_byte_for_byte(tmp_path: Path, suffix: str, deliveries: list[Delivery]) -> None:
    path = tmp_path / f"failed{suffix}"
    path.unlink(missing_ok=True)
    assert Snapshot(path).write(map(FailedMessage, deliveries)) == len(deliveries)
    assert kept(path) == deliveries
    assert [one.properties.encode() for one in kept(path)] == [one.properties.encode() for one in deliveries]
    assert Snapshot(path).depth() == len(deliveries)


@every_kind
def test_messages_keep_their_order(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"failed{suffix}"
    deliveries = [failed(body=str(number).encode()) for number in range(3000)]
    Snapshot(path).write(map(FailedMessage, deliveries))
    assert kept(path) == deliveries
    assert len(list(Snapshot(path).browse(7))) == 7


@every_kind
def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"failed{suffix}"
    path.write_text("mine")
    with pytest.raises(ConfigurationError, match="already"):
        Snapshot(path).write([])
    assert path.read_text() == "mine"


@every_kind
def test_a_snapshot_that_does_not_come_to_its_end_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    def messages() -> "list[FailedMessage]":
        raise LookupError

    with pytest.raises(LookupError):
        Snapshot(tmp_path / f"failed{suffix}").write(message for _ in range(2) for message in messages())
    assert list(tmp_path.iterdir()) == []


@every_kind
@pytest.mark.parametrize("content", ["", "hello", '{"queue": 1}\n', "\0" * 5000])
def test_a_file_that_is_no_snapshot_is_said_to_be_none(tmp_path: Path, suffix: str, content: str) -> None:
    path = tmp_path / f"failed{suffix}"
    path.write_text(content)
    if (suffix, content) == (".jsonl", ""):
        assert kept(path) == []
        return
    with pytest.raises(ConfigurationError, match="can't be read as failed messages"):
        kept(path)


@every_kind
def test_a_file_that_is_not_there_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no file .*failed{suffix}"):
        Snapshot(tmp_path / f"failed{suffix}").depth()


@every_kind
def test_a_folder_that_can_not_be_written_to_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ConfigurationError, match="can't be written"):
        Snapshot(tmp_path / "nowhere" / f"failed{suffix}").write([])


def test_another_kind_of_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Name it"):
        Snapshot(Path("failed.csv"))
