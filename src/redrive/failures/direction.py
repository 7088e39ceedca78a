"""Where requeued messages are sent."""

from dataclasses import dataclass

from redrive.errors import ConfigurationError
from redrive.failures.failed_message import FailedMessage
from redrive.failures.route import NO_WAY, WITHOUT_TOPOLOGY, Claims, Judge, Route, Verdict
from redrive.failures.way_back import WayBack


@dataclass(frozen=True, slots=True)
class Direction:
    """Where requeued messages are sent: each to the queue that it failed in, unless something else
    is said.

    Args:
        to: a queue for all of them; None for each one's own.
        via: whether they are published as they were first, by their exchange and key: everything
            that is bound there gets a copy.
        unchecked: whether those go, too, whose way back the broker neither confirms nor
            contradicts.
        judge: says where what is in a dead-letter queue goes.
    """

    to: str | None = None
    via: bool = False
    unchecked: bool = False
    judge: Judge = WITHOUT_TOPOLOGY

    @property
    def asks_the_broker(self) -> bool:
        """Whether what messages say of their way counts, as far as the broker agrees."""
        return self.to is None and not self.via

    def __post_init__(self) -> None:
        if self.via and self.to is not None:
            raise ConfigurationError(
                "a queue to send to and the way by the first exchange exclude each other",
                "Leave out `to`, or `via`.",
            )

    def route_of(self, message: FailedMessage) -> Route:
        """The way of a message, and how far it can be relied upon."""
        if self.via:
            way = message.first_way
            return NO_WAY if way is None else Route(way, Verdict.CONFIRMED)
        return self.of(None if self.to is not None else message.claims)

    def of(self, claims: Claims | None) -> Route:
        """The way of what says this of itself; it does not count where all goes to one queue."""
        if self.to is not None:
            return Route(WayBack("", self.to), Verdict.CONFIRMED)
        return NO_WAY if claims is None else self.judge.route(claims)

    def goes(self, route: Route) -> bool:
        """Whether a message with such a route is sent; else it stays where it is."""
        return route.way is not None and (
            route.verdict is Verdict.CONFIRMED
            or (self.unchecked and route.verdict is Verdict.UNCHECKED)
        )
