"""Which queue failed messages are read from: the failed queue of a subscription, or any other."""

from dataclasses import dataclass

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage, received_with
from redrive.pubsub.blocking.declarer import Declarer
from redrive.topology import names
from redrive.topology.headers import Delivery
from redrive.topology.model import Queue
from redrive.topology.names import FAILED_SUFFIX, MAX_QUEUE_NAME


@dataclass(frozen=True, slots=True)
class FailedSource:
    """A queue that failed messages are read from.

    Args:
        queue: the queue.
        main: the main queue of the subscription whose failed queue it is; None for a dead-letter
            queue, which redrive did not make.
    """

    queue: str
    main: str | None = None

    @classmethod
    def of_subscription(cls, main: str) -> "FailedSource":
        """The failed queue of a subscription."""
        return cls(names.failed_queue(main), main)

    @property
    def name(self) -> str:
        """What people call it: the main queue of the subscription, or the queue itself."""
        return self.queue if self.main is None else self.main

    @property
    def lock(self) -> str:
        """The name of the exclusive queue that whoever holds messages of it has."""
        return names.look_lock(self.queue.removesuffix(FAILED_SUFFIX))

    def message_of(self, received: Received) -> FailedMessage:
        """A message that was received from it."""
        delivery = Delivery(
            self.queue if self.main is None else self.main,
            received.exchange,
            received.routing_key,
            Properties.parse(received.properties),
            received.body,
            received.redelivered,
            dead_letter_queue=self.queue if self.main is None else "",
        )
        message = (
            FailedMessage.of_dead_letter(delivery) if self.main is None else FailedMessage(delivery)
        )
        return received_with(message, received.properties)


def source_named(name: str, declarer: Declarer, *, literal: bool = False) -> FailedSource | None:
    """The queue that people mean by a name: a subscription's main queue or its failed queue, or any
    queue; None where there is neither."""
    main = name.removesuffix(FAILED_SUFFIX)
    if not literal and len(main.encode()) <= MAX_QUEUE_NAME:
        source = FailedSource.of_subscription(main)
        if declarer.may_exist(Queue(source.queue)):
            return source
        if declarer.may_exist(Queue(names.retry_queue(main))):
            return None  # a subscription that has lost its failed queue: its main queue is none
    return FailedSource(name) if declarer.may_exist(Queue(name)) else None


def no_such_queue(name: str, address: str, *, literal: bool = False) -> ConfigurationError:
    """The error that there is no queue that people could mean by a name."""
    if literal:
        return ConfigurationError(
            f"there is no queue {name!r} at {address}", "Check the name, and the virtual host."
        )
    failed = FailedSource.of_subscription(name.removesuffix(FAILED_SUFFIX)).queue
    return ConfigurationError(
        f"there is no queue {failed!r} at {address}, and no dead-letter queue {name!r}",
        "Check the name of the main queue, the virtual host, and whether it was declared.",
    )


def check_source_name(name: str) -> None:
    """Raises ConfigurationError unless a queue may have this name, whoever made it."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the queue name is {name!r}", "Give the queue a name.")
    names.check_length("the queue name", name)
    if name.endswith(names.RETRY_SUFFIX):
        raise ConfigurationError(
            f"{name!r} is a retry queue: what is in it will be tried again",
            f"Name the main queue: {name.removesuffix(names.RETRY_SUFFIX)!r}.",
        )
