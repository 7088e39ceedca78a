"""Find the changes to a failed queue since the look in the index."""

import contextlib
import json
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb

from redrive.failures.store.file_sql import rows_of_parquet
from redrive.failures.store.index import Index, StoredLook
from redrive.failures.store.removals import REMOVALS, removed_since

ADDED, MANIFEST = ".added", ".feed"
FIRST_PLACE = 1_000_000_000_000
"""Places from here on are microseconds since 1970, for messages that came after a look."""
BEFORE_A_LOOK = timedelta(seconds=2)
"""How much earlier than its message a copy may arrive: if a look did not see the message, the
message came later."""
_AFTER_A_LOOK = timedelta(seconds=30)
"""How much later than its message a copy may arrive on a busy machine: if a look saw the message,
the copy is not counted again."""
_MOST_CACHED = 64


class Changes(NamedTuple):
    """The changes to a queue since a look.

    Args:
        files: the files with messages that came since.
        hidden: the places of messages that are gone, or were seen twice.
        came: how many messages came since and are still there.
        went: how many of the messages that the look saw are gone.
    """

    files: tuple[Path, ...] = ()
    hidden: tuple[int, ...] = ()
    came: int = 0
    went: int = 0

    @property
    def difference(self) -> int:
        """How many more messages there are than the look saw."""
        return self.came - self.went


NONE = Changes()


class Added(NamedTuple):
    """The messages that a follower has added.

    Args:
        files: the files' names, with how many messages are in each.
        first: the place of the first message.
        last: the place of the last message.
    """

    files: tuple[tuple[str, int], ...] = ()
    first: int = 0
    last: int = 0

    @property
    def total(self) -> int:
        """Number of messages in the files."""
        return sum(count for _, count in self.files)


_State = tuple[object, ...]
_cache: dict[tuple[Path, str], tuple[_State, Changes]] = {}
_lock = threading.Lock()


def place_of(moment: datetime) -> int:
    """Return the place of a message that came at a time."""
    return round(moment.timestamp() * 1_000_000)


def manifest_of(index: Index, queue: str) -> Path:
    """Return the file that names what was added to a queue."""
    return index.companion(queue, "added", MANIFEST)


def added_to(index: Index, queue: str) -> Added:
    """Return what was added to a queue; nothing if that can't be read."""
    try:
        files, first, last = json.loads(manifest_of(index, queue).read_text(encoding="utf-8"))
        named = tuple((str(name), int(count)) for name, count in files)
        if any(Path(name).name != name for name, _ in named):
            raise ValueError("it names no file of the index")
        return Added(named, int(first), int(last))
    except (OSError, ValueError, TypeError, RecursionError):
        return Added()


def changes_since(index: Index, look: StoredLook) -> Changes:
    """Return the changes since a look.

    They are cached for each state of the files.
    """
    added = added_to(index, look.queue)
    noted = index.companions(look.queue, REMOVALS)
    state: _State = (look.file, added, *((file.name, _size(file)) for file in noted))
    where = index.folder, look.queue
    with _lock:
        known = _cache.get(where)
        if known is not None and known[0] == state:
            return known[1]
    changes = _found(index, look, added, noted)
    with _lock:
        while len(_cache) >= _MOST_CACHED:
            _cache.pop(next(iter(_cache)))
        _cache[where] = state, changes
    return changes


def _found(index: Index, look: StoredLook, added: Added, noted: Sequence[Path]) -> Changes:
    removed = removed_since(noted, look.since)
    removed_before = removed_since(noted, look.since - BEFORE_A_LOOK) - removed
    began, since, until = map(
        place_of, (look.since, look.since - BEFORE_A_LOOK, look.ended_at + _AFTER_A_LOOK)
    )
    files = tuple(index.folder / name for name, _ in added.files) if added.last >= since else ()
    files = tuple(file for file in files if file.exists())
    if not removed and not files:
        return NONE
    if not removed and added.first > until:
        return Changes(files, (), added.total, 0)
    base = rows_of_parquet([index.folder / look.file])
    came = rows_of_parquet(files) if files else None
    values = [list(removed), list(removed.values())]
    held = f"SELECT mark, place FROM {base}"
    unseen = "SELECT NULL::BIGINT AS place WHERE false"
    total_came = "SELECT 0::BIGINT"
    if came is not None:
        held += f" UNION ALL SELECT mark, place FROM {came} WHERE place >= {since}"
        unseen = (
            f"SELECT place FROM {came} WHERE place < {since} UNION SELECT place FROM {came} "
            f"SEMI JOIN (SELECT mark FROM {base}) USING (mark) "
            f"WHERE place BETWEEN {since} AND {until} UNION SELECT place FROM {came} SEMI JOIN "
            f"(SELECT unnest(?::BIGINT[]) AS mark) USING (mark) WHERE place < {began}"
        )
        values.append(list(removed_before))
        total_came = f"SELECT count(*) FROM {came}"
    sql = f"""
        WITH gone AS (SELECT unnest(?::BIGINT[]) AS mark, unnest(?::BIGINT[]) AS most),
        unseen AS ({unseen}),
        held AS (SELECT * FROM ({held}) WHERE place NOT IN (FROM unseen))
        SELECT place FROM (
            SELECT place, most, row_number() OVER (PARTITION BY mark ORDER BY place) AS nth
            FROM held JOIN gone USING (mark)
        ) WHERE nth <= most
        UNION ALL FROM unseen"""
    with contextlib.closing(
        duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "128MB"})
    ) as database:
        hidden = tuple(int(place) for (place,) in database.execute(sql, values).fetchall())
        ((count,),) = database.execute(total_came).fetchall()
    went = sum(place < FIRST_PLACE for place in hidden)
    return Changes(files, hidden, int(count) - (len(hidden) - went), went)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a new look has just deleted it
        return 0
