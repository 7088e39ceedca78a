"""What pages ask of a look. Each is a value that another process can be given."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from redrive.errors import ConfigurationError
from redrive.failures.answer_limits import AnswerLimits
from redrive.failures.approval import plan_to_ask
from redrive.failures.cause_notes import CauseNotes
from redrive.failures.columns import BODIES
from redrive.failures.facet import Facet, FacetValue
from redrive.failures.failed_message import FailedMessage
from redrive.failures.failed_queue import FailedQueue, plan_order
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Groups
from redrive.failures.kept_messages import CauseHistory
from redrive.failures.look import Look, QueryResult
from redrive.failures.message_source import checked_query
from redrive.failures.order import Order
from redrive.failures.plan import Plan

T_co = TypeVar("T_co", covariant=True)

_LIMITS = AnswerLimits(rows=100_000, size=16 * 1024 * 1024)
"""Of the answer to a query: the console has it in memory as a whole."""


class LookQuestion(Protocol[T_co]):
    """A question to a look at a failed queue."""

    @property
    def has_expression(self) -> bool:
        """Whether somebody has made up an expression or a query for it, which may cost anything."""

    def __call__(self, failed: FailedQueue, look: Look) -> T_co:
        """Return the answer."""


@dataclass(frozen=True, slots=True)
class _OfFilter:
    filter: Filter

    @property
    def has_expression(self) -> bool:
        """Whether the filter is an expression."""
        return self.filter.where is not None


@dataclass(frozen=True, slots=True)
class CausesOf(_OfFilter):
    """The causes of the messages that match a filter, as the team has them."""

    book: CauseNotes

    def __call__(self, failed: FailedQueue, look: Look) -> Groups:
        """Return them."""
        with OpenFilter(self.filter) as opened:
            return self.book.groups_of(look, opened)


@dataclass(frozen=True, slots=True)
class TripsOf(_OfFilter):
    """What the messages of each cause have behind them, by its group id."""

    def __call__(self, failed: FailedQueue, look: Look) -> dict[str, CauseHistory]:
        """Return it; nothing for a filter of whole rows."""
        with OpenFilter(self.filter) as opened:
            return {} if opened.is_of_whole_rows else look.kept_matching(opened).trips()


@dataclass(frozen=True, slots=True)
class MessagesOf(_OfFilter):
    """Some of the messages that match a filter, from the oldest on."""

    skip: int
    most: int

    def __call__(self, failed: FailedQueue, look: Look) -> list[FailedMessage]:
        """Return them."""
        with OpenFilter(self.filter) as opened:
            if opened.is_of_whole_rows:
                return look.first(self.skip + self.most, opened).messages[self.skip :]
            return look.kept_matching(opened).first(self.most, newest=False, skip=self.skip)


@dataclass(frozen=True, slots=True)
class FacetOf(_OfFilter):
    """The most frequent values of a facet, and how many further ones there are."""

    facet: Facet

    def __call__(self, failed: FailedQueue, look: Look) -> tuple[list[FacetValue], int]:
        """Return them."""
        with OpenFilter(self.filter) as opened:
            return self.facet.counted(look.kept_matching(opened))


@dataclass(frozen=True, slots=True)
class CountOf(_OfFilter):
    """How many messages match a filter."""

    def __call__(self, failed: FailedQueue, look: Look) -> int:
        """Return how many."""
        with OpenFilter(self.filter) as opened:
            return look.first(1, opened).matching


@dataclass(frozen=True, slots=True)
class PlanOf:
    """What an order would send.

    Args:
        order: the order.
        to_ask: whether it is to be asked for somebody else's approval, who has to find the very
            messages.
    """

    order: Order
    to_ask: bool = False

    @property
    def has_expression(self) -> bool:
        """Whether the order has an expression, or a patch, which may make bodies of any size."""
        return self.order.filter.where is not None or self.order.patch is not None

    def __call__(self, failed: FailedQueue, look: Look) -> Plan:
        """Return the plan."""
        made = plan_to_ask if self.to_ask else plan_order
        return made(failed, self.order, look.messages)


@dataclass(frozen=True, slots=True)
class AnswerOf:
    """The answer to a query.

    Args:
        sql: the query.
        bodies: whether it may ask for bodies.
    """

    sql: str
    bodies: bool = True
    has_expression: bool = True

    def __call__(self, failed: FailedQueue, look: Look) -> QueryResult:
        """Return it."""
        sql, columns = checked_query(self.sql)
        bodies = sorted({column.name for column in columns} & BODIES)
        if bodies and not self.bodies:
            raise ConfigurationError(
                f"this console hides bodies, and the query asks for {', '.join(bodies)}",
                "Name the columns that you need.",
            )
        return look.query(sql, columns, _LIMITS)
