"""Failure notes of Dapr's pub/sub on RabbitMQ.

Source: dapr/components-contrib 1.18.0-rc.1, pubsub/rabbitmq/rabbitmq.go and pubsub/envelope.go;
dapr/dapr, the same, pkg/runtime/subscription/subscription.go. With `enableDeadLetter` it nacks a
message unchanged; with a `deadLetterTopic` it publishes the body there, which names the topic that
the message failed in. Neither records the error.
"""

from redrive.failures.message.dialects.clues import Clues, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import with_json
from redrive.topology.headers import Delivery

_NAMES = {"pubsubname", "specversion", "topic"}
_EXPIRATION = "expiration"


def read(clues: Clues) -> FailureNotes | None:
    if not clues.body_has(b'"pubsubname"', b'"specversion"'):
        return None
    if not clues.envelope.keys() >= _NAMES:
        return None
    if clues.death:
        return FailureNotes("dapr", failed_at=clues.died_at, queue=clues.died_in)
    # The exchange has the topic's name. It is a fanout unless configured otherwise.
    return FailureNotes("dapr", exchange=text_of(clues.envelope["topic"]), routing_key="")


def _renew(delivery: Delivery) -> Delivery:
    """Remove the expiration, which has passed by now: Dapr drops expired events."""
    event = Clues(delivery).envelope
    if not event.get(_EXPIRATION):
        return delivery
    return with_json(
        delivery, {name: value for name, value in event.items() if name != _EXPIRATION}
    )


DIALECT = Dialect("dapr", read, _renew)
