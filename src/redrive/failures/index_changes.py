"""What went from a failed queue, and what came, since the look that the index has of it."""

import contextlib
import json
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb

from redrive.failures.database import quoted
from redrive.failures.index import Index, StoredLook
from redrive.failures.removals import REMOVALS, removed_since

ADDED, MANIFEST = ".added", ".feed"
FIRST_PLACE = 1_000_000_000_000
"""Places from here on are microseconds since 1970: of messages that came since a look."""
BEFORE_A_LOOK = timedelta(seconds=2)
"""A copy may come so much earlier than its message: what a look did not see of it came later."""
_AFTER_A_LOOK = timedelta(seconds=30)
"""And so much later, where a machine is busy: what a look saw of it is not counted twice."""
_MOST_CACHED = 64


class Changes(NamedTuple):
    """What is to be told of a look besides the messages that it saw.

    Args:
        files: with messages that came since.
        hidden: the places of messages that are not there any more, or were seen twice.
        came: how many came since and are there.
        went: how many of those that the look saw are gone.
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
    """What a follower has added.

    Args:
        files: the files' names, with how many messages are in each.
        first: the place of the first.
        last: the place of the last.
    """

    files: tuple[tuple[str, int], ...] = ()
    first: int = 0
    last: int = 0

    @property
    def total(self) -> int:
        """How many messages are in them."""
        return sum(count for _, count in self.files)


_State = tuple[object, ...]
_cache: dict[tuple[Path, str], tuple[_State, Changes]] = {}
_lock = threading.Lock()


def place_of(moment: datetime) -> int:
    """The place of a message that came at a moment."""
    return round(moment.timestamp() * 1_000_000)


def manifest_of(index: Index, queue: str) -> Path:
    """The file that names what was added to a queue."""
    return index.companion(queue, "added", MANIFEST)


def added_to(index: Index, queue: str) -> Added:
    """What was added to a queue; nothing where that can't be read."""
    try:
        files, first, last = json.loads(manifest_of(index, queue).read_text(encoding="utf-8"))
        named = tuple((str(name), int(count)) for name, count in files)
        if any(Path(name).name != name for name, _ in named):
            raise ValueError("it names no file of the index")
        return Added(named, int(first), int(last))
    except (OSError, ValueError, TypeError, RecursionError):
        return Added()


def changes_since(index: Index, look: StoredLook) -> Changes:
    """What went and what came since a look.

    It is found once for each state of the files, and not for each question.
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
    base = quoted(index.folder / look.file)
    came = f"read_parquet([{', '.join(map(quoted, files))}])" if files else None
    values = [list(removed), list(removed.values())]
    held = f"SELECT mark, place FROM read_parquet({base})"
    unseen = "SELECT NULL::BIGINT AS place WHERE false"
    total_came = "SELECT 0::BIGINT"
    if came is not None:
        held += f" UNION ALL SELECT mark, place FROM {came} WHERE place >= {since}"
        unseen = (
            f"SELECT place FROM {came} WHERE place < {since} UNION SELECT place FROM {came} "
            f"SEMI JOIN (SELECT mark FROM read_parquet({base})) USING (mark) "
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
