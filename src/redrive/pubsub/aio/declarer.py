"""Apply a topology to a broker.

This runs the blocking client's code on a thread. It happens only once per connection, and this way
both clients declare, compare and report the same.
"""

from redrive.pubsub.aio.threads import on_thread
from redrive.pubsub.blocking import declarer as blocking
from redrive.pubsub.blocking.connection import Connector as BlockingConnector
from redrive.pubsub.blocking.control import send
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.control import Control
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily


def blocking_connector(access: BrokerAccess) -> BlockingConnector:
    """Return a connector for the same broker that uses pika."""
    return BlockingConnector(access.url, access.name, access.credentials, access.ssl_context)


def declare_on_thread(
    access: BrokerAccess, subscription: Subscription, levels: int = 0, *, again: bool = False
) -> BrokerVersion:
    """Declare everything that a subscription needs, and the given number of delay ladder levels.

    This blocks; `declare` does not.
    """
    return blocking.declare(blocking_connector(access), subscription, levels, again=again)


async def declare(access: BrokerAccess, subscription: Subscription) -> BrokerVersion:
    """Declare everything that a subscription needs. Running it again changes nothing."""
    return await on_thread(lambda: declare_on_thread(access, subscription), "redrive-declare")


def declare_exchanges_on_thread(access: BrokerAccess, exchanges: ExchangeFamily) -> None:
    """Declare the exchange family. This blocks."""
    blocking.declare_exchanges(blocking_connector(access), exchanges)


async def declare_ladder(access: BrokerAccess, exchanges: ExchangeFamily, levels: int) -> None:
    """Declare the lowest levels of a family's delay ladder."""
    await on_thread(
        lambda: blocking.declare_ladder(blocking_connector(access), exchanges, levels),
        "redrive-declare",
    )


async def send_control(access: BrokerAccess, exchanges: ExchangeFamily, control: Control) -> None:
    """Append to the control stream, and return once the broker has it."""
    await on_thread(lambda: send(blocking_connector(access), exchanges, control), "redrive-control")
