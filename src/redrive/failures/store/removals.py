"""Records of messages taken out of a failed queue, stored beside the index of its messages.

They keep the index valid, so that nobody has to scan the queue again to see what is left. Each
process that takes out messages appends to a file of its own, one entry of fixed size per message.
An entry is written before its message is taken out, and reverted if the message stays after all. If
a process is killed in between, the message counts as gone; the queue's depth tells if it isn't.
"""

import contextlib
import hashlib
import os
import struct
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from redrive.failures.store.index import Index

REMOVALS = ".gone"
_ENTRY = struct.Struct(">cdq")
_MARK = struct.Struct(">q")
_GOES, _STAYS = b"-", b"+"
MOST_BYTES = 64 * 1024**2
"""Maximum size in bytes of one file of entries; if it grows larger, the index of the queue is
dropped."""


def mark_of(failure_id: str | None, routing_key: str, body: bytes) -> int:
    """Return a number that identifies a failed message in its queue, in a copy and in a stream.

    Streams drop some of a message's headers, so the mark depends only on its own failure id or,
    without one, on its key and body. Several messages may share a mark, since anybody may write an
    id: users of marks must count them.
    """
    if failure_id is not None:
        told = b"i" + failure_id.encode("utf-8", "surrogateescape")
    else:
        key = routing_key.encode("utf-8", "surrogateescape")
        told = b"b" + struct.pack(">I", len(key)) + key + body
    (mark,) = _MARK.unpack_from(hashlib.sha256(told).digest())
    return int(mark)


class Removals:
    """Records what one process takes out of a queue; a context manager.

    If that can't be recorded, the index of the queue is dropped, since it is no longer true.
    """

    def __init__(self, indexes: Iterable[Index], queue: str) -> None:
        self._queue = queue
        self._files = [
            (index, index.companion(queue, str(uuid.uuid4()), REMOVALS))
            for index in indexes
            if index.folder.is_dir()
        ]
        self._stays: list[int] = []

    @property
    def are_noted(self) -> bool:
        """Whether removals are recorded at all."""
        return bool(self._files)

    def go(self, marks: Sequence[int]) -> None:
        """Record that these messages are about to be taken out."""
        if marks and self._files:
            self._append(_GOES, marks)

    def stays(self, mark: int) -> None:
        """Note that a message could not be sent after all; safe to call from any thread. Written
        soon."""
        if self._files:
            self._stays.append(mark)

    def flush(self) -> None:
        """Write the records of messages that stay."""
        stay, self._stays = self._stays, []
        if stay and self._files:
            self._append(_STAYS, stay)

    def _append(self, kind: bytes, marks: Sequence[int]) -> None:
        now = time.time()
        data = b"".join(_ENTRY.pack(kind, now, mark) for mark in marks)
        for index, file in tuple(self._files):
            try:
                _append(file, data)
            except OSError:
                self._files.remove((index, file))
                with contextlib.suppress(OSError):  # the index belongs to another user
                    index.forget(self._queue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.flush()


def _append(file: Path, data: bytes) -> None:
    # Open it each time: a process that scans the queue deletes files older than its look.
    handle = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        written, size = os.write(handle, data), os.fstat(handle).st_size
    finally:
        os.close(handle)
    if written != len(data) or size > MOST_BYTES:
        raise OSError("there is no room for it")


def removed_since(files: Iterable[Path], moment: datetime) -> Counter[int]:
    """Count the messages taken out since a time, by their marks."""
    removed: Counter[int] = Counter()
    since = moment.timestamp()
    for file in files:
        with contextlib.suppress(OSError):  # a new look has just deleted it
            data = file.read_bytes()
            whole = len(data) - len(data) % _ENTRY.size
            for kind, when, mark in _ENTRY.iter_unpack(data[:whole]):
                if when >= since:
                    removed[mark] += 1 if kind == _GOES else -1
    return +removed
