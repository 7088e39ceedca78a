"""Ask every second how many workers consume a queue. Everything here runs on the connection's
thread."""

import logging
from collections.abc import Callable

from redrive.amqp.frames import ChannelEvents, Received, Returned
from redrive.pubsub.wire_protocol import Channel, Wire
from redrive.redaction import in_one_line

logger = logging.getLogger("redrive")

EVERY = 1.0
"""Seconds between two questions."""
_AGAIN_AFTER = 10.0


class ConsumerCount:
    """Counts the consumers of a queue on a channel of its own, for as long as it is wanted.

    Args:
        connection: the connection.
        queue: the queue.
        call_later: runs a function on the connection's thread after some seconds.
        counted: called with each count.
    """

    def __init__(
        self,
        connection: Wire,
        queue: str,
        call_later: Callable[[float, Callable[[], None]], None],
        counted: Callable[[int], None],
    ) -> None:
        self._queue = queue
        self._call_later = call_later
        self._counted = counted
        self._connection = connection
        self._channel: Channel | None = None
        self._is_over = self._is_told = False
        self._open()

    def stop(self) -> None:
        """Stop asking."""
        self._is_over = True
        channel, self._channel = self._channel, None
        if channel is not None and channel.is_open:
            channel.close(lambda: None)

    def _open(self) -> None:
        if self._connection.is_open and not self._is_over:
            events = ChannelEvents(_no_delivery, _no_return, _no_confirm, self._closed, _no_cancel)
            self._connection.open_channel(events, self._opened)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        if self._is_over:
            self.stop()
        else:
            self._ask()

    def _ask(self) -> None:
        if self._channel is not None and self._channel.is_open and not self._is_over:
            self._channel.count_consumers(self._queue, self._answered)

    def _answered(self, count: int) -> None:
        if not self._is_over:
            self._counted(count)
            self._call_later(EVERY, self._ask)

    def _closed(self, code: int, text: str) -> None:
        self._channel = None
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "queue %s: its share of the rate is not known; the last one stays, if any: %d %s",
                self._queue,
                code,
                in_one_line(text),
            )
        self._call_later(_AGAIN_AFTER, self._open)


def _no_delivery(_: Received) -> None:
    """Ignore deliveries: nothing is consumed on this channel."""


def _no_return(_: Returned) -> None:
    """Ignore returns: nothing is published on this channel."""


def _no_confirm(_: int, __: bool, ___: bool) -> None:
    """Ignore confirms, as above."""


def _no_cancel() -> None:
    """Ignore cancels, as above."""
