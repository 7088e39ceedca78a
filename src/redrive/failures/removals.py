"""What is taken out of a failed queue, written beside what is kept of it: so that the index need
not be dropped, and nobody has to look again to see what is left.

Each process that takes messages out appends to a file of its own, an entry of fixed size for each.
An entry is written before its message goes, and taken back where it stays after all: of a process
that was killed in between, a message counts as gone, and the depth of the queue tells if it is not.
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

from redrive.failures.index import Index

REMOVALS = ".gone"
_ENTRY = struct.Struct(">cdq")
_MARK = struct.Struct(">q")
_GOES, _STAYS = b"-", b"+"
MOST_BYTES = 64 * 1024**2
"""Of all entries of a queue: after more than these, what is kept of it is dropped."""


def mark_of(failure_id: str | None, routing_key: str, body: bytes) -> int:
    """What a failed message is known by in its queue, in a copy of it, and in a stream, which drops
    some of its headers: its own failure id, or, without one, its key and its body.

    Several messages may have one mark, as anybody may write an id: whoever goes by marks counts
    them.
    """
    if failure_id is not None:
        told = b"i" + failure_id.encode("utf-8", "surrogateescape")
    else:
        key = routing_key.encode("utf-8", "surrogateescape")
        told = b"b" + struct.pack(">I", len(key)) + key + body
    (mark,) = _MARK.unpack_from(hashlib.sha256(told).digest())
    return int(mark)


class Removals:
    """Notes what one process takes out of a queue; a context manager. Where it can't be noted, what
    is kept of the queue is dropped, as it is not true any more."""

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
        """Whether anybody wants to know."""
        return bool(self._files)

    def go(self, marks: Sequence[int]) -> None:
        """These are about to go."""
        if marks and self._files:
            self._append(_GOES, marks)

    def stays(self, mark: int) -> None:
        """This one could not be sent after all; from any thread. It is written soon."""
        if self._files:
            self._stays.append(mark)

    def flush(self) -> None:
        """Writes which ones stay."""
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
                with contextlib.suppress(OSError):  # then it is another user's
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
    # Opened each time: whoever looks meanwhile deletes what is older than the look.
    handle = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        written, size = os.write(handle, data), os.fstat(handle).st_size
    finally:
        os.close(handle)
    if written != len(data) or size > MOST_BYTES:
        raise OSError("there is no room for it")


def removed_since(files: Iterable[Path], moment: datetime) -> Counter[int]:
    """How many messages of which mark were taken out since a moment."""
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
