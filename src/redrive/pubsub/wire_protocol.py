"""The interface that both shells give to their client library: a connection that sends and receives
whole frames, and its channels."""

import logging
from collections.abc import Callable
from typing import Protocol

from redrive.amqp.frames import ChannelEvents
from redrive.redaction import in_one_line
from redrive.topology.broker_version import BrokerVersion

logger = logging.getLogger("redrive")

Done = Callable[[], None]


HUNG = "redrive-hung"
"""Consumer argument with the number of its handlers that are still running after their timeout."""
DOWN = "redrive-down"
"""Consumer argument with the name of what is down, so that few messages are taken, if any."""


class Channel(Protocol):
    """A channel. The broker processes requests in order; `done` is called after each."""

    @property
    def number(self) -> int:
        """Its number, for frames."""

    @property
    def is_open(self) -> bool:
        """Whether it is open."""

    def confirm(self, done: Done) -> None:
        """Turn on confirms for publishes."""

    def limit(self, prefetch: int, done: Done | None = None) -> None:
        """Set how many unsettled deliveries consumers started from now on may have; 0 for no
        limit."""

    def consume(
        self,
        queue: str,
        done: Done | None = None,
        *,
        priority: int | None = None,
        offset: int | str | None = None,
        timeout: int | None = None,
        hung: int | None = None,
        down: str | None = None,
    ) -> str:
        """Start consuming; return the consumer's tag.

        `priority` is relative to the queue's other consumers, `offset` is where to start in a
        stream, as a number or `first`, `timeout` is how many milliseconds a delivery may stay
        unsettled, `hung` is the number of hanging handlers to report, and `down` is the name of
        what is down.
        """

    def count_consumers(self, queue: str, counted: Callable[[int], None]) -> None:
        """Call `counted` with the number of a queue's consumers. The broker closes the channel if
        there is no such queue, or the user may not ask."""

    def cancel(self, tag: str, done: Done) -> None:
        """End a consumer."""

    def close(self, done: Done) -> None:
        """Close the channel; unsettled messages return to their queue. It delivers nothing after
        this call."""


class Wire(Protocol):
    """A connection, to be used from one thread only."""

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""

    @property
    def frame_max(self) -> int:
        """The negotiated largest frame, in bytes; 0 for no limit."""

    @property
    def is_open(self) -> bool:
        """Whether it is open."""

    def write(self, data: bytes) -> None:
        """Send whole frames; they are dropped if the connection is closing."""

    def open_channel(self, events: ChannelEvents, opened: Callable[[Channel], None]) -> None:
        """Open a channel; its messages and confirms go to `events`."""

    def on_blocked(self, blocked: Callable[[str], None], unblocked: Done) -> None:
        """Call `blocked` with the broker's reason when it stops accepting messages, and `unblocked`
        when it accepts them again."""


def logged_block(
    blocked: Callable[[str], None], unblocked: Done
) -> tuple[Callable[[str], None], Done]:
    """Wrap these callbacks so that blocking is also logged, once per connection however many use
    it."""

    def log_and_block(reason: str) -> None:
        logger.warning("the broker takes no messages: %s", in_one_line(reason))
        blocked(reason)

    def log_and_unblock() -> None:
        logger.info("the broker takes messages again")
        unblocked()

    return log_and_block, log_and_unblock
