"""Write and read the pauses and rates of subscriptions."""

from datetime import UTC, datetime

from redrive.errors import BrokerUnavailable, PermissionDenied
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.blocking.stream_reader import StreamReader
from redrive.topology.control import Control, control_queue, controls_of
from redrive.topology.names import ExchangeFamily

_QUIET = 0.3
"""Seconds without an entry after which the stream counts as read."""
_ANSWERS_WITHIN = 10.0


def send(connector: Connector, exchanges: ExchangeFamily, control: Control) -> None:
    """Append to the control stream, and return once the broker has it."""
    with declaring(connector, publishes=True) as declarer:
        try:
            declarer.declare(control_queue(exchanges))
        except PermissionDenied:
            if not declarer.may_exist(control_queue(exchanges)):
                raise
        declarer.append(exchanges.control, control.encode(), connector.url.username)


def read(connector: Connector, exchanges: ExchangeFamily) -> dict[str, Control]:
    """Return what is in force, by queue.

    Raises:
        PermissionDenied: the user may not read the stream.
        BrokerUnavailable: no broker answered.
    """
    stream = exchanges.control
    with declaring(connector) as declarer:
        if not declarer.may_exist(control_queue(exchanges)):
            return {}
    entries: list[tuple[bytes, str]] = []
    with StreamReader(connector, stream, "first") as reader:
        if not reader.wait_until_begun(_ANSWERS_WITHIN):
            raise BrokerUnavailable(
                connector.url.address, f"the stream {stream!r} did not answer", "See its log."
            )
        while (row := reader.next(_QUIET)) is not None:
            entries.append((row.body, row.user))
    return controls_of(entries, datetime.now(UTC))
