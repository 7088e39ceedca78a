"""What both shells make of their client: a connection that gives and takes whole frames, and its
channels."""

import logging
from collections.abc import Callable
from typing import Protocol

from redrive.amqp.frames import ChannelEvents
from redrive.redaction import in_one_line
from redrive.topology.broker_version import BrokerVersion

logger = logging.getLogger("redrive")

Done = Callable[[], None]


HUNG = "redrive-hung"
"""The argument of a consumer that says how many of its handlers run on though their time is up."""


class Channel(Protocol):
    """A channel. The broker does what it is asked for in order; `done` is called once it has."""

    @property
    def number(self) -> int:
        """Its number, for frames."""

    @property
    def is_open(self) -> bool:
        """Whether it is."""

    def confirm(self, done: Done) -> None:
        """Has publishes confirmed."""

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """How many unsettled deliveries consumers that are begun from now on may have; 0 for any
        number."""

    def consume(
        self,
        queue: str,
        done: Done | None = None,
        *,
        priority: int | None = None,
        offset: int | str | None = None,
        timeout: int | None = None,
        hung: int | None = None,
    ) -> str:
        """Begins to consume, with a priority among the queue's consumers where one is given, of a
        stream from an offset on, or from `first`, and with so many milliseconds for which a
        delivery may stay unsettled; it may tell how many handlers hang. Returns the consumer's
        tag."""

    def cancel(self, tag: str, done: Done) -> None:
        """Ends a consumer."""

    def close(self, done: Done) -> None:
        """Ends the channel; what is unsettled on it goes back to its queue. Nothing comes of it
        after this."""


class Wire(Protocol):
    """A connection. All of it belongs to one thread."""

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""

    @property
    def frame_max(self) -> int:
        """The negotiated largest frame, in bytes; 0 for no limit."""

    @property
    def is_open(self) -> bool:
        """Whether it is."""

    def write(self, data: bytes) -> None:
        """Sends whole frames. On a connection that is closing they are dropped."""

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Opens a channel; its messages and confirms go to `events`."""

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Has `blocked` called with the broker's reason when it takes no messages for now, and
        `unblocked` when it does again."""


def logged_block(
    blocked: Callable[[str], None], unblocked: Done
) -> tuple[Callable[[str], None], Done]:
    """Does what these do, and says in the log once for a connection that its broker takes no
    messages, however many use it."""

    def log_and_block(reason: str) -> None:
        logger.warning("the broker takes no messages: %s", in_one_line(reason))
        blocked(reason)

    def log_and_unblock() -> None:
        logger.info("the broker takes messages again")
        unblocked()

    return log_and_block, log_and_unblock
