"""Setting failed messages aside again, from a copy of them."""

from collections.abc import Iterable
from itertools import islice

from redrive.errors import BrokerUnavailable
from redrive.pubsub.blocking.connection import Connector, publishing_connection
from redrive.pubsub.blocking.publisher import Session
from redrive.pubsub.blocking.tickets import ThreadInFlight
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.in_flight import BulkTicket
from redrive.pubsub.reports import PublishReport
from redrive.topology import rewrite
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

_BATCH = 100
_WINDOW = 2000


def restore(
    connector: Connector, exchanges: ExchangeFamily, deliveries: Iterable[Delivery], timeout: float
) -> PublishReport:
    """Publishes copies of failed messages to their failed queues, each confirmed.

    Raises:
        BrokerUnavailable: no broker answered, or it confirmed nothing for `timeout` seconds.
    """
    report = PublishReport()
    many = BulkTicket(report, True, ThreadInFlight())
    session = Session(connector, publishing_connection(connector), None, _WINDOW)
    try:
        session.wait_until_up(timeout)
        left = enumerate(deliveries)
        while batch := [
            (number, _outgoing(one, exchanges, session, many))
            for number, one in islice(left, _BATCH)
        ]:
            _send(connector, session, many, batch, _WINDOW, timeout)
        _send(connector, session, many, [], 1, timeout)
    finally:
        session.close()
    report.failed.sort(key=lambda failed: failed.position)
    return report


def _send(
    connector: Connector,
    session: Session,
    many: BulkTicket[ThreadInFlight],
    batch: list[tuple[int, Outgoing]],
    most_open: int,
    timeout: float,
) -> None:
    many.add(batch)
    session.send([outgoing for _, outgoing in batch])
    if not many.in_flight.wait_until_below(most_open, timeout):
        many.withdraw(lambda outgoing: session.timeout_of(outgoing, timeout))
        raise BrokerUnavailable(
            connector.url.address,
            f"it confirmed nothing for {timeout:g} s",
            "Look at what is in the failed queue now.",
        )


def _outgoing(
    delivery: Delivery,
    exchanges: ExchangeFamily,
    session: Session,
    many: BulkTicket[ThreadInFlight],
) -> Outgoing:
    publish = rewrite.restore(delivery, exchanges, frame_max=session.frame_max)
    name = publish.properties.message_id or ""
    return Outgoing(
        publish.exchange,
        publish.routing_key,
        publish.properties.encode(),
        publish.body,
        name,
        many.settle,
    )
