"""Reads the log of parked keys when a worker begins to handle an ordered queue."""

from collections.abc import Callable

from redrive.errors import RedriveError
from redrive.pubsub.stream_consumer import Row, StreamConsumer
from redrive.pubsub.wire_protocol import Wire

_PREFETCH = 500
_ACKED_TOGETHER = 250


class ParkedLog:
    """A consumer of the stream, from its beginning until `read` returns True. Everything here runs
    on the connection's thread.

    Args:
        connection: the connection of the subscriber.
        stream: the stream's name.
        read: takes an entry, and returns whether it is the last one.
        done: called once the last one was read.
        refused: called with the error if the stream can't be read.
    """

    def __init__(
        self,
        connection: Wire,
        stream: str,
        read: Callable[[bytes], bool],
        done: Callable[[], None],
        refused: Callable[[RedriveError], None],
    ) -> None:
        self._read = read
        self._done = done
        self._rows = 0
        self._consumer = StreamConsumer(
            connection,
            stream,
            "first",
            received=self._received,
            refused=refused,
            prefetch=_PREFETCH,
        )

    def _received(self, row: Row) -> None:
        self._rows += 1
        if self._read(row.body):
            self._consumer.close(self._done)
        elif self._rows % _ACKED_TOGETHER == 0:
            self._consumer.ack(self._rows)
