"""Where requeued messages are sent."""

from dataclasses import dataclass

from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.way_back import WayBack


@dataclass(frozen=True, slots=True)
class Direction:
    """Where requeued messages are sent: each to the queue that it failed in, unless something else
    is said.

    Args:
        to: a queue for all of them; None for each one's own.
        via: whether they are published as they were first, by their exchange and key: everything
            that is bound there gets a copy.

    Raises:
        ConfigurationError: both are given.
    """

    to: str | None = None
    via: bool = False

    def __post_init__(self) -> None:
        if self.via and self.to is not None:
            raise ConfigurationError(
                "a queue to send to and the way by the first exchange exclude each other",
                "Leave out `to`, or `via`.",
            )

    def way_of(self, message: FailedMessage) -> WayBack | None:
        """The way of a message; None where nothing says it: such a message stays where it is."""
        if self.to is not None:
            return WayBack("", self.to)
        return message.first_way if self.via else message.way_back
