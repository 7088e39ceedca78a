"""Applies a topology to a broker.

The same code as in the blocking shell does it, on a thread: it is done once a connection, and what
is declared, compared and said of a refusal is then the same.
"""

from redrive.pubsub.aio.threads import on_thread
from redrive.pubsub.blocking import declarer as blocking
from redrive.pubsub.blocking.connection import Connector as BlockingConnector
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily


def blocking_connector(access: BrokerAccess) -> BlockingConnector:
    """How pika connects to the same broker."""
    return BlockingConnector(access.url, access.name, access.credentials, access.ssl_context)


def declare_on_thread(
    access: BrokerAccess, subscription: Subscription, levels: int = 0, *, again: bool = False
) -> BrokerVersion:
    """Declares everything that a subscription needs, and so many levels of the delay ladder. It
    blocks; `declare` does not."""
    return blocking.declare(blocking_connector(access), subscription, levels, again=again)


async def declare(access: BrokerAccess, subscription: Subscription) -> BrokerVersion:
    """Declares everything that a subscription needs; a second run changes nothing."""
    return await on_thread(lambda: declare_on_thread(access, subscription), "redrive-declare")


def declare_exchanges_on_thread(access: BrokerAccess, exchanges: ExchangeFamily) -> None:
    """Declares the exchange family. It blocks."""
    blocking.declare_exchanges(blocking_connector(access), exchanges)


async def declare_ladder(access: BrokerAccess, exchanges: ExchangeFamily, levels: int) -> None:
    """Declares the lowest levels of a family's delay ladder."""
    await on_thread(
        lambda: blocking.declare_ladder(blocking_connector(access), exchanges, levels),
        "redrive-declare",
    )
