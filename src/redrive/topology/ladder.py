"""The delay ladder: any delay, without a plugin and without one message waiting behind another.

A delay is a whole number of ticks. Level k is an exchange and a queue whose TTL is 2^k ticks. A
message passes through the queues of the levels whose bits are 1 in its number of ticks, from the
highest to the lowest, and skips the others through bindings between exchanges. All messages in a
queue have the same TTL, so they leave it in the order in which they entered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Literal

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.topology import names
from redrive.topology.delay_route import LEVELS, delivery_key, ticks_in
from redrive.topology.model import (
    AT_LEAST_ONCE,
    DELIVERY_LIMIT,
    Binding,
    Exchange,
    Queue,
    Subscription,
    Topology,
    deliver_exchange,
    unrouted_goes_to,
)
from redrive.topology.names import ExchangeFamily, check_name

_MILLISECOND = timedelta(milliseconds=1)

HOW_TO_HAVE_THE_LADDER = (
    "Let a user who may declare it delay one message for as long, and then "
    "give this user the role delayer (redrive doctor --role delayer)."
)
"""Advice for a user who wants to use the delay ladder but may not declare it."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ladder of an exchange family. A family with another tick has levels of its own."""

    exchanges: ExchangeFamily = field(default_factory=ExchangeFamily)

    def __post_init__(self) -> None:
        check_name("exchange", self.level(LEVELS - 1), MAX_SHORT_STRING)

    def level(self, number: int) -> str:
        """Return the name of a level's exchange and queue."""
        return names.level(self.exchanges.main, number, self.exchanges.tick)

    def levels_for(self, delay: timedelta) -> int:
        """Return how many levels, from the lowest up, a delay needs."""
        return ticks_in(delay, self.exchanges.tick).bit_length()

    def way(self, delay: timedelta, kind: Literal["r", "p"], destination: str) -> tuple[str, str]:
        """Return the exchange and the routing key that delay a message: it enters at the highest
        level that it needs."""
        ticks = ticks_in(delay, self.exchanges.tick)
        entry = self.level(ticks.bit_length() - 1) if ticks else self.exchanges.deliver
        return entry, delivery_key(ticks, kind, destination)

    def due_within(self, number: int) -> timedelta:
        """Return the longest remaining wait of a message in a level's queue: the rest of this level
        and all lower ones."""
        return self.exchanges.tick * ((1 << (number + 1)) - 1)

    def topology(self, count: int) -> Topology:
        """Return the lowest `count` levels, and a queue for messages that no longer have a
        destination."""
        levels = range(count)
        family = self.exchanges
        return Topology(
            exchanges=(
                Exchange(family.unrouted, "fanout"),
                deliver_exchange(family),
                *(self._exchange(number) for number in levels),
            ),
            queues=(
                Queue(
                    family.unrouted,
                    MappingProxyType(
                        {"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT}
                    ),
                ),
                *(self._queue(number) for number in levels),
            ),
            bindings=(
                Binding(family.unrouted, family.unrouted, ""),
                *(binding for number in levels for binding in self._bindings(number)),
            ),
        )

    def _exchange(self, number: int) -> Exchange:
        return Exchange(self.level(number), arguments=unrouted_goes_to(self.exchanges))

    def _queue(self, number: int) -> Queue:
        ttl_ms = self.exchanges.tick // _MILLISECOND * 2**number
        below = self._below(number)
        return Queue(
            self.level(number),
            MappingProxyType(
                {
                    "x-queue-type": "quorum",
                    "x-message-ttl": ttl_ms,
                    "x-dead-letter-exchange": below,
                    **AT_LEAST_ONCE,
                }
            ),
        )

    def _bindings(self, number: int) -> tuple[Binding, Binding]:
        before = "*." * (LEVELS - 1 - number)
        return (
            Binding(self.level(number), self.level(number), f"{before}1.#"),
            Binding(self.level(number), self._below(number), f"{before}0.#", to="exchange"),
        )

    def _below(self, number: int) -> str:
        return self.level(number - 1) if number else self.exchanges.deliver


def levels_of(subscription: Subscription) -> int:
    """Return how many levels a subscription's policy uses; a handler's own `Retry(after=…)` may
    need more."""
    longest = subscription.longest_on_the_ladder
    return Ladder(subscription.exchanges).levels_for(longest) if longest else 0


def with_ladder(subscription: Subscription) -> Topology:
    """Return everything that a subscription needs on the broker, including the ladder levels that
    its policy uses."""
    levels = levels_of(subscription)
    own = subscription.topology()
    return Ladder(subscription.exchanges).topology(levels) + own if levels else own


def ladder_there(exchanges: ExchangeFamily, on_broker: Iterable[Binding]) -> Topology:
    """Return a family's delay ladder as it exists on the broker, including levels created by
    publishers and handlers."""
    bound = {binding.source for binding in on_broker}
    count = max(
        (
            number + 1
            for number in range(LEVELS)
            if names.level(exchanges.main, number, exchanges.tick) in bound
        ),
        default=0,
    )
    return Ladder(exchanges).topology(count) if count else Topology((), (), ())


def ladder_exchanges(topology: Topology, exchanges: ExchangeFamily) -> frozenset[str]:
    """Return the exchanges in a topology that belong to a family's delay ladder: those that send
    unroutable messages to the family's one queue for them."""
    unrouted = unrouted_goes_to(exchanges)
    return frozenset(
        exchange.name for exchange in topology.exchanges if exchange.arguments == unrouted
    ) | {exchanges.unrouted}


def others_on_ladder(
    topology: Topology, exchanges: ExchangeFamily, on_broker: Iterable[Binding]
) -> list[str]:
    """Return whatever is bound to a family's delay ladder without belonging to the topology: queues
    and filters of others, ladders with other ticks."""
    ladder = ladder_exchanges(topology, exchanges)
    own = {exchange.name for exchange in topology.exchanges} | {
        queue.name for queue in topology.queues
    }
    ends = {
        end
        for binding in on_broker
        if binding.source in ladder or binding.destination in ladder
        for end in (binding.source, binding.destination)
    }
    return sorted(ends - own)


def without_ladder(topology: Topology, exchanges: ExchangeFamily) -> Topology:
    """Remove a family's delay ladder from a topology; the bindings of its queues to the ladder
    stay."""
    ladder = ladder_exchanges(topology, exchanges)
    return replace(
        topology,
        exchanges=tuple(exchange for exchange in topology.exchanges if exchange.name not in ladder),
        queues=tuple(queue for queue in topology.queues if queue.name not in ladder),
        bindings=tuple(
            binding for binding in topology.bindings if binding.destination not in ladder
        ),
    )
