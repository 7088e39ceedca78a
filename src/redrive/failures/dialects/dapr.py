"""Dapr's pub/sub on RabbitMQ.

Source: dapr/components-contrib 1.18.0-rc.1, pubsub/rabbitmq/rabbitmq.go and pubsub/envelope.go;
dapr/dapr, the same, pkg/runtime/subscription/subscription.go. With `enableDeadLetter` it nacks a
message as it came; with a `deadLetterTopic` it publishes its body there, which names the topic that
it failed in. Neither says anything of the error.
"""

from redrive.failures.dialects.clues import Clues, text_of
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
from redrive.failures.dialects.renewal import with_json
from redrive.topology.headers import Delivery

_NAMES = {"pubsubname", "specversion", "topic"}
_EXPIRATION = "expiration"


def read(clues: Clues) -> FailureNotes | None:
    """Reads what Dapr leaves."""
    if not clues.body_has(b'"pubsubname"', b'"specversion"'):
        return None
    if not clues.envelope.keys() >= _NAMES:
        return None
    if clues.death:
        return FailureNotes("dapr", failed_at=clues.died_at, queue=clues.died_in)
    # An exchange is called as its topic is. It is a fanout unless told otherwise.
    return FailureNotes("dapr", exchange=text_of(clues.envelope["topic"]), routing_key="")


def _renew(delivery: Delivery) -> Delivery:
    """The message without an end, which has passed: Dapr drops an event after it."""
    event = Clues(delivery).envelope
    if not event.get(_EXPIRATION):
        return delivery
    return with_json(
        delivery, {name: value for name, value in event.items() if name != _EXPIRATION}
    )


DIALECT = Dialect("dapr", read, _renew)
