"""The folder where a console keeps copies of failed messages, and what it does with them, one thing
at a time."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.snapshot import Snapshot
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
        size: its bytes; None for an archive of Spark, which is a folder.
        changed_at: when it was written.
    """

    name: str
    size: int | None
    changed_at: datetime


@dataclass(slots=True)
class StoreWork:
    """Something that is done with the store.

    Args:
        what: that, in words.
        done: how many messages it has got through.
        result: what came of it; empty until it has ended.
        problem: why it could not be done; empty otherwise.
        has_ended: whether it is over.
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
        """What is in it, the latest first; what is no copy of messages, or is a link, is left
        out."""
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
        """The copy of this name."""
        if name not in {one.name for one in self.files()}:
            raise ConfigurationError(
                f"there is no {name[:80]!r} in the store",
                "The page of the store lists what is.",
            )
        return Snapshot(self.folder / name)

    def new_path(self, place: QueuePlace) -> Path:
        """A path for a new copy of a queue's messages; the folder is there then, for this user
        alone."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable("made", error) from error
        # A queue's name may be anything, and nothing of it may lead out of the folder.
        name = _UNSAFE.sub("_", place.name).strip("._-")[:_LONGEST_NAME] or "queue"
        return self.folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.parquet"

    @property
    def work(self) -> StoreWork | None:
        """What is being done, or was last."""
        with self._lock:
            return self._work

    def do(self, what: str, act: Callable[[StoreWork], str]) -> None:
        """Does something in a thread of its own."""
        with self._lock:
            if self._work is not None and not self._work.has_ended:
                raise ConfigurationError(
                    f"the store is busy: {self._work.what}",
                    "Wait for its end.",
                )
            work = self._work = StoreWork(what)
            # No daemon: a file or a restore is whole before the process ends.
            self._thread = threading.Thread(target=_done, args=(work, act), name="redrive-store")
            self._thread.start()

    def close(self) -> None:
        """Waits for what is being done."""
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
    except OSError as error:  # a disk is full, a folder is gone
        work.problem = f"it could not be done: {error}"
    except Exception:  # a defect of ours: whoever waits must hear of it
        logger.exception("the store's work ends because of an error: %s", work.what)
        work.problem = "it ended because of a defect; the console's log has it"
    finally:
        work.has_ended = True


def _file_at(path: Path) -> StoredFile:
    about = path.stat()
    size = None if path.is_dir() else about.st_size
    return StoredFile(path.name, size, datetime.fromtimestamp(about.st_mtime, UTC))
