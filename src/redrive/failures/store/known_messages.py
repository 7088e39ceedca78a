"""Recognize the messages that an earlier look has kept, so that a new look need not read and write
them anew."""

import os
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path

import duckdb

from redrive.failures.message.cause import Cause
from redrive.failures.message.failed_message import (
    FailedMessage,
    property_bytes_of,
    remember_cause,
)
from redrive.failures.store.file_sql import rows_of_parquet
from redrive.topology.digest import digest_of

DIGEST = "digest"
"""The column of what a message is recognized by."""
_SIZE = 16
_AT_A_TIME = 5000
_MOST_AHEAD = 50_000
"""How many messages of the earlier look are held to be recognized. A new look passes those that are
still there in the same order, so more are needed only where more have gone one after another."""
_READ = "digest, place, coalesce(error_type, ''), cause_message, cause_frame"


class KnownMessages:
    """The messages of an earlier look, to be found again in their order.

    Args:
        file: the earlier look's file. It may be deleted meanwhile.
        folder: a folder of the caller's own in the same file system.
        database: reads the file; of the caller's own, too.
    """

    def __init__(self, file: Path, folder: Path, database: duckdb.DuckDBPyConnection) -> None:
        self.file = folder / "former.parquet"
        os.link(file, self.file)
        self._rows = database.execute(
            f"SELECT {_READ} FROM {rows_of_parquet([self.file])} ORDER BY place"
        )
        self._ahead: OrderedDict[bytes, tuple[int, Cause]] = OrderedDict()
        self._same: dict[bytes, deque[tuple[int, Cause]]] = {}
        """Further messages with the same bytes."""
        self._count = 0
        self._causes: dict[tuple[str, str, str], Cause] = {}
        self._are_read = False
        self.places = array("q")
        """The places in the earlier look of the messages that were recognized."""
        self.places_now = array("q")
        """Their places in the new look."""

    def recognizes(self, message: FailedMessage, place: int) -> bool:
        """Return whether the earlier look has a message, and note its place in the new one. The
        message then knows its cause."""
        digest = recognized_by(message)
        found = self._ahead.pop(digest, None)
        while found is None and self._read():
            found = self._ahead.pop(digest, None)
        if found is None:
            return False
        if digest in self._same:
            same = self._same[digest]
            self._ahead[digest] = same.popleft()
            if not same:
                del self._same[digest]
        self._count -= 1
        place_before, cause = found
        self.places.append(place_before)
        self.places_now.append(place)
        remember_cause(message, cause)
        return True

    def in_chunks(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the places of the recognized messages, before and now, some at a time."""
        for begin in range(0, len(self.places), _AT_A_TIME):
            part = slice(begin, begin + _AT_A_TIME)
            yield self.places[part].tolist(), self.places_now[part].tolist()

    def _read(self) -> bool:
        """Read some messages on, if there are any, and room for them."""
        if self._count >= _MOST_AHEAD:
            self._drop_passed()
        if self._are_read or self._count >= _MOST_AHEAD:
            return False
        rows = self._rows.fetchmany(_AT_A_TIME)
        self._are_read = not rows
        self._count += len(rows)
        ahead, causes = self._ahead, self._causes
        for digest, place, error_type, text, frame in rows:
            parts = error_type, text, frame
            cause = causes.get(parts)
            if cause is None:
                cause = causes[parts] = Cause(*parts)
            if digest in ahead:
                self._same.setdefault(digest, deque()).append((place, cause))
            else:
                ahead[digest] = place, cause
        return bool(rows)

    def _drop_passed(self) -> None:
        """Drop messages that the new look has passed over, since they have gone."""
        last = self.places[-1] if self.places else -1
        while self._ahead and next(iter(self._ahead.values()))[0] < last:
            digest, _ = self._ahead.popitem(last=False)
            self._count -= 1 + len(self._same.pop(digest, ()))


def recognized_by(message: FailedMessage) -> bytes:
    """Return what a message is recognized by in the next look: the beginning of its digest."""
    delivery = message.delivery
    whole = digest_of(delivery.routing_key, property_bytes_of(message), delivery.body)
    return bytes.fromhex(whole)[:_SIZE]
