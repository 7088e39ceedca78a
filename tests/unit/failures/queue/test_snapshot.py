"""Snapshots: every byte comes back, and what is no snapshot is said to be none."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deliveries import failed
from effort import nightly
from failed_deliveries import failed_deliveries
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.stored_message import FORMER_NAMES
from redrive.topology.headers import Delivery

every_kind = pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".duckdb"])
mostly_parquet = pytest.mark.parametrize(
    "suffix", [".parquet", *(nightly(one, why="another file") for one in (".jsonl", ".duckdb"))]
)


def kept(path: Path) -> list[Delivery]:
    return [message.delivery for message in Snapshot(path).browse()]


@mostly_parquet
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(deliveries=st.lists(failed_deliveries(), max_size=4))
def test_whatever_a_peer_sends_comes_back_byte_for_byte(
    tmp_path: Path, suffix: str, deliveries: list[Delivery]
) -> None:
    path = tmp_path / f"failed{suffix}"
    path.unlink(missing_ok=True)
    assert Snapshot(path).write(map(FailedMessage, deliveries)) == len(deliveries)
    assert kept(path) == deliveries
    assert [one.properties.encode() for one in kept(path)] == [
        one.properties.encode() for one in deliveries
    ]
    assert Snapshot(path).depth() == len(deliveries)


@every_kind
def test_a_snapshot_of_redrive_0_1_is_read(tmp_path: Path, suffix: str) -> None:
    path, delivery = tmp_path / f"failed{suffix}", failed(body=b"a body")
    Snapshot(path).write([FailedMessage(delivery)])
    former = tmp_path / f"former{suffix}"
    names = ", ".join(f"{new} AS {old}" for new, old in FORMER_NAMES.items())
    columns = f"* EXCLUDE ({', '.join(FORMER_NAMES)}), {names}"
    with duckdb.connect() as database:
        match suffix:
            case ".parquet":
                database.execute(f"COPY (SELECT {columns} FROM '{path}') TO '{former}'")
            case ".duckdb":
                database.execute(f"ATTACH '{path}' AS new; ATTACH '{former}' AS old")
                database.execute(f"CREATE TABLE old.failed AS SELECT {columns} FROM new.failed")
            case _:
                text = path.read_text()
                for new, old in FORMER_NAMES.items():
                    text = text.replace(f'"{new}"', f'"{old}"')
                former.write_text(text)
    assert kept(former) == [delivery]


@mostly_parquet
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
def test_a_snapshot_that_does_not_come_to_its_end_leaves_nothing(
    tmp_path: Path, suffix: str
) -> None:
    def messages() -> "list[FailedMessage]":
        raise LookupError

    with pytest.raises(LookupError):
        Snapshot(tmp_path / f"failed{suffix}").write(
            message for _ in range(2) for message in messages()
        )
    assert list(tmp_path.iterdir()) == []


@every_kind
@pytest.mark.parametrize("content", ["", "hello", '{"queue": 1}\n', "\0" * 5000])
def test_a_file_that_is_no_snapshot_is_said_to_be_none(
    tmp_path: Path, suffix: str, content: str
) -> None:
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


def large(count: int) -> Iterator[FailedMessage]:
    """Messages as an incident leaves them, with bodies and tracebacks that hardly repeat: some 40
    KB of columns each."""
    chance = Random(1)
    for number in range(count):
        body = json.dumps(
            {"id": number, "lines": [f"{chance.getrandbits(256):x}" for _ in range(60)]}
        ).encode()
        frames = [
            f'  File "/srv/shop/orders.py", line {number}, in {chance.getrandbits(400):x}\n    '
            "charge()\n"
            for _ in range(60)
        ]
        headers = {
            "redrive-failure-id": f"{chance.getrandbits(128):x}",
            "redrive-error-type": "shop.gateway.Timeout",
            "redrive-error-message": f"order {number} timed out after 30 s",
            "redrive-error-traceback": "Traceback (most recent call last):\n" + "".join(frames),
        }
        yield FailedMessage(failed(Table.of(headers), body=body))


@pytest.mark.nightly("a few very large ones are written each time")
def test_more_messages_go_into_parquet_than_fit_into_memory_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "failed.parquet"
    assert Snapshot(path).write(large(3500)) == 3500
    assert [message.json() for message in Snapshot(path).browse()] == [
        message.json() for message in large(3500)
    ]


@mostly_parquet
def test_a_few_very_large_messages_are_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"failed{suffix}"
    bodies = [bytes([65 + number]) * 3_000_000 for number in range(10)]
    Snapshot(path).write(FailedMessage(failed(body=body)) for body in bodies)
    assert [one.body for one in kept(path)] == bodies


def test_a_parquet_file_has_the_same_columns_however_many_messages_it_has(tmp_path: Path) -> None:
    columns = []
    for count in (0, 1):
        path = tmp_path / f"{count}.parquet"
        Snapshot(path).write([FailedMessage(failed())] * count)
        columns.append([row[:2] for row in duckdb.execute(f"DESCRIBE FROM '{path}'").fetchall()])
    assert columns[0] == columns[1]
    assert dict(columns[0])["body"] == "JSON"
