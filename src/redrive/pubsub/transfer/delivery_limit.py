"""Prevent messages from being returned to a quorum queue more often than its delivery limit allows.

A quorum queue with a delivery limit deletes a message that is returned when its `x-delivery-count`
is at the limit. A policy that lowers the limit also applies to messages already taken. Source:
measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, with a limit of 5. 4.3.6 does not count returns by
nack, but it does count those by closing a channel, which is the only way to keep the order.
"""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery

logger = logging.getLogger("redrive")

_NAME = headers.DELIVERY_COUNT.encode()
_MOST_KEPT = 256 * 1024 * 1024
"""How many bytes of held messages are kept; on many machines the file is in memory."""


@dataclass(frozen=True, slots=True)
class ReturnLimit:
    """How often a queue takes a message back before it deletes it.

    Args:
        returns: its delivery limit; None if unlimited.
        remedy: how to raise it.
        now: queries the current limit, which a policy may have lowered in the meantime; may block.
            None if there is no way to query it.
    """

    returns: int | None
    remedy: str
    now: Callable[[], int | None] | None = None


class DeliveryLimitWatch:
    """A watch on messages taken from a queue that may have a delivery limit; runs on the
    connection's thread.

    A message at the limit can't be returned. A copy of it is published to the end of its queue, and
    the original is acked once the copy is confirmed, so that the message is never lost. When this
    happens, or when a message is one return away from the limit, the consumer is told to stop. Held
    messages are kept in a temporary file until the end, in case a policy lowers the limit.
    """

    def __init__(
        self,
        queue: str,
        limit: ReturnLimit,
        publish: Callable[[Outgoing], None],
        end: Callable[[RedriveError], None],
    ) -> None:
        self._queue = queue
        self._limit = limit
        self._publish = publish
        self._end = end
        self._has_ended = False
        self._kept = _Kept() if limit.now is not None else None
        self.open = 0
        """Copies that are not confirmed yet."""
        self._done: Callable[[], None] | None = None
        """Called once they are confirmed."""

    def may_return(self, received: Received, ack: Callable[[], None], key: object) -> bool:
        """Check whether a message that was taken may be returned; if not, replace it with a
        copy."""
        count = returns_of(received)
        most = self._limit.returns
        may_return = most is None or count < most
        if may_return and self._kept is not None:
            self._kept.add(key, received, count, ack)
        if most is None or count < most - 1:
            return True
        if not may_return:
            self._replace(received, ack)
        if not self._has_ended:
            self._has_ended = True
            self._end(
                ConfigurationError(
                    f"queue {self._queue!r} deletes a message that is returned more than "
                    f"{most:,} times, and some of its messages have been "
                    f"returned {count:,} times: another look could delete them",
                    self._limit.remedy,
                )
            )
        return may_return

    def ask(self) -> int | None:
        """Return the current limit if messages are held and it is lower than before. May block."""
        now = self._limit.now
        limit = now() if now is not None and self._kept else None
        was = self._limit.returns
        return None if limit is None or (was is not None and limit >= was) else limit

    def settled(self, key: object) -> None:
        """Forget a message that is no longer held."""
        if self._kept is not None:
            self._kept.forget(key)

    def lost(self) -> None:
        """Forget all held messages, as the connection was lost."""
        if self._kept is not None:
            self._kept.clear()

    def close(self) -> None:
        """Delete the kept messages; can be called from any thread."""
        if self._kept is not None:
            self._kept.close()

    def replace_beyond(self, limit: int, done: Callable[[], None]) -> None:
        """Replace messages that could be returned when they were taken, but no longer can. The
        reader must have stopped taking messages: if it took a copy, that could not be returned
        either."""
        count = 0
        for received, ack in () if self._kept is None else self._kept.beyond(limit):
            count += 1
            self._replace(received, ack)
        if self.open:
            self._done = done
        else:
            done()
        if count:
            logger.warning(
                "the delivery limit of queue %s has been lowered to %d while its messages were "
                "looked at: %d of them, which it would delete on return, were moved to its end. "
                "%s",
                self._queue,
                limit,
                count,
                self._limit.remedy,
            )
        if self._kept is not None and self._kept.is_full:
            logger.error(
                "the delivery limit of queue %s has been lowered to %d while so many messages were "
                "looked at that not all could be kept: it may delete some of them. %s",
                self._queue,
                limit,
                self._limit.remedy,
            )

    def _replace(self, received: Received, ack: Callable[[], None]) -> None:
        def settled(_: Outgoing, error: RedriveError | None) -> None:
            self.open -= 1
            if error is None:
                ack()
            if not self.open and self._done is not None:
                done, self._done = self._done, None
                done()

        taken = Delivery(
            self._queue,
            received.exchange,
            received.routing_key,
            Properties.parse(received.properties),
            received.body,
        )
        copy = rewrite.pass_on(taken, self._queue)
        self.open += 1
        self._publish(
            Outgoing(
                copy.exchange, copy.routing_key, copy.properties.encode(), copy.body, "", settled
            )
        )


class _KeptMessage(NamedTuple):
    """Where a message is in the file.

    Args:
        received: the message without its properties and body.
        returns: how often it was returned.
        place: offset of the properties; the body follows them.
        sizes: lengths of the properties and the body in bytes.
        ack: takes the message out of its queue.
    """

    received: Received
    returns: int
    place: int
    sizes: tuple[int, int]
    ack: Callable[[], None]


class _Kept:
    """Held messages in a temporary file that nobody else can open. Belongs to the connection's
    thread; other threads may only check whether it is empty."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._held: dict[object, _KeptMessage] = {}
        self.is_full = False
        """Whether the file or its disk is full."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, key: object, received: Received, count: int, ack: Callable[[], None]) -> None:
        """Keep a message if there is room."""
        if self.is_full:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
            place = self._file.tell()
            self._file.write(received.properties)
            self._file.write(received.body)
        except (OSError, ValueError):  # no room, or closed in the meantime
            self.is_full = True
        else:
            sizes = len(received.properties), len(received.body)
            bare = received._replace(properties=b"", body=b"")
            self._held[key] = _KeptMessage(bare, count, place, sizes, ack)
            self.is_full = place > _MOST_KEPT

    def forget(self, key: object) -> None:
        """Stop keeping a message."""
        self._held.pop(key, None)

    def clear(self) -> None:
        """Stop keeping all messages."""
        self._held.clear()
        if self._file is not None:
            self._file.seek(0)

    def close(self) -> None:
        """Delete the file."""
        self.is_full = True
        if self._file is not None:
            # data that could not be flushed is no longer needed
            with contextlib.suppress(OSError):
                self._file.close()

    def beyond(self, limit: int) -> Iterator[tuple[Received, Callable[[], None]]]:
        """Yield the messages that were returned at least `limit` times, each with its ack
        function."""
        for kept in list(self._held.values()):
            if kept.returns < limit or self._file is None:
                continue
            try:
                self._file.seek(kept.place)
                properties, body = map(self._file.read, kept.sizes)
            except (OSError, ValueError):
                self.is_full = True  # the end of the file could not be written
                return
            yield kept.received._replace(properties=properties, body=body), kept.ack


def returns_of(received: Received) -> int:
    """Return how often a quorum queue got a message back, according to its header; 0 without the
    header. A header written by a publisher is ignored: it is only seen on the first delivery."""
    if not received.redelivered or _NAME not in received.properties:
        return 0
    table = Properties.parse(received.properties).headers
    return headers.counted(table.scalar(headers.DELIVERY_COUNT))
