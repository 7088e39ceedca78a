"""Setting failed messages aside again, from a copy of them."""

from collections.abc import Iterable
from itertools import islice

from redrive.errors import BrokerUnavailable
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.publisher import Session
from redrive.pubsub.blocking.waiting import Stream
from redrive.pubsub.outbox import Outgoing
from redrive.pubsub.report import PublishReport
from redrive.topology import moves
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

_BATCH = 100
_WINDOW = 2000


def restore(connector: Connector, exchanges: ExchangeFamily, deliveries: Iterable[Delivery], timeout: float) -> PublishReport:
    """Publishes copies of failed messages to their failed queues, each confirmed.

    Raises:
        BrokerUnavailable: no broker answered, or it confirmed nothing for `timeout` seconds.
    """
    report = PublishReport()
    stream = Stream(report, mandatory=True)
    session = Session(connector, None, _WINDOW)
    try:
        session.wait_until_up(timeout)
        left = enumerate(deliveries)
        while batch := [(number, _outgoing(one, exchanges, session, stream)) for number, one in islice(left, _BATCH)]:
            _send(connector, session, stream, batch, _WINDOW, timeout)
        _send(connector, session, stream, [], 1, timeout)
    finally:
        session.close()
    report.failed.sort(key=lambda failed: failed.position)
    return report


def _send(
    connector: Connector, session: Session, stream: Stream, batch: list[tuple[int, Outgoing]], most_open: int, timeout: float
) -> None:
    stream.add(batch)
    session.send([outgoing for _, outgoing in batch])
    if not stream.wait_until_below(most_open, timeout):
        stream.withdraw(lambda outgoing: session.timeout_of(outgoing, timeout))
        raise BrokerUnavailable(
            connector.url.address, f"it confirmed nothing for {timeout:g} s", "Look at what is in the failed queue now."
        )


def _outgoing(delivery: Delivery, exchanges: ExchangeFamily, session: Session, stream: Stream) -> Outgoing:
    publish = moves.restore(delivery, exchanges, frame_max=session.frame_max)
    name = publish.properties.message_id or ""
    return Outgoing(publish.exchange, publish.routing_key, publish.properties.encode(), publish.body, name, stream.settle)
