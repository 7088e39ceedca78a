"""The questions that pages ask a look; each can be sent to another process."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue, plan_order
from redrive.failures.jobs.approval import plan_to_ask
from redrive.failures.jobs.cause_remarks import CauseRemarks
from redrive.failures.message.columns import BODIES
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Groups
from redrive.failures.queue.message_source import checked_query
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.store.database import AnswerLimits
from redrive.failures.store.facet import Facet, FacetValue
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.kept_messages import CauseHistory
from redrive.failures.store.look import Look, QueryResult

T_co = TypeVar("T_co", covariant=True)

_LIMITS = AnswerLimits(rows=100_000, size=16 * 1024 * 1024)
"""Limits of a query's answer, which the console holds in memory."""


class LookQuestion(Protocol[T_co]):
    """A question about a look at a failed queue."""

    @property
    def has_expression(self) -> bool:
        """Whether it contains an expression or a query that a user wrote, which may be
        expensive."""

    def __call__(self, failed: FailedQueue, look: Look) -> T_co:
        """Return the answer."""


@dataclass(frozen=True, slots=True)
class _OfFilter:
    filter: Filter

    @property
    def has_expression(self) -> bool:
        """Whether the filter has an expression."""
        return self.filter.where is not None


@dataclass(frozen=True, slots=True)
class CausesOf(_OfFilter):
    """The causes of the messages that match a filter, merged as the team has said."""

    book: CauseRemarks

    def __call__(self, failed: FailedQueue, look: Look) -> Groups:
        """Return the causes."""
        with OpenFilter(self.filter) as opened:
            return self.book.groups_of(look, opened)


@dataclass(frozen=True, slots=True)
class TripsOf(_OfFilter):
    """The history of each cause's messages, by group id."""

    def __call__(self, failed: FailedQueue, look: Look) -> dict[str, CauseHistory]:
        """Return the histories; none for a filter on whole rows."""
        with OpenFilter(self.filter) as opened:
            return {} if opened.is_of_whole_rows else look.kept_matching(opened).trips()


@dataclass(frozen=True, slots=True)
class MessagesOf(_OfFilter):
    """A page of the messages that match a filter, oldest first."""

    skip: int
    most: int

    def __call__(self, failed: FailedQueue, look: Look) -> list[FailedMessage]:
        """Return the messages."""
        with OpenFilter(self.filter) as opened:
            if opened.is_of_whole_rows:
                return look.first(self.skip + self.most, opened).messages[self.skip :]
            return look.kept_matching(opened).first(self.most, newest=False, skip=self.skip)


@dataclass(frozen=True, slots=True)
class FacetOf(_OfFilter):
    """The most frequent values of a facet, and how many more there are."""

    facet: Facet

    def __call__(self, failed: FailedQueue, look: Look) -> tuple[list[FacetValue], int]:
        """Return the values and the number of further ones."""
        with OpenFilter(self.filter) as opened:
            return self.facet.counted(look.kept_matching(opened))


@dataclass(frozen=True, slots=True)
class CountOf(_OfFilter):
    """The number of messages that match a filter."""

    def __call__(self, failed: FailedQueue, look: Look) -> int:
        """Return the number."""
        with OpenFilter(self.filter) as opened:
            return look.first(1, opened).matching


@dataclass(frozen=True, slots=True)
class PlanOf:
    """The plan of an order.

    Args:
        order: the order.
        to_ask: whether somebody else will approve it, which fixes the exact messages.
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
        bodies: whether it may read bodies.
    """

    sql: str
    bodies: bool = True
    has_expression: bool = True

    def __call__(self, failed: FailedQueue, look: Look) -> QueryResult:
        """Return the answer."""
        sql, columns = checked_query(self.sql)
        bodies = sorted({column.name for column in columns} & BODIES)
        if bodies and not self.bodies:
            raise ConfigurationError(
                f"this console hides bodies, and the query reads {', '.join(bodies)}",
                "Name the columns that you need.",
            )
        return look.query(sql, columns, _LIMITS)
