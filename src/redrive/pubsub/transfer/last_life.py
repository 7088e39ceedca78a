"""Sees to it that no message is returned to a quorum queue for which that would be once too often.

A queue with a delivery limit deletes a message that is returned when its `x-delivery-count` is at
the limit. Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, with a limit of 5. 4.3.6 does not
count what a nack returns, but what the end of a channel does, which alone keeps the order.
"""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery

_NAME = headers.DELIVERY_COUNT.encode()


@dataclass(frozen=True, slots=True)
class ReturnLimit:
    """How often a queue takes a message back before it deletes it.

    Args:
        returns: its delivery limit.
        remedy: what raises it.
    """

    returns: int
    remedy: str


class LastLife:
    """Watches what is taken from a queue with a delivery limit; on the thread of its connection.

    A message at the limit can't be returned. A copy is published to the end of its queue, and it is
    acked once that is confirmed, so that it is always somewhere. Then, and where a message is one
    return away from the limit, whoever takes messages is told to end.

    Args:
        queue: the queue.
        limit: how often it takes a message back.
        publish: publishes a copy.
        end: told, once, why nothing more is to be taken.
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
        self.open = 0
        """Copies that are not confirmed yet."""

    def may_return(self, received: Received, ack: Callable[[], None]) -> bool:
        """Looks at a message that was taken; whether it may be returned. One that may not is
        replaced by its copy.

        Args:
            received: the message.
            ack: takes it out of the queue.
        """
        count = returns_of(received)
        if count < self._limit.returns - 1:
            return True
        if count >= self._limit.returns:
            self._replace(received, ack)
        if not self._has_ended:
            self._has_ended = True
            self._end(
                ConfigurationError(
                    f"queue {self._queue!r} deletes a message at its "
                    f"{self._limit.returns + 1:,}. return, and some of its messages have been "
                    f"returned {count:,} times: another look could delete them",
                    self._limit.remedy,
                )
            )
        return count < self._limit.returns

    def _replace(self, received: Received, ack: Callable[[], None]) -> None:
        def settled(_: Outgoing, error: RedriveError | None) -> None:
            self.open -= 1
            if error is None:
                ack()

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


def returns_of(received: Received) -> int:
    """How often a quorum queue says that it got a message back; 0 where it says nothing. What a
    publisher has written is on the first delivery alone, and counts for nothing."""
    if not received.redelivered or _NAME not in received.properties:
        return 0
    table = Properties.parse(received.properties).headers
    return headers.counted(table.scalar(headers.DELIVERY_COUNT))
