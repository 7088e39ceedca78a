"""Sees to it that no message is returned to a quorum queue for which that would be once too often.

A quorum queue with a delivery limit deletes a message that is returned when its `x-delivery-count`
is at the limit. A policy that lowers the limit holds for what is taken already. Source: measured on
RabbitMQ 3.10.8, 4.0.5 and 4.3.6, with a limit of 5. 4.3.6 does not count what a nack returns, but
what the end of a channel does, which alone keeps the order.
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
"""Bytes of what is held that are kept; on many machines the file is in memory."""


@dataclass(frozen=True, slots=True)
class ReturnLimit:
    """How often a queue takes a message back before it deletes it.

    Args:
        returns: its delivery limit; None for any number.
        remedy: what raises it.
        now: asks for the limit as it is now, which a policy may have lowered meanwhile; it may
            block. None where nobody can be asked.
    """

    returns: int | None
    remedy: str
    now: Callable[[], int | None] | None = None


class DeliveryLimitWatch:
    """Watches what is taken from a queue that may have a delivery limit; on the thread of its
    connection.

    A message at the limit can't be returned. A copy is published to the end of its queue, and it is
    acked once that is confirmed, so that it is always somewhere. Then, and where a message is one
    return away from the limit, whoever takes messages is told to end. What is held when a policy
    lowers the limit is kept in a temporary file until then.
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
        """Waits for them."""

    def may_return(self, received: Received, ack: Callable[[], None], key: object) -> bool:
        """Looks at a message that was taken; whether it may be returned. One that may not is
        replaced by its copy."""
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
                    f"queue {self._queue!r} deletes a message at its "
                    f"{most + 1:,}. return, and some of its messages have been "
                    f"returned {count:,} times: another look could delete them",
                    self._limit.remedy,
                )
            )
        return may_return

    def ask(self) -> int | None:
        """Ask for the limit as it is now; from a thread that may wait. None for what it was."""
        now = self._limit.now
        limit = now() if now is not None and self._kept else None
        was = self._limit.returns
        return None if limit is None or (was is not None and limit >= was) else limit

    def settled(self, key: object) -> None:
        """Forget a message, which is held no more."""
        if self._kept is not None:
            self._kept.forget(key)

    def lost(self) -> None:
        """Forget all that was held, with the connection."""
        if self._kept is not None:
            self._kept.clear()

    def close(self) -> None:
        """Keep nothing any more; from any thread."""
        if self._kept is not None:
            self._kept.close()

    def replace_beyond(self, limit: int, done: Callable[[], None]) -> None:
        """Replace what could be returned when it was taken, and can't be now. Nothing may be taken
        any more: a copy that is taken, too, could not be returned either."""
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
                "looked at: %d of them, which it would delete at their return, are put at its end. "
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
        received: the message without its properties and its body.
        returns: how often it was returned.
        place: where these begin.
        sizes: how many bytes they have.
        ack: takes the message out of its queue.
    """

    received: Received
    returns: int
    place: int
    sizes: tuple[int, int]
    ack: Callable[[], None]


class _Kept:
    """What is held, in a temporary file that nobody else can open. On the connection's thread, and
    asked from another one whether there is something."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._held: dict[object, _KeptMessage] = {}
        self.is_full = False
        """Whether the file, or its disk, has room for no more."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, key: object, received: Received, count: int, ack: Callable[[], None]) -> None:
        """Keep a message, if there is room."""
        if self.is_full:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
            place = self._file.tell()
            self._file.write(received.properties)
            self._file.write(received.body)
        except (OSError, ValueError):  # no room, or closed meanwhile
            self.is_full = True
        else:
            sizes = len(received.properties), len(received.body)
            bare = received._replace(properties=b"", body=b"")
            self._held[key] = _KeptMessage(bare, count, place, sizes, ack)
            self.is_full = place > _MOST_KEPT

    def forget(self, key: object) -> None:
        """Keep a message no more."""
        self._held.pop(key, None)

    def clear(self) -> None:
        """Keep nothing of what was held."""
        self._held.clear()
        if self._file is not None:
            self._file.seek(0)

    def close(self) -> None:
        """Delete the file."""
        self.is_full = True
        if self._file is not None:
            # what it could not write is of no use any more
            with contextlib.suppress(OSError):
                self._file.close()

    def beyond(self, limit: int) -> Iterator[tuple[Received, Callable[[], None]]]:
        """Give the messages that were returned so often, and what acks each."""
        for kept in list(self._held.values()):
            if kept.returns < limit or self._file is None:
                continue
            try:
                self._file.seek(kept.place)
                properties, body = map(self._file.read, kept.sizes)
            except (OSError, ValueError):
                self.is_full = True  # the last of it could not be written
                return
            yield kept.received._replace(properties=properties, body=body), kept.ack


def returns_of(received: Received) -> int:
    """How often a quorum queue says that it got a message back; 0 where it says nothing. What a
    publisher has written is on the first delivery alone, and counts for nothing."""
    if not received.redelivered or _NAME not in received.properties:
        return 0
    table = Properties.parse(received.properties).headers
    return headers.counted(table.scalar(headers.DELIVERY_COUNT))
