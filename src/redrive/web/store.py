"""The folder where a console keeps copies of failed messages, with one task on it at a time."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.queue.snapshot import Snapshot
from redrive.web.page_request import QueuePlace

logger = logging.getLogger("redrive")

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_MOST = 500


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A copy of failed messages.

    Args:
        name: its name in the folder.
        size: its size in bytes; None for a Spark archive, which is a folder.
        changed_at: when it was last written.
    """

    name: str
    size: int | None
    changed_at: datetime


@dataclass(slots=True)
class StoreWork:
    """A task on the store.

    Args:
        what: its description.
        done: how many messages it has processed.
        result: its result; empty until it has ended.
        problem: why it failed; empty otherwise.
        has_ended: whether it has ended.
    """

    what: str
    done: int = 0
    result: str = ""
    problem: str = ""
    has_ended: bool = False


class Store:
    """A folder of copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._work: StoreWork | None = None
        self._thread: threading.Thread | None = None

    def files(self) -> list[StoredFile]:
        """Return the copies, latest first; other files and symbolic links are skipped."""
        try:
            found = [
                _file_at(path)
                for path in self.folder.iterdir()
                if not path.is_symlink() and Snapshot.is_meant(str(path))
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("read", error) from error
        return sorted(found, key=lambda one: one.changed_at, reverse=True)[:_MOST]

    def snapshot(self, name: str) -> Snapshot:
        """Return the copy with this name."""
        if name not in {one.name for one in self.files()}:
            raise ConfigurationError(
                f"there is no {name[:80]!r} in the store",
                "The Store page lists the files.",
            )
        return Snapshot(self.folder / name)

    def new_path(self, place: QueuePlace) -> Path:
        """Return a path for a new copy of a queue's messages, and create the folder, readable by
        this user only."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable("created", error) from error
        # A queue's name can be anything, and must not lead out of the folder.
        name = _UNSAFE.sub("_", place.name).strip("._-")[:_LONGEST_NAME] or "queue"
        return self.folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.parquet"

    @property
    def work(self) -> StoreWork | None:
        """The current task, or the last one."""
        with self._lock:
            return self._work

    def do(self, what: str, act: Callable[[StoreWork], str]) -> None:
        """Run a task in a thread."""
        with self._lock:
            if self._work is not None and not self._work.has_ended:
                raise ConfigurationError(
                    f"the store is busy: {self._work.what}",
                    "Wait until it is done.",
                )
            work = self._work = StoreWork(what)
            # Not a daemon thread: the process must not exit in the middle of a task.
            self._thread = threading.Thread(target=_done, args=(work, act), name="redrive-store")
            self._thread.start()

    def close(self) -> None:
        """Wait for the current task."""
        if self._thread is not None:
            self._thread.join()

    def _unusable(self, what: str, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"the store {str(self.folder)!r} can't be {what}: {error.strerror}",
            "Name another folder with --store.",
        )


def _done(work: StoreWork, act: Callable[[StoreWork], str]) -> None:
    try:
        work.result = act(work)
    except RedriveError as error:
        work.problem = str(error)
    except OSError as error:  # such as a full disk or a missing folder
        work.problem = f"failed: {error}"
    except Exception:  # a bug: the user must learn of it
        logger.exception("a task on the store failed: %s", work.what)
        work.problem = "failed because of a bug in redrive; see the console's log"
    finally:
        work.has_ended = True


def _file_at(path: Path) -> StoredFile:
    about = path.stat()
    size = None if path.is_dir() else about.st_size
    return StoredFile(path.name, size, datetime.fromtimestamp(about.st_mtime, UTC))
