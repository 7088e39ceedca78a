"""The index: what the last look at each failed queue found, kept on this machine to answer later
questions without touching the queue.

There is a folder for each broker and virtual host in the user's state directory. For each queue, it
has a record of the look (JSON) that names a file with the messages (Parquet). Neither file is ever
modified: the record is replaced atomically, so a reader finds either the former look or the next
one. Deleting any of it costs nothing but time.
"""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Self

from redrive.failures.message.columns import COLUMNS
from redrive.failures.store.kept_messages import IndexUnusable
from redrive.failures.store.state_folder import check_state_folder, state_folder, to_disk
from redrive.pubsub.url import BrokerURL

MOST_BYTES = 2 * 1024**3
"""The maximum size of all kept looks; the oldest look is deleted first."""
MOST_OF_A_BODY = 64 * 1024
"""Longer bodies are not kept; a question that needs one looks at the queue."""
_FORMAT = 10
_NAME, _NAME_WITHOUT_BODIES = "index", "index-without-bodies"
_FILLING = "fill-"
_DATA = ".parquet"
_ID_LENGTH = 24
COMPANIONS = (".gone", ".added", ".feed")
"""Files beside the messages of a look: removed messages, added messages, and the manifest of the
latter."""
_MARGIN = 60.0
"""Changes from this many seconds before a look are kept, too."""
_ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which no process, on any host, can still be filling a folder."""
_MOST_TRIES = 5
"""How many times to retry when other processes replace a look while it is read."""
_ORPHANED_AFTER = 60.0
"""Seconds after which messages without a record belong to a process that was killed before it wrote
the record."""


@dataclass(frozen=True, slots=True)
class StoredLook:
    """A finished look at a failed queue.

    Args:
        queue: the queue that was read.
        broker: the broker and virtual host of the queue, without the user.
        ended_at: when the look ended.
        who: who looked: the operating system's user and host, and the broker's user.
        total: how many messages were in the queue when it began.
        looked_at: how many messages it read.
        missing: how many messages it could not see because others held them.
        file: the file with the messages.
        size: the file's size in bytes.
        format: the format of the file, which depends on the version of redrive.
        began_at: when the look began; it includes all earlier changes.
    """

    queue: str
    broker: str
    ended_at: datetime
    who: str
    total: int
    looked_at: int
    missing: int | None
    file: str = ""
    size: int = 0
    format: str = ""
    began_at: datetime | None = None

    @property
    def since(self) -> datetime:
        """The time from which changes are not included in the look."""
        return self.ended_at if self.began_at is None else self.began_at

    @property
    def is_whole(self) -> bool:
        """Whether it saw all messages of the queue."""
        return self.missing == 0 and self.looked_at == self.total

    @property
    def age_seconds(self) -> float:
        """The look's age in seconds; negative if the clock was set back."""
        return (datetime.now(UTC) - self.ended_at).total_seconds()

    def as_json(self) -> dict[str, object]:
        """Return the look as JSON values."""
        began_at = None if self.began_at is None else self.began_at.isoformat()
        return {**asdict(self), "ended_at": self.ended_at.isoformat(), "began_at": began_at}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the look that `as_json` wrote; raise ValueError if the text is damaged."""
        try:
            values = json.loads(text)
            began_at = values.get("began_at")
            times = {
                "ended_at": datetime.fromisoformat(values["ended_at"]),
                "began_at": None if began_at is None else datetime.fromisoformat(began_at),
            }
            look = cls(**{**values, **times})
            if None in (look.ended_at.tzinfo, look.since.tzinfo):
                raise ValueError("its times are of no zone")
            if Path(look.file).name != look.file:
                raise ValueError("it names no file of the index")
        except (TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        return look


def default_folder(*, keeps_bodies: bool = True) -> Path:
    """Return the default folder of the index, in the user's state directory."""
    name = _NAME if keeps_bodies else _NAME_WITHOUT_BODIES
    return state_folder() / name


def forget(url: BrokerURL, queue: str) -> None:
    """Drop what is known about a queue; call it before and after removing messages."""
    # Files that can't be deleted belong to another user, whose next answer says that the depth has
    # changed.
    for index in indexes_of(url):
        with contextlib.suppress(OSError):
            index.forget(queue)


def indexes_of(url: BrokerURL) -> "list[Index]":
    """Return a virtual host's indexes with and without bodies; an empty list if the packages that
    they need are not installed."""
    try:
        return [Index(url, keeps_bodies=keeps_bodies) for keeps_bodies in (True, False)]
    except ModuleNotFoundError:
        return []


def index_of(url: BrokerURL, *, keeps_bodies: bool = True) -> "Index | None":
    """Return the index of a virtual host; None if the packages that it needs are not installed."""
    return next((one for one in indexes_of(url) if one.keeps_bodies is keeps_bodies), None)


def current_format() -> str:
    """Return the format id of this version's records: it changes with the columns and with the
    rules for their values."""
    return _format_id(_FORMAT)


@functools.cache
def _format_id(number: int) -> str:
    # Cached, because each answer needs it, and finding the version reads files.
    written = (number, metadata.version("redrive"), [(one.name, one.type) for one in COLUMNS])
    return hashlib.sha256(repr(written).encode()).hexdigest()[:_ID_LENGTH]


class Index:
    """The index of one virtual host of a broker. Several processes may use it at the same time."""

    def __init__(
        self,
        url: BrokerURL,
        folder: Path | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        keeps_bodies: bool = True,
    ) -> None:
        self.broker = ",".join(map(str, url.endpoints)) + "/" + url.virtual_host
        self._root = default_folder(keeps_bodies=keeps_bodies) if folder is None else folder
        if folder is None:
            check_state_folder()
        self.keeps_bodies = keeps_bodies
        self.folder = self._root / _id_of(self.broker)
        self.most_bytes = most_bytes

    def record_of(self, queue: str) -> Path:
        """Return the file of a queue's record."""
        return self.folder / f"{_id_of(queue)}.json"

    def companion(self, queue: str, name: str, kind: str) -> Path:
        """Return the file for changes to a queue since its look."""
        return self.folder / f"{_id_of(queue)}-{name}{kind}"

    def companions(self, queue: str, kind: str) -> list[Path]:
        """Return the existing files of this kind for a queue."""
        return sorted(self.folder.glob(f"{_id_of(queue)}-*{kind}"))

    def find(self, queue: str) -> StoredLook | None:
        """Return the last look at a queue; None if none is kept."""
        for _ in range(_MOST_TRIES):
            try:
                look = StoredLook.from_json(self.record_of(queue).read_text(encoding="utf-8"))
                if look.format != current_format():
                    raise self.unusable(queue, "was written by another version of redrive")
                if look.queue != queue:
                    raise ValueError("it is another queue's")
            except FileNotFoundError:
                return None
            except (OSError, ValueError) as error:
                raise self.unusable(queue, "is damaged") from error
            # The file is missing if another process has just replaced it: then there is a newer
            # one.
            with contextlib.suppress(OSError):
                if (self.folder / look.file).stat().st_size != look.size:
                    raise self.unusable(queue, "is damaged", look.file)
                return look
        return None

    def unusable(self, queue: str, why: str, file: str | None = None) -> IndexUnusable:
        """Delete what is kept for a queue, unless a file is named that is no longer the current
        one; return the error to raise."""
        if file in (None, _file_in(self.record_of(queue))):
            with contextlib.suppress(OSError):  # the next look replaces it
                self.forget(queue)
        return IndexUnusable(f"the index of {queue!r} {why}: the queue is read again")

    def forget(self, queue: str) -> None:
        """Delete what is kept for a queue."""
        self.record_of(queue).unlink(missing_ok=True)
        self._delete_data(queue)

    @contextlib.contextmanager
    def filling(self) -> Iterator[Path]:
        """Yield a private folder to write into, which is deleted after the block."""
        for parent in (self._root.parent, self._root, self.folder):
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._remove_abandoned()
        with tempfile.TemporaryDirectory(
            prefix=f"{_FILLING}{_id_of(socket.gethostname())}-{os.getpid()}-", dir=self.folder
        ) as folder:
            yield Path(folder)

    def keep(self, look: StoredLook, data: Path) -> StoredLook:
        """Replace what is known about a queue with a look whose messages are in `data`."""
        size = data.stat().st_size
        if not look.is_whole:
            raise ValueError("the look did not see all messages")
        if size > self.most_bytes:
            raise ValueError(f"it takes {size:,} bytes, more than may be kept")
        name = f"{_id_of(look.queue)}-{data.parent.name.removeprefix(_FILLING)}{_DATA}"
        kept = replace(look, file=name, size=size, format=current_format())
        former = _file_in(self.record_of(look.queue))
        data.chmod(0o600)
        to_disk(data)
        os.replace(data, self.folder / name)
        record = data.with_name("record.json")
        handle = os.open(record, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept.as_json(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(record, self.record_of(look.queue))
        if former:
            # Delete only this file: another process may be about to name its own.
            (self.folder / former).unlink(missing_ok=True)
        self._delete_older(kept)
        self._make_room(self.record_of(look.queue))
        return kept

    def _delete_data(self, queue: str) -> None:
        for data in self.folder.glob(f"{_id_of(queue)}-*"):
            data.unlink(missing_ok=True)

    def _delete_older(self, look: StoredLook) -> None:
        """Delete changes from before a look, and old changes of queues for which nothing is
        kept."""
        queue = _id_of(look.queue)
        for kind in COMPANIONS:
            for file in self.folder.glob(f"*{kind}"):
                owner = file.name.partition("-")[0]
                with contextlib.suppress(OSError):  # another process may delete it, too
                    changed = file.stat().st_mtime
                    if owner == queue:
                        is_old = changed < look.since.timestamp() - _MARGIN
                    elif not (self.folder / f"{owner}.json").exists():
                        is_old = changed < time.time() - _ABANDONED_AFTER
                    else:
                        is_old = False
                    if is_old:
                        file.unlink()

    def _make_room(self, newest: Path) -> None:
        """Delete the oldest looks until the rest is within the size limit, and messages without a
        record."""
        named: set[Path] = set()
        total = 0
        for record in sorted(self._root.glob("*/*.json"), key=_age):
            data = record.parent / _file_in(record)
            with contextlib.suppress(OSError):  # another process may make room, too
                total += data.stat().st_size + _size_beside(record)
                if total <= self.most_bytes or record == newest:
                    named.add(data)
                else:
                    record.unlink()
                    for beside in _beside(record):
                        beside.unlink(missing_ok=True)
        for data in self._root.glob(f"*/*{_DATA}"):
            if data not in named and (_age(data) > _ORPHANED_AFTER or total > self.most_bytes):
                data.unlink(missing_ok=True)

    def _remove_abandoned(self) -> None:
        """Delete the folders of processes that were killed while they filled them."""
        for folder in self.folder.glob(f"{_FILLING}*"):
            host, _, process = folder.name.removeprefix(_FILLING).partition("-")
            is_dead = host == _id_of(socket.gethostname()) and not _is_alive(
                int(process.partition("-")[0])
            )
            if is_dead or _age(folder) > _ABANDONED_AFTER:
                shutil.rmtree(folder, ignore_errors=True)


def _id_of(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_ID_LENGTH]


def _beside(record: Path) -> list[Path]:
    """Return the files with changes since the look of a record."""
    return [file for kind in COMPANIONS for file in record.parent.glob(f"{record.stem}-*{kind}")]


def _size_beside(record: Path) -> int:
    total = 0
    for file in _beside(record):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


def _file_in(record: Path) -> str:
    """Return the file that a record names; empty if the record can't be read."""
    try:
        return StoredLook.from_json(record.read_text(encoding="utf-8")).file
    except (OSError, ValueError):
        return ""


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # os.kill would end the process
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
