"""Append to and read the stream at the broker in which a team shares its journal.

Entries stay in the stream after they were read, so each copy of the journal continues from its own
position. There is no reliable way to ask for the end of a stream. Source: measured on RabbitMQ
3.10.8, 4.0.5 and 4.3.6: the depth that a passive declare returns lags by seconds, and a consumer
that starts beyond the end never gets anything. Readers therefore append a mark, and read up to it.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from redrive.amqp.properties import Properties
from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
    RedriveError,
    TopologyMismatch,
)
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.blocking.stream_reader import StreamReader
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.stream_consumer import Row
from redrive.pubsub.transfer.confirmed_publisher import Sending
from redrive.topology.model import Queue
from redrive.topology.names import JOURNAL, job_lock

DEFAULT_MAX_AGE = timedelta(days=365)
"""How long the broker keeps an entry by default. Set when the stream is first declared."""

_MOST_BYTES = 1_000_000_000
"""Maximum size of the stream in bytes, so that nobody can fill the broker's disk with entries."""
_SEGMENT_BYTES = 50_000_000
"""A broker drops old entries by whole segments, and never the newest one. Source:
https://www.rabbitmq.com/docs/streams#retention"""
_ANSWERS_WITHIN = 10.0
"""Seconds to wait for a broker's answer, or for the next entry."""
_TAKES_WITHIN = 30.0
"""Seconds to wait for a broker to confirm appended entries."""
_GLANCE = 0.2
_QUIET = 1.0
"""Seconds without an entry that mark the end for readers who may not append a mark."""
_DIES_WITHIN = 3.0
"""Seconds to wait for the lock of a process that was killed."""
_PERSISTENT = 2


class JobLocked(RedriveError):
    """Somebody else runs the job."""


class StreamUnusable(RedriveError):
    """The stream can't be used, although the broker may work otherwise."""


class JournalStream:
    """The stream of one broker and virtual host."""

    def __init__(self, url: str, max_age: timedelta = DEFAULT_MAX_AGE) -> None:
        self._connector = Connector(url, default_name("journal"))
        self._max_age = max_age
        self._sending: Sending | None = None
        self.has_lock = False
        """Whether this connection holds a job's lock."""

    @property
    def user(self) -> str:
        """The broker user; empty if the user logs in with a certificate."""
        return self._connector.url.username

    def exists(self) -> bool:
        """Check whether the stream exists; returns True if this user isn't allowed to ask."""
        with _usable(), declaring(self._connector) as declarer:
            return declarer.may_exist(Queue(JOURNAL))

    def declare(self) -> None:
        """Create the stream if it doesn't exist."""
        arguments: dict[str, str | int] = {
            "x-queue-type": "stream",
            "x-max-age": f"{int(self._max_age.total_seconds())}s",
            "x-max-length-bytes": _MOST_BYTES,
            "x-stream-max-segment-size-bytes": _SEGMENT_BYTES,
        }
        with _usable(), declaring(self._connector) as declarer:
            # An existing stream may have another maximum age: its first declaration counts.
            if not declarer.may_exist(Queue(JOURNAL)):
                declarer.declare(Queue(JOURNAL, arguments))

    def open(self, job: str | None = None) -> None:
        """Connect for appending, and lock the job if one is given."""
        if self.has_lock or (self._sending is not None and not self._sending.is_up):
            self.close()
        try:
            self._connect(None if job is None else job_lock(job))
        except PermissionDenied:
            if job is None:
                raise
            self._connect(None)  # a user who may not lock the job may run it all the same

    def _connect(self, lock: str | None) -> None:
        sending = self._sending or Sending(self._connector).__enter__()
        if lock is not None:
            sending.lock(lock)
        try:
            sending.wait_until_up(_ANSWERS_WITHIN if lock is None else _DIES_WITHIN)
        except BaseException as error:
            locked_out = sending.locked_out
            sending.__exit__(None, None, None)
            self._sending = None
            if isinstance(error, BrokerUnavailable) and locked_out:
                raise JobLocked from error
            raise
        self._sending = sending
        self.has_lock = lock is not None

    def append(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Append entries, each with its id, in order, and wait until the stream has them.

        Entries in flight when the connection is lost are appended again, and may then exist twice.
        """
        if self._sending is None:
            self.open()
        assert self._sending is not None
        sending = self._sending
        left = dict(entries)
        deadline = time.monotonic() + _TAKES_WITHIN
        while left:
            try:
                sending.wait_until_up(_ANSWERS_WITHIN)
            except BrokerUnavailable as error:
                if sending.locked_out:
                    raise JobLocked from error
                raise
            confirms = _Confirms(left)
            sending.send(
                [
                    Outgoing("", JOURNAL, self._properties(id_), body, id_, confirms.settled)
                    for id_, body in left.items()
                ]
            )
            with _usable():
                confirms.wait(sending, deadline)
            left = {id_: left[id_] for id_ in confirms.cut_off}

    def _properties(self, id_: str) -> bytes:
        return Properties(
            content_type="application/json",
            delivery_mode=_PERSISTENT,
            message_id=id_,
            user_id=self.user or None,
            app_id="redrive",
        ).encode()

    def is_locked(self, job: str) -> bool:
        """Check whether somebody runs a job."""
        with declaring(self._connector) as declarer:
            return declarer.is_locked(job_lock(job))

    def read(self, start: int | None, mark: str) -> Iterator[Row]:
        """Iterate over the entries of the stream up to a mark."""
        with _usable(), self._reader("first" if start is None else start) as reader:
            while (row := reader.next(_QUIET if not mark else _ANSWERS_WITHIN)) is not None:
                yield row
                if mark and row.message_id == mark:
                    return
            if mark:
                raise BrokerUnavailable(
                    self._connector.url.address,
                    f"the stream {JOURNAL!r} delivered nothing within {_ANSWERS_WITHIN:g} s",
                    "See the broker's log.",
                )

    def follow(self) -> StreamReader:
        """Return a reader of the entries appended from about now on; the caller closes it."""
        return self._reader("last").__enter__()

    def _reader(self, start: int | str) -> StreamReader:
        return StreamReader(self._connector, JOURNAL, start, self._sending)

    def close(self) -> None:
        """Disconnect, which releases the lock."""
        if self._sending is not None:
            self._sending.__exit__(None, None, None)
        self._sending = None
        self.has_lock = False


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Turn errors of the stream into StreamUnusable: the user's request didn't cause them."""
    try:
        yield
    except (ConfigurationError, TopologyMismatch) as error:
        raise StreamUnusable(str(error)) from error


class _Confirms:
    """Waits for the confirms of messages sent together."""

    def __init__(self, ids: Collection[str]) -> None:
        self._left = len(ids)
        self._failure: RedriveError | None = None
        self._lost: BrokerUnavailable | None = None
        self._changed = threading.Condition()
        self.cut_off: list[str] = []
        """Ids of messages that the stream may or may not have, because their connection was lost.
        """

    def settled(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        """Record that a message was confirmed, or failed. Called on the I/O thread."""
        with self._changed:
            self._left -= 1
            if isinstance(error, BrokerUnavailable):
                self.cut_off.append(outgoing.message_id)
                self._lost = error
            else:
                self._failure = self._failure or error
            if not self._left:
                self._changed.notify_all()

    def wait(self, sending: Sending, deadline: float) -> None:
        """Wait for all confirms, until a time of the monotonic clock."""
        with self._changed:
            while self._left and time.monotonic() < deadline and not sending.blocked:
                self._changed.wait(_GLANCE)
            if self._failure is not None:
                raise self._failure
            if self._lost is not None and time.monotonic() >= deadline:
                raise self._lost
            if self._left:
                reason = sending.blocked or f"it confirmed nothing within {_TAKES_WITHIN:g} s"
                raise BrokerUnavailable(
                    "the journal's broker", f"it accepts no messages: {reason}", "See its log."
                )
