"""Where requeued messages are sent."""

from dataclasses import dataclass

from redrive.errors import ConfigurationError
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.route import (
    NO_WAY,
    WITHOUT_TOPOLOGY,
    Claims,
    Judge,
    Route,
    Verdict,
    WayBack,
)


@dataclass(frozen=True, slots=True)
class Direction:
    """Where requeued messages are sent: by default, each to the queue it failed in.

    Args:
        to: one queue for all messages; None for each message's own.
        via: whether to publish them as they were first published, by their exchange and key; every
            queue bound there gets a copy.
        unchecked: whether to also send messages whose way back the broker neither confirms nor
            contradicts.
        judge: decides where messages of a dead-letter queue go.
    """

    to: str | None = None
    via: bool = False
    unchecked: bool = False
    judge: Judge = WITHOUT_TOPOLOGY

    @property
    def asks_the_broker(self) -> bool:
        """Whether destinations depend on what messages say and what the broker confirms."""
        return self.to is None and not self.via

    def __post_init__(self) -> None:
        if self.via and self.to is not None:
            raise ConfigurationError(
                "`to` and `via` exclude each other",
                "Give one of them.",
            )

    def route_of(self, message: FailedMessage) -> Route:
        """Return a message's route, and whether the broker confirms it."""
        if self.via:
            way = message.first_way
            return NO_WAY if way is None else Route(way, Verdict.CONFIRMED)
        return self.of(None if self.to is not None else message.claims)

    def of(self, claims: Claims | None) -> Route:
        """Return the route for what a message claims about its origin; the claims are ignored if
        all messages go to one queue."""
        if self.to is not None:
            return Route(WayBack("", self.to), Verdict.CONFIRMED)
        return NO_WAY if claims is None else self.judge.route(claims)

    def goes(self, route: Route) -> bool:
        """Return whether a message with this route is sent; otherwise it stays in its queue."""
        return route.way is not None and (
            route.verdict is Verdict.CONFIRMED
            or (self.unchecked and route.verdict is Verdict.UNCHECKED)
        )
