"""Databases that reach the files of an index, kept open from one question to the next: to open one
costs more than most of what it is asked."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from redrive.failures.columns import COLUMNS
from redrive.failures.database import Database

_MOST_IDLE = 2
"""Of all indexes. Each may keep some memory; where more are asked together, the others are
closed."""
_idle: list[tuple[Path, Database]] = []
_lock = threading.Lock()


@contextlib.contextmanager
def lent(
    folder: Path, now: datetime | None = None, hidden: Sequence[int] = ()
) -> Iterator[Database]:
    """A database that reaches the files in a folder, and nothing else, for as long as the block;
    nobody else has it meanwhile.

    Whatever goes wrong in the block ends it: the next question opens another one.

    Args:
        folder: the folder.
        now: what `now()` says; None where nobody asks.
        hidden: places in the files whose rows are not there any more.
    """
    database = _taken(folder)
    try:
        if now is not None:
            database.set_clock(now)
        database.hide(hidden)
        yield database
    except GeneratorExit:
        # Whoever reads messages may have had enough of them.
        _give_back(folder, database)
        raise
    except BaseException:
        database.close()
        raise
    _give_back(folder, database)


def _taken(folder: Path) -> Database:
    with _lock:
        for number, (known, database) in enumerate(_idle):
            if known == folder:
                del _idle[number]
                return database
    return Database(columns=COLUMNS, folder=folder)


def _give_back(folder: Path, database: Database) -> None:
    database.drop_made()
    with _lock:
        _idle.append((folder, database))
        gone = _idle.pop(0)[1] if len(_idle) > _MOST_IDLE else None
    if gone is not None:
        gone.close()
