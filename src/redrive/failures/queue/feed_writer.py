"""Write the failures that a feed follows to the index, beside the look they came after."""

import contextlib
import json
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failure_feed import Copy, FailureFeed, FeedState
from redrive.failures.store.index import Index, StoredLook
from redrive.failures.store.index_changes import (
    ADDED,
    BEFORE_A_LOOK,
    FIRST_PLACE,
    Added,
    added_to,
    manifest_of,
    place_of,
)
from redrive.failures.store.index_writer import IndexWriter, merge, reason_of
from redrive.failures.store.kept_messages import IndexUnusable
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.names import ExchangeFamily

_EVERY = 0.25
_MOST_RECENT = 20_000
_MOST_RECENT_BYTES = 64 * 1024**2
_A_FILE = 100
"""Number of messages from which a file is complete; smaller files are rewritten with new
messages."""
_MERGED_TOGETHER = 10
_LARGEST = 100_000
_DELETED_AFTER = 60.0
"""Seconds after which no reader uses a file that the manifest no longer names."""
_LOCK = "following"
_PLACE = "history.json"


@dataclass(slots=True)
class _Followed:
    """A queue that is followed.

    Args:
        look: the file of the look that the new messages belong to.
        files: the files written so far, with their numbers of messages, oldest first.
        open: the messages of the last file if it will be rewritten with more.
        first: the place of the first message.
        last: the place of the last message.
        is_behind: whether an error kept the latest messages from being written.
        is_named: whether the manifest names all files.
    """

    look: str
    files: list[tuple[str, int]] = field(default_factory=list)
    open: list[tuple[int, FailedMessage]] = field(default_factory=list)
    first: int = 0
    last: int = 0
    is_behind: bool = False
    is_named: bool = True


class FeedWriter:
    """A follower of a broker for the index, on its own thread.

    Only one process per machine follows: the others read what it writes, and one of them takes over
    when it ends.
    """

    def __init__(
        self,
        index: Index,
        connector: Connector,
        exchanges: ExchangeFamily,
    ) -> None:
        self._index = index
        self._connector = connector
        self._exchanges = exchanges
        self._feed: FailureFeed | None = None
        self._wanted: set[str] = set()
        self._queues: dict[str, _Followed] = {}
        self._recent: deque[tuple[int, FailedMessage]] = deque()
        self._recent_bytes = 0
        self._recent_queues: Counter[str] = Counter()
        self._last = 0
        self._left: deque[tuple[float, Path]] = deque()
        self._closed = threading.Event()
        self._problem = ""
        self._is_second = False
        self._thread = threading.Thread(target=self._run, name="redrive-feed", daemon=True)

    @property
    def state(self) -> FeedState:
        """The state of the feed; safe to read from any thread."""
        if self._is_second:
            return FeedState("another console on this machine", datetime.now(UTC))
        feed, problem = self._feed, self._problem
        if feed is None:
            return FeedState(problem=problem)
        # Failures that can't be written are not visible, so the feed counts as not following.
        return replace(feed.state, since=None, problem=problem) if problem else feed.state

    @property
    def problem(self) -> str:
        """Why failures can't be written; empty while they can."""
        return self._problem

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def want(self, queue: str) -> None:
        """Follow a main queue if the broker does not let this user follow all."""
        self._wanted.add(queue)

    def close(self) -> None:
        """Stop following, and wait for the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with _following(self._index) as is_first:
                    self._is_second, self._problem = not is_first, ""
                    if is_first:
                        self._follow()
            except OSError as error:
                self._problem = error.strerror or str(error)
            self._closed.wait(1.0)

    def _follow(self) -> None:
        feed = self._feed = FailureFeed(
            self._connector, self._exchanges, offset=self._noted_offset()
        )
        feed.start()
        try:
            while not self._closed.wait(_EVERY):
                feed.want(list(self._wanted))
                self._keep(*feed.take())
        finally:
            feed.close()

    def _keep(self, copies: Iterable[Copy], offset: int | None) -> None:
        new: dict[str, list[tuple[int, FailedMessage]]] = {}
        for message, at in copies:
            # Places are at least a microsecond apart, in the order of arrival.
            self._last = max(FIRST_PLACE, self._last + 1, place_of(at))
            new.setdefault(message.failed_queue, []).append((self._last, message))
            self._remember(self._last, message)
        try:
            for queue in {*new, *self._queues, *self._recent_queues}:
                self._keep_of(queue, new.get(queue, []))
            if new:
                self._note_offset(offset)
            self._delete_left()
            self._problem = ""
        except (OSError, duckdb.Error, ValueError) as error:
            self._problem = reason_of(error)

    def _keep_of(self, queue: str, new: list[tuple[int, FailedMessage]]) -> None:
        try:
            look = self._index.find(queue)
        except IndexUnusable:
            look = None
        if look is None:
            self._queues.pop(queue, None)
            return
        followed = self._queues.get(queue)
        if followed is None or followed.look != look.file:
            is_another_look = followed is not None
            followed = self._queues[queue] = self._beginning(look, is_another_look)
            # Write these messages, and those that arrived before the look was known.
            since = place_of(look.since - BEFORE_A_LOOK)
            least = max(since, followed.last + 1)
            new = [one for one in self._recent if one[1].failed_queue == queue and one[0] >= least]
        elif followed.is_behind:
            new = [
                one
                for one in self._recent
                if one[1].failed_queue == queue and one[0] > followed.last
            ]
        if new:
            self._add(queue, followed, new)
        elif followed.files and not (
            followed.is_named and manifest_of(self._index, queue).exists()
        ):
            self._write_manifest(queue, followed)

    def _beginning(self, look: StoredLook, is_another_look: bool) -> _Followed:
        """Return what an earlier process wrote for a look, if it is still the same look."""
        added = added_to(self._index, look.queue)
        if is_another_look or added.last < place_of(look.since):
            return _Followed(look.file)
        return _Followed(look.file, list(added.files), [], added.first, added.last)

    def _add(self, queue: str, followed: _Followed, new: list[tuple[int, FailedMessage]]) -> None:
        followed.is_behind = True
        if sum(_size(self._index.folder / name) for name, _ in followed.files) > self._most_bytes:
            raise ValueError("the failures since the look are more than may be kept")
        written = [*followed.open, *new]
        file = self._written(queue, written)
        *sealed, replaced = followed.files if followed.open else (*followed.files, None)
        followed.files = [*(one for one in sealed if one is not None), (file, len(written))]
        followed.open = written if len(written) < _A_FILE else []
        followed.first = followed.first or new[0][0]
        followed.last = new[-1][0]
        followed.is_behind = followed.is_named = False
        if not followed.open:
            self._merge(queue, followed)
        self._write_manifest(queue, followed)
        if replaced is not None:
            self._leave(replaced[0])

    @property
    def _most_bytes(self) -> int:
        return self._index.most_bytes // 4

    def _written(self, queue: str, messages: list[tuple[int, FailedMessage]]) -> str:
        file = self._index.companion(queue, str(uuid.uuid4()), ADDED)
        with IndexWriter(self._index, [place for place, _ in messages]) as writer:
            for _, message in messages:
                writer.note(message)
            writer.add(file)
            if writer.problem:
                raise ValueError(writer.problem)
        return file.name

    def _merge(self, queue: str, followed: _Followed) -> None:
        """Merge files of about the same size once there are ten."""
        size = followed.files[-1][1]
        while size < _LARGEST:
            alike = [one for one in followed.files if size / 2 < one[1] < size * 5]
            if len(alike) < _MERGED_TOGETHER:
                return
            file = self._index.companion(queue, str(uuid.uuid4()), ADDED)
            with self._index.filling() as folder:
                merge([self._index.folder / name for name, _ in alike], file, folder)
            file.chmod(0o600)
            for name, _ in alike:
                self._leave(name)
            size = sum(count for _, count in alike)
            kept = [one for one in followed.files if one not in alike]
            followed.files = [*kept, (file.name, size)]

    def _write_manifest(self, queue: str, followed: _Followed) -> None:
        added = Added(tuple(followed.files), followed.first, followed.last)
        manifest = manifest_of(self._index, queue)
        written = manifest.with_name(f"{manifest.stem}-{os.getpid()}{manifest.suffix}.new")
        written.write_text(json.dumps(added), encoding="utf-8")
        written.chmod(0o600)
        os.replace(written, manifest)
        followed.is_named = True

    def _remember(self, place: int, message: FailedMessage) -> None:
        self._recent.append((place, message))
        self._recent_bytes += len(message.body)
        self._recent_queues[message.failed_queue] += 1
        while len(self._recent) > _MOST_RECENT or self._recent_bytes > _MOST_RECENT_BYTES:
            _, oldest = self._recent.popleft()
            self._recent_bytes -= len(oldest.body)
            self._recent_queues[oldest.failed_queue] -= 1
            self._recent_queues += Counter()

    def _leave(self, name: str) -> None:
        self._left.append((time.monotonic(), self._index.folder / name))

    def _delete_left(self) -> None:
        while self._left and time.monotonic() - self._left[0][0] > _DELETED_AFTER:
            self._left.popleft()[1].unlink(missing_ok=True)

    def _noted_offset(self) -> int | None:
        try:
            offset = json.loads((self._index.folder / _PLACE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return offset if isinstance(offset, int) else None

    def _note_offset(self, offset: int | None) -> None:
        if offset is not None:
            (self._index.folder / _PLACE).write_text(json.dumps(offset), encoding="utf-8")


@contextlib.contextmanager
def _following(index: Index) -> Iterator[bool]:
    """Hold the machine-wide right to follow for the duration of the block; yield False if another
    process has it."""
    index.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(index.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if os.name != "nt":  # Windows has no such locks, so each process follows
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        yield False
        return
    try:
        yield True
    finally:
        os.close(handle)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
