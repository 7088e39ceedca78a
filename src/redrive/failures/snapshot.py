"""Failed messages in a file, or in an archive of the Spark job, that can be looked at and sent from
as a queue can."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from redrive.failures.failed_message import FailedMessage
from redrive.failures.look import CachePolicy, Look
from redrive.failures.look_reporter import OnLook
from redrive.failures.message_source import MessageSource
from redrive.failures.snapshot_file import (
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
        path: the file; its suffix says what kind it is: `.parquet`, `.jsonl` or `.duckdb`. Or the
            folder of an archive of the Spark job: what is in it and in no queue.

    Raises:
        ConfigurationError: it has another suffix.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        check_path(self.path)

    @staticmethod
    def is_meant(name: str) -> bool:
        """Whether a name that people gave is that of a file or an archive, and not that of a
        queue."""
        return is_kept_at(Path(name))

    def depth(self) -> int:
        """How many messages it holds.

        Raises:
            ConfigurationError: it is not there, or can't be read.
        """
        return count_in(self.path)

    def browse(self, limit: int | None = None) -> Iterator[FailedMessage]:
        """The messages from the first on, at most `limit`.

        Raises:
            ConfigurationError: it is not there, or can't be read; a damaged message is named by its
                number.
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
        """Look at the messages for as long as the block. Nobody is waited for, and nothing else
        than the file answers."""
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
        """Makes the file of these messages, for this user's eyes alone; returns how many.

        When it returns they are on the disk; if it does not come to its end there is no file.

        Raises:
            ConfigurationError: there is a file already, or it can't be written.
        """
        return write_messages(self.path, messages)
