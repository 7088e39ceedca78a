"""What the last look at each failed queue has found, kept on this machine: the next questions are
answered from it, and touch no queue.

A folder for each broker and virtual host, in the user's state directory. In it, for each queue, a
record of the look (JSON) that names a file with the messages (Parquet). Neither is ever changed:
the record is replaced as one, so a reader finds the former look or the next one, and nothing in
between. Whoever deletes any of it loses nothing but time.
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

from redrive.failures.columns import COLUMNS
from redrive.failures.kept_messages import IndexUnusable
from redrive.failures.state_folder import check_state_folder, state_folder
from redrive.pubsub.url import BrokerURL

MOST_BYTES = 2 * 1024**3
"""Of all that is kept. The look that is oldest goes first."""
MOST_OF_A_BODY = 64 * 1024
"""A longer body is not kept: a question for it looks at the queue."""
_FORMAT = 9
_NAME, _NAME_WITHOUT_BODIES = "index", "index-without-bodies"
_FILLING = "fill-"
_DATA = ".parquet"
_ID_LENGTH = 24
COMPANIONS = (".gone", ".added", ".feed")
"""What stands beside the messages of a look: what went since, what came, and which files have
that."""
_MARGIN = 60.0
"""Seconds before a look for which what went or came is kept all the same."""
_ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which nobody still fills what began then, on whatever host."""
_MOST_TRIES = 5
"""How often a look is looked for that others replace meanwhile."""
_ORPHANED_AFTER = 60.0
"""Seconds after which messages without a record are of a process that was killed between the
two."""


@dataclass(frozen=True, slots=True)
class StoredLook:
    """A look at a failed queue that has ended.

    Args:
        queue: the queue that was read.
        broker: where that is, without the user.
        ended_at: when the look ended.
        who: who looked: the operating system's user and host, and the broker's user.
        total: the messages that were in the queue when it began.
        looked_at: how many it looked at.
        missing: how many it could not see, because others held them.
        file: the file with the messages.
        size: its bytes.
        format: what has written it.
        began_at: when the look began: what went or came before is in it already.
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
        """From when on what goes or comes is not in it."""
        return self.ended_at if self.began_at is None else self.began_at

    @property
    def is_whole(self) -> bool:
        """Whether it saw all that was in the queue."""
        return self.missing == 0 and self.looked_at == self.total

    @property
    def age_seconds(self) -> float:
        """How old it is; negative where the clock was set back since."""
        return (datetime.now(UTC) - self.ended_at).total_seconds()

    def as_json(self) -> dict[str, object]:
        """It as JSON values."""
        began_at = None if self.began_at is None else self.began_at.isoformat()
        return {**asdict(self), "ended_at": self.ended_at.isoformat(), "began_at": began_at}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `as_json` has written."""
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
    """Where the index is unless told otherwise: the user's state directory."""
    name = _NAME if keeps_bodies else _NAME_WITHOUT_BODIES
    return state_folder() / name


def forget(url: BrokerURL, queue: str) -> None:
    """Drops what is known of a queue, before and after some of it is taken out."""
    # What can't be deleted is another user's; the next answer says that the queue has another depth
    # since.
    for index in indexes_of(url):
        with contextlib.suppress(OSError):
            index.forget(queue)


def indexes_of(url: BrokerURL) -> "list[Index]":
    """The indexes of a virtual host, with bodies and without; none where what they need is not
    installed."""
    try:
        return [Index(url, keeps_bodies=keeps_bodies) for keeps_bodies in (True, False)]
    except ModuleNotFoundError:
        return []


def index_of(url: BrokerURL, *, keeps_bodies: bool = True) -> "Index | None":
    """The index of a virtual host; None where what it needs is not installed."""
    return next((one for one in indexes_of(url) if one.keeps_bodies is keeps_bodies), None)


def current_format() -> str:
    """What stands in a record that this version has written: other columns, or other rules for
    what stands in them, are another format."""
    return _format_id(_FORMAT)


@functools.cache
def _format_id(number: int) -> str:
    # Each answer asks for it, and to find out the version reads files.
    written = (number, metadata.version("redrive"), [(one.name, one.type) for one in COLUMNS])
    return hashlib.sha256(repr(written).encode()).hexdigest()[:_ID_LENGTH]


class Index:
    """The index of one virtual host of a broker. Several processes may use it at a time."""

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
        """The file that says what is known of a queue."""
        return self.folder / f"{_id_of(queue)}.json"

    def companion(self, queue: str, name: str, kind: str) -> Path:
        """A file beside what is kept of a queue, which says what went or came since."""
        return self.folder / f"{_id_of(queue)}-{name}{kind}"

    def companions(self, queue: str, kind: str) -> list[Path]:
        """Those that there are."""
        return sorted(self.folder.glob(f"{_id_of(queue)}-*{kind}"))

    def find(self, queue: str) -> StoredLook | None:
        """The last look at a queue; None where none is kept."""
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
            # Its file is gone where another process has just replaced it: then there is a newer.
            with contextlib.suppress(OSError):
                if (self.folder / look.file).stat().st_size != look.size:
                    raise self.unusable(queue, "is damaged", look.file)
                return look
        return None

    def unusable(self, queue: str, why: str, file: str | None = None) -> IndexUnusable:
        """Deletes what is kept of a queue, if that still is in this file, where one is named;
        returns the error that says why."""
        if file in (None, _file_in(self.record_of(queue))):
            with contextlib.suppress(OSError):  # then the next look replaces it
                self.forget(queue)
        return IndexUnusable(f"what was kept of {queue!r} {why}: the queue is looked at anew")

    def forget(self, queue: str) -> None:
        """Deletes what is kept of a queue."""
        self.record_of(queue).unlink(missing_ok=True)
        self._delete_data(queue)

    @contextlib.contextmanager
    def filling(self) -> Iterator[Path]:
        """A folder for what is being kept, which is this process's alone and gone after the
        block."""
        for parent in (self._root.parent, self._root, self.folder):
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._remove_abandoned()
        with tempfile.TemporaryDirectory(
            prefix=f"{_FILLING}{_id_of(socket.gethostname())}-{os.getpid()}-", dir=self.folder
        ) as folder:
            yield Path(folder)

    def keep(self, look: StoredLook, data: Path) -> StoredLook:
        """Replaces what is known of a queue by a look, whose messages are in `data`."""
        size = data.stat().st_size
        if not look.is_whole:
            raise ValueError("the look did not see all messages")
        if size > self.most_bytes:
            raise ValueError(f"it takes {size:,} bytes, more than may be kept")
        name = f"{_id_of(look.queue)}-{data.parent.name.removeprefix(_FILLING)}{_DATA}"
        kept = replace(look, file=name, size=size, format=current_format())
        former = _file_in(self.record_of(look.queue))
        data.chmod(0o600)
        _to_disk(data)
        os.replace(data, self.folder / name)
        record = data.with_name("record.json")
        handle = os.open(record, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept.as_json(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(record, self.record_of(look.queue))
        if former:
            # Not all of the queue's: another process may be just about to name its own.
            (self.folder / former).unlink(missing_ok=True)
        self._delete_older(kept)
        self._make_room(self.record_of(look.queue))
        return kept

    def _delete_data(self, queue: str) -> None:
        for data in self.folder.glob(f"{_id_of(queue)}-*"):
            data.unlink(missing_ok=True)

    def _delete_older(self, look: StoredLook) -> None:
        """Deletes what says what went or came before a look, and long ago of queues of which
        nothing is kept."""
        queue = _id_of(look.queue)
        for kind in COMPANIONS:
            for file in self.folder.glob(f"*{kind}"):
                owner = file.name.partition("-")[0]
                with contextlib.suppress(OSError):  # another process deletes it, too
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
        """Deletes the oldest looks until what is kept is no more than may be, and messages that
        belong to none."""
        named: set[Path] = set()
        total = 0
        for record in sorted(self._root.glob("*/*.json"), key=_age):
            data = record.parent / _file_in(record)
            with contextlib.suppress(OSError):  # another process makes room, too
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
        """Deletes what processes have left that were killed while they filled it."""
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
    """What says what went from a queue, or came, since the look that a record is of."""
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
    """The file that a record names; empty where it can't be read."""
    try:
        return StoredLook.from_json(record.read_text(encoding="utf-8")).file
    except (OSError, ValueError):
        return ""


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # there is no way to ask that does not end the process
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
