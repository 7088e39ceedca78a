"""Snapshots that somebody else made: they read none of the operator's files, and a damaged one is
said to be damaged."""

import base64
import json
import os
import stat
from pathlib import Path

import duckdb
import pytest

from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.store.stored_message import NEEDED as READ
from redrive.topology.headers import Delivery

MESSAGE = FailedMessage(
    Delivery("shop@orders", "master.failed", "shop@orders", Properties(), b"a body")
)
every_kind = pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".duckdb"])


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of whoever looks at the snapshot."""
    path = tmp_path / "id_rsa"
    path.write_text("PRIVATE-KEY")
    return path


def refused(path: Path) -> str:
    with pytest.raises(ConfigurationError, match="can't be read as failed messages") as raised:
        list(Snapshot(path).browse())
    assert len(str(raised.value).splitlines()) == 2
    assert "PRIVATE-KEY" not in str(raised.value)
    return str(raised.value)


RAW_COLUMNS = (
    "''::blob AS raw_exchange, ''::blob AS raw_routing_key, '\\x00\\x00'::blob AS raw_properties"
)


@pytest.mark.parametrize(
    "source",
    [
        f"SELECT 'q' AS queue, {RAW_COLUMNS}, content AS body_bytes FROM read_blob('{{secret}}')",
        (
            f"SELECT content AS queue, {RAW_COLUMNS}, ''::blob AS body_bytes FROM "
            f"read_text('{{secret}}')"
        ),
        (
            f"SELECT error(content) AS queue, {RAW_COLUMNS}, ''::blob AS body_bytes FROM "
            f"read_text('{{secret}}')"
        ),
    ],
)
def test_a_view_in_place_of_the_table_is_refused(tmp_path: Path, secret: Path, source: str) -> None:
    path = tmp_path / "gift.duckdb"
    with duckdb.connect(path) as made:
        made.execute(f"CREATE VIEW failed AS {source.format(secret=secret)}")
        # Nor does a name of the file's own hide what it is.
        made.execute(
            "CREATE MACRO duckdb_tables() AS TABLE SELECT 'given' AS database_name, 'main' AS "
            "schema_name, 'failed' AS table_name"
        )
    assert "no table 'failed'" in refused(path)


def test_a_table_of_other_types_is_refused_without_its_words(tmp_path: Path) -> None:
    path = tmp_path / "gift.duckdb"
    with duckdb.connect(path) as made:
        made.execute(
            f"CREATE TABLE failed AS SELECT {', '.join(f'''{name!r} AS {name}''' for name in READ)}"
        )
        made.execute("UPDATE failed SET body_bytes = 'PRIVATE-KEY'")
    assert "its message 1 is damaged" in refused(path)


@every_kind
def test_a_link_in_place_of_the_file_gives_away_nothing(
    tmp_path: Path, secret: Path, suffix: str
) -> None:
    path = tmp_path / f"gift{suffix}"
    path.symlink_to(secret)
    refused(path)


@pytest.mark.parametrize("raw", ["", "\x80", "\xff\xff"])
def test_damaged_properties_are_named_by_their_message(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "gift.jsonl"
    good = {
        name: "" if name != "properties" else base64.b64encode(b"\0\0").decode() for name in READ
    } | {"queue": "q"}
    bad = good | {"properties": base64.b64encode(raw.encode("latin-1")).decode()}
    path.write_text("\n".join(map(json.dumps, (good, bad))))
    assert "its message 2 is damaged" in refused(path)


def test_a_line_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gift.jsonl"
    path.write_text("[" * 200_000)
    assert "line 1 is not a message" in refused(path)
    with pytest.raises(ConfigurationError):
        Snapshot(path).depth()


@every_kind
def test_a_snapshot_is_for_its_user_alone_whatever_the_umask(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine{suffix}"
    before = os.umask(0)
    try:
        Snapshot(path).write([MESSAGE])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@every_kind
def test_links_that_lie_in_wait_are_not_written_through(
    tmp_path: Path, secret: Path, suffix: str
) -> None:
    path = tmp_path / f"mine{suffix}"
    for name in (f"{path.name}.part", f"{path.name}.part.duckdb", f"{path.name}.part.duckdb.wal"):
        (tmp_path / name).symlink_to(secret)
    Snapshot(path).write([MESSAGE])
    assert secret.read_text() == "PRIVATE-KEY"
    assert [found.body for found in Snapshot(path).browse()] == [b"a body"]
