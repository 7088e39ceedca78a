"""Messages of an earlier look, with values hidden by a mask."""

from collections.abc import Iterator, Sequence

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import BODIES, BY_NAME, COLUMNS, Column, row_of_message
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Groups
from redrive.failures.message.mask import Mask, MaskedMessage
from redrive.failures.store.database import Database
from redrive.failures.store.filter import Filter
from redrive.failures.store.kept_messages import (
    CauseHistory,
    KeptMessages,
    Neighbours,
    PlanCounts,
    ValueCounts,
)
from redrive.failures.store.look import Look


class MaskedMessages(KeptMessages):
    """The messages of a look, masked."""

    def __init__(self, kept: KeptMessages, mask: Mask) -> None:
        self._kept = kept
        self._mask = mask

    def check(self, filter_: Filter) -> None:
        """Check that a filter doesn't read bodies: its matches would reveal hidden values."""
        check_filter(filter_)

    def matching(self, filter_: Filter) -> "MaskedMessages":
        """Return those that match a filter."""
        self.check(filter_)
        return MaskedMessages(self._kept.matching(filter_), self._mask)

    def count(self) -> int:
        """Count the messages."""
        return self._kept.count()

    def first(self, limit: int, *, newest: bool, skip: int = 0) -> list[FailedMessage]:
        """Return the oldest messages, or the newest by failure time."""
        found = self._kept.first(limit, newest=newest, skip=skip)
        return [self._masked(message) for message in found]

    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Return messages that an id may stand for, and perhaps others."""
        return map(self._masked, self._kept.named(id_))

    def around(self, failure_id: str, group_id: str) -> Neighbours:
        """Return the neighbours of a message among all with its cause."""
        return self._kept.around(failure_id, group_id)

    def groups(self, by: Column) -> Groups:
        """Group the messages by a column."""
        if by.name in BODIES:
            raise _asks_for_bodies("these would be grouped by the body")
        return self._kept.groups(by)

    def counts(self) -> dict[str, int]:
        """Count the messages of each cause, by the id of its group."""
        return self._kept.counts()

    def counted_by(self, expression: str, most: int) -> ValueCounts:
        """Return the most frequent values of an expression, computed on masked bodies."""
        with Database() as parser:
            columns = parser.columns_of(expression)
        if not BODIES & {column.name for column in columns}:
            return self._kept.counted_by(expression, most)
        with self.database(columns) as database:
            _, rows = database.query(
                f"SELECT ({expression}) AS value, count(*) AS messages, count(*) OVER () AS "
                f"different FROM failed GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}"
            )
        values = [
            (None if row["value"] is None else str(row["value"]), int(str(row["messages"])))
            for row in rows
        ]
        return ValueCounts(values, int(str(rows[0]["different"])) if rows else 0)

    def trips(self) -> dict[str, CauseHistory]:
        """Return the history of each cause's messages, by the id of its group."""
        return self._kept.trips()

    def plan_counts(self, direction: Direction, most_redrives: int | None, few: int) -> PlanCounts:
        """Return what a requeue of the messages would do, with masked examples."""
        found = self._kept.plan_counts(direction, most_redrives, few)
        return found._replace(first=[self._masked(message) for message in found.first])

    def database(self, columns: Sequence[Column]) -> Database:
        """Return a database whose table `failed` holds these columns of the messages."""
        if not BODIES & {column.name for column in columns}:
            return self._kept.database(columns)
        database = Database(columns=columns)
        database.insert(row_of_message(message, columns) for message in self)
        return database

    def __next__(self) -> FailedMessage:
        return self._masked(next(self._kept))

    def _masked(self, message: FailedMessage) -> FailedMessage:
        return MaskedMessage(message, self._mask)


def masked_look(look: Look, mask: Mask | None) -> Look:
    """Mask the messages of an earlier look."""
    if mask is not None:
        assert isinstance(look.messages, KeptMessages)
        look.messages = MaskedMessages(look.messages, mask)
    return look


def check_filter(filter_: Filter) -> None:
    """Check that a filter doesn't read bodies."""
    if isinstance(filter_.where, str):
        with Database(filter_.now) as database:
            columns = database.columns_of(filter_.where)
        if BODIES & {column.name for column in columns} or columns == COLUMNS:
            raise _asks_for_bodies("the filter reads them")


def _asks_for_bodies(why: str) -> ConfigurationError:
    others = ", ".join(name for name in ("error_type", "routing_key", "type") if name in BY_NAME)
    return ConfigurationError(
        f"this console masks parts of bodies, and {why}",
        f"Use other columns, such as {others}; a query shows bodies, masked.",
    )
