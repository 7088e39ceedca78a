"""The part of a drain that runs in one task: write a share of a failed queue to files, and ack what
they hold."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow

from redrive.errors import BrokerUnavailable
from redrive.failures.queue.failed_source import FailedSource
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.consumer import MOST_PREFETCH
from redrive.pubsub.lifecycle import default_name, reconnect_delay
from redrive.pubsub.transfer.delivery_limit import ReturnLimit
from redrive.pubsub.transfer.queue_reader import Held, QueueReader
from redrive.spark_reprocess.archive import file_name, messages_folder, rows_of, settled_mark
from redrive.spark_reprocess.archive_row import MOST_OF_A_PLAIN_BODY, parquet_of, table_of
from redrive.spark_reprocess.storage import Storage

_HAS_ENCODING = 0x40
"""The bit in the first byte of the property flags that says there is a content encoding: the body
may grow when it is decoded. Source: AMQP 0-9-1, 4.2.6.1"""
_BYTES_IN_A_FILE = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TaskShare:
    """The messages that one task takes from a queue."""

    source: FailedSource
    count: int
    name: str
    returns: ReturnLimit | None = None


@dataclass(frozen=True, slots=True)
class DrainTask:
    """The work of a drain task, the same for all shares."""

    url: str = field(repr=False)
    storage: Storage
    run: str
    file_rows: int
    timeout: float
    takes: bool = True

    def take(
        self,
        share: TaskShare,
        attempt: int,
        on_rows: Callable[[FailedSource, pyarrow.Table], None] = lambda source, rows: None,
    ) -> int:
        """Take a share, minus what earlier attempts took; return the number of messages taken.
        `on_rows` is called with the rows of each file."""
        left = share.count - self._taken_before(share)
        taken = session = tries = 0
        connector = Connector(
            self.url, default_name("spark drain", f"{share.source.name} {share.name}")
        )
        while True:
            name = f"{share.name}-{attempt}-{session}"
            if left <= 0:
                # All of it is in files of sessions before, even if the broker lacks some acks.
                self.storage.write(settled_mark(self.run, name), b"0")
                return taken
            files = _Files(self.storage, self.run, share.source, name, on_rows)
            try:
                self._take(connector, share, left, files)
            except BrokerUnavailable as error:
                # Unacked messages are back in the queue, and the next session takes them.
                if files.rows:
                    tries = 0
                tries += 1
                self._wait(tries, error)
            else:
                files.settled()
                return taken + files.rows
            taken += files.rows
            left -= files.rows
            session += 1

    def _take(self, connector: Connector, share: TaskShare, count: int, files: "_Files") -> None:
        queue = share.source.queue

        def is_empty() -> bool:
            with declaring(connector) as declarer:
                depth = declarer.depth(queue)
            return depth is None or depth.messages == 0

        # Twice the size of a file: the broker keeps sending while one is written.
        prefetch = min(2 * self.file_rows, count, MOST_PREFETCH) if self.takes else None
        with QueueReader(
            connector,
            queue,
            prefetch=prefetch,
            most=count,
            comes_back=False,
            limit=share.returns,
        ) as taking:
            for _ in range(count):
                taken = taking.next(self.timeout, empty=is_empty)
                if taken is None:
                    break
                files.add(taken)
                if files.waiting >= self.file_rows or files.waiting_bytes >= _BYTES_IN_A_FILE:
                    self._take_out(taking, files.write())
            self._take_out(taking, files.write())
        if self.takes and not taking.is_settled:
            raise BrokerUnavailable(
                connector.url.address, "the connection was lost while it was being closed"
            )

    def _take_out(self, taking: QueueReader, written: list[Held]) -> None:
        if self.takes:
            taking.ack_all(written)

    def _taken_before(self, share: TaskShare) -> int:
        names = self.storage.names(messages_folder(share.source.name, self.run))
        return sum(rows_of(name) for name in names if name.startswith(f"{share.name}-"))

    def _wait(self, tries: int, error: BrokerUnavailable) -> None:
        waited = sum(reconnect_delay(attempt, 0) for attempt in range(tries))
        if waited > self.timeout:
            raise error
        time.sleep(reconnect_delay(tries - 1, random.random()))


class _Files:
    """The files of one session, which is one connection from its first message to its end."""

    def __init__(
        self,
        storage: Storage,
        run: str,
        source: FailedSource,
        session: str,
        on_rows: Callable[[FailedSource, pyarrow.Table], None],
    ) -> None:
        self._storage = storage
        self._run = run
        self._source = source
        self._session = session
        self._on_rows = on_rows
        self._number = 0
        self._waiting: list[Held] = []
        self.waiting_bytes = 0
        self.rows = 0

    @property
    def waiting(self) -> int:
        """Number of messages that are not in a file yet."""
        return len(self._waiting)

    def add(self, taken: Held) -> None:
        """Add a message to the next file."""
        self._waiting.append(taken)
        self.waiting_bytes += len(taken.received.body) + len(taken.received.properties)
        if taken.received.properties[0] & _HAS_ENCODING:
            self.waiting_bytes += MOST_OF_A_PLAIN_BODY

    def write(self) -> list[Held]:
        """Write the waiting messages; return them once their file is complete and visible."""
        written = self._waiting
        if written:
            rows = table_of(self._source, (taken.received for taken in written))
            name = file_name(self._session, self._number, len(written))
            self._storage.write(
                f"{messages_folder(self._source.name, self._run)}/{name}", parquet_of(rows)
            )
            self._on_rows(self._source, rows)
            self.rows += len(written)
            self._number += 1
            self._waiting = []
            self.waiting_bytes = 0
        return written

    def settled(self) -> None:
        """Record that the broker has all acks of this session, and how many files it has."""
        self._storage.write(settled_mark(self._run, self._session), b"%d" % self._number)
