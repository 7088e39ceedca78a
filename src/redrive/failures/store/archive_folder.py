"""Read an archive of the Spark job without Spark: its messages that are in no queue.

The parts of the archive's layout that several modules need are here; see
`spark_reprocess/archive.py`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from redrive.failures.store.file_sql import rows_of_parquet
from redrive.failures.store.stored_message import (
    BODY,
    DEAD_LETTER_QUEUE,
    NEEDED,
    PROPERTIES,
    QUEUE,
    ROUTING_KEY,
)

if TYPE_CHECKING:
    import duckdb

MARK = "redrive-archive.json"
FORMAT = 1
NUMBER = "~"
"""Separates a failure id from the number of a message that shares it. Within a failure id it is
doubled, so no failure id can look numbered."""
FINGERPRINT = "^[0-9a-f]{64}$"
"""A failure id that redrive computed for a peer's message without one."""
_QUEUE = re.compile(r"queue=(?P<queue>.+)")
_RUN = re.compile(r"run=\d{8}T\d{6}Z-[0-9a-f]{6}")
_AT_A_TIME = 1000
_SETTLED = "('sent', 'restored', 'discarded')"


def is_archive(path: Path) -> bool:
    """Return whether a path is the folder of an archive."""
    return (path / MARK).is_file()


def check_format(path: Path) -> None:
    """Raise ValueError if this version can't read the archive, OSError if its marker file can't be
    read."""
    try:
        found = json.loads((path / MARK).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{MARK} is damaged") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"it has a format other than {FORMAT}")


def files_of(path: Path) -> list[Path]:
    """Return every file of an archive to read; refuse links, which could point outside the
    archive."""
    found: list[Path] = []
    for folder in ("messages", "ledger"):
        for file in sorted((path / folder).rglob("*")):
            if file.is_symlink() or (path / folder).is_symlink():
                raise ValueError(f"it contains a link, {file.relative_to(path)}")
            if file.suffix == ".parquet" and not file.name.startswith((".", "_")):
                found.append(file)
    return found


def rows_left(
    database: "duckdb.DuckDBPyConnection", path: Path, files: list[Path]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows, with values in the order of `NEEDED`, that were drained but not sent,
    restored or discarded."""
    runs: dict[str, list[Path]] = {}
    for file in files:
        top, *rest = file.relative_to(path).parts
        run = next((part for part in rest if _RUN.fullmatch(part)), None)
        if run is not None and (top == "ledger" or _QUEUE.fullmatch(rest[0])):
            runs.setdefault(run, []).append(file)
    for run, of_run in sorted(runs.items()):
        drained = [file for file in of_run if file.relative_to(path).parts[0] == "messages"]
        noted = [file for file in of_run if file.relative_to(path).parts[0] == "ledger"]
        if not drained:
            continue
        _note_settled(database, noted)
        _note_repeated(database, drained, run)
        seen: set[object] = set()
        for file in drained:
            queue = unquote(file.relative_to(path).parts[1].partition("=")[2])
            yield from _rows_of(database, file, queue, seen)


def _note_settled(database: "duckdb.DuckDBPyConnection", files: list[Path]) -> None:
    source = (
        f"SELECT DISTINCT id FROM {rows_of_parquet(files)} "
        f"WHERE event IN {_SETTLED} AND id IS NOT NULL"
        if files
        else "SELECT ''::VARCHAR AS id LIMIT 0"
    )
    database.execute(f"CREATE OR REPLACE TEMP TABLE settled AS {source}")


def _note_repeated(database: "duckdb.DuckDBPyConnection", files: list[Path], run: str) -> None:
    """Record the failure ids that occur more than once: copies of one message, only one of which
    counts."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE repeated AS SELECT failure_id, "
        f"count(DISTINCT hash({ROUTING_KEY}, {PROPERTIES}, {BODY})) AS messages "
        f"FROM {rows_of_parquet(files)} GROUP BY failure_id HAVING count(*) > 1"
    )
    ((unclear,),) = database.execute(
        "SELECT count(*) FROM repeated WHERE messages > 1 OR regexp_matches(failure_id, ?)",
        [FINGERPRINT],
    ).fetchall()
    if unclear:
        raise ValueError(
            f"{run} has {unclear:,} failure ids that several messages share: use redrive spark "
            "restore"
        )


def _rows_of(
    database: "duckdb.DuckDBPyConnection", file: Path, queue: str, seen: set[object]
) -> Iterator[tuple[object, ...]]:
    source = rows_of_parquet([file])
    columns = {name for name, *_ in database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    place = DEAD_LETTER_QUEUE if DEAD_LETTER_QUEUE in columns else "NULL"
    read = ", ".join([*(name for name in NEEDED if name != QUEUE), place])
    found = database.execute(
        f"SELECT CASE WHEN failure_id IN (SELECT failure_id FROM repeated) THEN failure_id END, "
        f"{read} FROM {source} "
        f"WHERE replace(failure_id, '{NUMBER}', '{NUMBER * 2}') NOT IN (SELECT id FROM settled)"
    )
    while some := found.fetchmany(_AT_A_TIME):
        for repeated, *values in some:
            if repeated is None or repeated not in seen:
                yield queue, *values
            if repeated is not None:
                seen.add(repeated)
