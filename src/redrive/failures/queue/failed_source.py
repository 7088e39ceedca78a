"""The queue that failed messages are read from: a subscription's failed queue, or any other
queue."""

from dataclasses import dataclass

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage, received_with
from redrive.pubsub.blocking.declarer import Declarer
from redrive.topology import names
from redrive.topology.headers import Delivery
from redrive.topology.model import Queue
from redrive.topology.names import FAILED_SUFFIX, MAX_QUEUE_NAME


@dataclass(frozen=True, slots=True)
class FailedSource:
    """A queue that failed messages are read from.

    Args:
        queue: the queue's name.
        main: the main queue of the subscription whose failed queue it is; None for its failed
            queue for a kind of error, and a dead-letter queue that redrive did not create.
    """

    queue: str
    main: str | None = None

    @classmethod
    def of_subscription(cls, main: str) -> "FailedSource":
        """Return the failed queue of a subscription."""
        return cls(names.failed_queue(main), main)

    @classmethod
    def with_key(cls, key: str) -> "FailedSource":
        """Return the queue that messages are set aside in with this routing key."""
        is_of_a_kind = names.queue_of_failed_kind(key) is not None
        return cls(key) if is_of_a_kind else cls.of_subscription(key)

    @property
    def name(self) -> str:
        """The name that users give: the subscription's main queue, or the queue itself."""
        return self.queue if self.main is None else self.main

    @property
    def description(self) -> str:
        """What kind of queue it is, if it is not a subscription's usual failed queue."""
        main = names.queue_of_failed_kind(self.queue)
        if main is None:
            return "a dead-letter queue that redrive did not make"
        return f"the failed queue of {main} for a kind of error"

    @property
    def lock(self) -> str:
        """The name of the exclusive queue that serves as a lock while messages of this queue are
        held."""
        return names.look_lock(self.queue.removesuffix(FAILED_SUFFIX))

    def message_of(self, received: Received) -> FailedMessage:
        """Return a received message as a failed message of this queue."""
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
    """Return the queue with a name that users give: a main queue, a failed queue, or any other
    queue; None if there is no such queue."""
    main = name.removesuffix(FAILED_SUFFIX)
    if not literal and len(main.encode()) <= MAX_QUEUE_NAME:
        source = FailedSource.of_subscription(main)
        if declarer.may_exist(Queue(source.queue)):
            return source
        if declarer.may_exist(Queue(names.retry_queue(main))):
            return None  # a subscription without its failed queue; its main queue is not one
    return FailedSource(name) if declarer.may_exist(Queue(name)) else None


def no_such_queue(name: str, address: str, *, literal: bool = False) -> ConfigurationError:
    """Return the error that no queue matches a name."""
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
    """Raise ConfigurationError unless this is a possible name of a queue of failed messages."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"the queue name is {name!r}", "Give the queue a name.")
    names.check_length("the queue name", name)
    if name.endswith(names.RETRY_SUFFIX):
        raise ConfigurationError(
            f"{name!r} is a retry queue: its messages will be retried",
            f"Name the main queue: {name.removesuffix(names.RETRY_SUFFIX)!r}.",
        )
