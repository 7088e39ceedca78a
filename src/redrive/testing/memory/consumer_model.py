"""A consumer in the in-memory model."""

from typing import Protocol

from redrive.testing.memory.message_copy import MessageCopy


class ConsumerChannel(Protocol):
    """The channel of a consumer as seen by its queue."""

    def deliver(self, consumer: "ConsumerModel", copy: MessageCopy) -> None:
        """Send the consumer a message."""

    def cancelled(self, consumer: "ConsumerModel") -> None:
        """Tell the consumer that its queue is gone."""


class ConsumerModel:
    """A consumer of a queue."""

    def __init__(
        self,
        tag: str,
        receiver: ConsumerChannel,
        *,
        prefetch: int,
        priority: int = 0,
        no_ack: bool = False,
        exclusive: bool = False,
        offset: int = 0,
    ) -> None:
        self.tag = tag
        self.receiver = receiver
        self.prefetch = prefetch
        self.priority = priority
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.offset = offset
        """The next entry that it gets of a stream."""
        self.unsettled = 0

    @property
    def has_room(self) -> bool:
        """Whether it may get another message."""
        return not self.prefetch or self.unsettled < self.prefetch
