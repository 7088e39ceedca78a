"""Tells what became of messages that were requeued: the blocking shell's reporter, which has a
thread and a connection of its own."""

from redrive.pubsub.aio.declarer import blocking_connector
from redrive.pubsub.blocking.outcome_reporter import OutcomeReporter
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.names import ExchangeFamily


def reporter(access: BrokerAccess, exchanges: ExchangeFamily, queue: str) -> OutcomeReporter:
    """A reporter for one subscription; what it is told it only notes, so that an event loop may
    tell it."""
    return OutcomeReporter(blocking_connector(access), exchanges, queue)
