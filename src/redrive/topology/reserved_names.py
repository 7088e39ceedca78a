"""Names that redrive needs for something else beside a file's subscriptions: there would be two
things of one name."""

from collections.abc import Iterator, Sequence

from redrive.topology import names
from redrive.topology.delay_route import LEVELS
from redrive.topology.migration import TRANSIT_SUFFIX
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily


def clashes(subscriptions: Sequence[Subscription]) -> Iterator[tuple[Subscription, str]]:
    """The subscriptions whose queue or exchange has such a name, and what is wrong with it."""
    ladders = {
        name: family.main
        for family in {subscription.exchanges for subscription in subscriptions}
        for name in _ladder(family)
    }
    migrations = {
        queue + TRANSIT_SUFFIX: queue
        for subscription in subscriptions
        for queue in _queues(subscription)
    }
    delivering = {
        subscription.exchanges.deliver: subscription.exchanges.main
        for subscription in subscriptions
    }
    for subscription in subscriptions:
        queue, exchange = subscription.queue, subscription.exchanges.main
        if queue in ladders:
            yield (
                subscription,
                (
                    f"the queue name {queue!r} is one of the delay ladder of exchange "
                    f"{ladders[queue]!r}"
                ),
            )
        if queue in migrations:
            yield (
                subscription,
                (
                    f"the queue name {queue!r} is that of what stands in for {migrations[queue]!r} "
                    "while that is migrated"
                ),
            )
        if exchange in ladders | delivering:
            yield (
                subscription,
                (
                    f"the exchange name {exchange!r} is one of the delay ladder of exchange "
                    f"{(ladders | delivering)[exchange]!r}"
                ),
            )


def _ladder(family: ExchangeFamily) -> Iterator[str]:
    """The names that are both an exchange and a queue."""
    yield family.unrouted
    for number in range(LEVELS):
        yield names.level(family.main, number, family.tick)


def _queues(subscription: Subscription) -> tuple[str, str, str]:
    return subscription.queue, subscription.retry_queue, subscription.failed_queue
