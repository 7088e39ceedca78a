"""Tells what became of messages that were sent back: the blocking shell's reporter, which has a thread and a connection of its own."""

from redrive.pubsub.aio.declare import blocking_connector
from redrive.pubsub.blocking.outcomes import OutcomeReporter
from redrive.pubsub.connecting import Destination
from redrive.topology.names import ExchangeFamily


def reporter(destination: Destination, exchanges: ExchangeFamily, queue: str) -> OutcomeReporter:
    """A reporter for one subscription; what it is told it only notes, so that an event loop may tell it."""
    return OutcomeReporter(blocking_connector(destination), exchanges, queue)
