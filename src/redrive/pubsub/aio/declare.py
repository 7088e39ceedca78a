"""Applies a topology to a broker.

The same code as in the blocking shell does it, on a thread: it is done once a connection, and what is declared, compared and said of a
refusal is then the same.
"""

from redrive.pubsub.aio.threads import on_thread
from redrive.pubsub.blocking import declare as blocking
from redrive.pubsub.blocking.connection import Connector as BlockingConnector
from redrive.pubsub.connecting import Destination
from redrive.topology.broker import BrokerVersion
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily


def blocking_connector(destination: Destination) -> BlockingConnector:
    """How pika connects to the same broker."""
    return BlockingConnector(destination.url, destination.name, destination.credentials, destination.ssl_context)


def declare_on_thread(destination: Destination, subscription: Subscription, levels: int = 0, *, again: bool = False) -> BrokerVersion:
    """Declares everything that a subscription needs, and so many levels of the delay ladder. It blocks; `declare` does not."""
    return blocking.declare(blocking_connector(destination), subscription, levels, again=again)


async def declare(destination: Destination, subscription: Subscription) -> BrokerVersion:
    """Declares everything that a subscription needs; a second run changes nothing.

    Returns:
        The broker's version.

    Raises:
        TopologyMismatch, ConfigurationError, PermissionDenied, BrokerUnavailable: as the blocking one.
    """
    return await on_thread(lambda: declare_on_thread(destination, subscription), "redrive-declare")


def declare_exchanges_on_thread(destination: Destination, exchanges: ExchangeFamily) -> None:
    """Declares the exchange family. It blocks."""
    blocking.declare_exchanges(blocking_connector(destination), exchanges)


async def declare_ladder(destination: Destination, exchanges: ExchangeFamily, levels: int) -> None:
    """Declares the lowest levels of a family's delay ladder."""
    await on_thread(lambda: blocking.declare_ladder(blocking_connector(destination), exchanges, levels), "redrive-declare")
