"""Failed messages in a file, or in an archive of the Spark job, usable like a failed queue."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.message_source import MessageSource
from redrive.failures.store.look import CachePolicy, Look
from redrive.failures.store.look_reporter import OnLook
from redrive.failures.store.snapshot_file import (
    check_path,
    count_in,
    is_kept_at,
    messages_in,
    write_messages,
)
from redrive.pubsub.reports import LookProgress, LookStage
from redrive.topology.durations import Duration

_EVERY = 0.1


class Snapshot(MessageSource):
    """A file of failed messages.

    Args:
        path: the file, whose suffix tells its format: `.parquet`, `.jsonl` or `.duckdb`. Or the
            folder of an archive of the Spark job: the snapshot then has the messages in it that are
            in no queue.

    Raises:
        ConfigurationError: it has another suffix.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        check_path(self.path)

    @staticmethod
    def is_meant(name: str) -> bool:
        """Check whether a name that a user gave is a file or an archive, not a queue."""
        return is_kept_at(Path(name))

    def depth(self) -> int:
        """Count the messages in the file.

        Raises:
            ConfigurationError: it doesn't exist, or can't be read.
        """
        return count_in(self.path)

    def browse(self, limit: int | None = None) -> Iterator[FailedMessage]:
        """Iterate over the messages from the first on, at most `limit`.

        Raises:
            ConfigurationError: it doesn't exist, or can't be read; the error gives the number of a
                damaged message.
        """
        return islice(messages_in(self.path), limit)

    @contextlib.contextmanager
    def _look(
        self,
        look_at: int | None = None,
        *,
        recall: CachePolicy | None = None,
        on_progress: OnLook | None = None,
        patience: Duration | None = None,
    ) -> Iterator[Look]:
        """Look at the messages within the block. Nothing but the file is used."""
        total = self.depth()
        wanted = total if look_at is None else min(look_at, total)
        look = Look(str(self.path), "file", total)
        tell = on_progress or (lambda _: None)
        tell(LookProgress(LookStage.READING, total, wanted))

        def read() -> Iterator[FailedMessage]:
            told_at = time.monotonic()
            for message in self.browse(look_at):
                look.looked_at += 1
                if time.monotonic() - told_at >= _EVERY:
                    told_at = time.monotonic()
                    tell(LookProgress(LookStage.READING, total, wanted, look.looked_at))
                yield message
            look.has_ended = True

        look.messages = read()
        yield look

    def write(self, messages: Iterable[FailedMessage]) -> int:
        """Create the file from these messages, readable by this user only; return how many it has.

        The messages are safe on disk on return. If writing fails, no file is left.

        Raises:
            ConfigurationError: the file exists already, or can't be written.
        """
        return write_messages(self.path, messages)
