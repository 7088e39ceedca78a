"""Report the outcome of requeued messages.

This uses the blocking client's reporter, which has its own thread and connection.
"""

from redrive.pubsub.aio.declarer import blocking_connector
from redrive.pubsub.blocking.outcome_reporter import OutcomeReporter
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.names import ExchangeFamily


def reporter(access: BrokerAccess, exchanges: ExchangeFamily, queue: str) -> OutcomeReporter:
    """Return a reporter for one subscription. It only queues what it is given, so it is safe to
    call on an event loop."""
    return OutcomeReporter(blocking_connector(access), exchanges, queue)
