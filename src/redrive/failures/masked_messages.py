"""Messages of a former look, asked without what a mask hides in their bodies."""

from collections.abc import Iterator, Sequence

from redrive.errors import ConfigurationError
from redrive.failures.columns import BODIES, BY_NAME, COLUMNS, Column, row_of_message
from redrive.failures.database import Database
from redrive.failures.direction import Direction
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter
from redrive.failures.groups import Groups
from redrive.failures.kept_messages import (
    CauseHistory,
    KeptMessages,
    Neighbours,
    PlanCounts,
    ValueCounts,
)
from redrive.failures.look import Look
from redrive.failures.mask import Mask, MaskedMessage


class MaskedMessages(KeptMessages):
    """The messages of a look, masked."""

    def __init__(self, kept: KeptMessages, mask: Mask) -> None:
        self._kept = kept
        self._mask = mask

    def check(self, filter_: Filter) -> None:
        """Check that a filter does not ask for a body: by what it finds, it would tell."""
        check_filter(filter_)

    def matching(self, filter_: Filter) -> "MaskedMessages":
        """Return those that match a filter."""
        self.check(filter_)
        return MaskedMessages(self._kept.matching(filter_), self._mask)

    def count(self) -> int:
        """How many they are."""
        return self._kept.count()

    def first(self, limit: int, *, newest: bool, skip: int = 0) -> list[FailedMessage]:
        """The oldest ones, or those that failed last."""
        found = self._kept.first(limit, newest=newest, skip=skip)
        return [self._masked(message) for message in found]

    def named(self, id_: str) -> Iterator[FailedMessage]:
        """Those that an id may stand for, and perhaps others."""
        return map(self._masked, self._kept.named(id_))

    def around(self, failure_id: str, group_id: str) -> Neighbours:
        """The messages next to one, among all of a cause."""
        return self._kept.around(failure_id, group_id)

    def groups(self, by: Column) -> Groups:
        """Groups of them by a column."""
        if by.name in BODIES:
            raise _asks_for_bodies("they are grouped by it")
        return self._kept.groups(by)

    def counts(self) -> dict[str, int]:
        """How many of them each cause has, by the id of its group."""
        return self._kept.counts()

    def counted_by(self, expression: str, most: int) -> ValueCounts:
        """The most frequent values of an expression; of bodies, as they are masked."""
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
        """What the messages of each cause have behind them."""
        return self._kept.trips()

    def prospects(self, direction: Direction, most_redrives: int | None, few: int) -> PlanCounts:
        """What a requeue of them would do; its examples are masked."""
        found = self._kept.prospects(direction, most_redrives, few)
        return found._replace(first=[self._masked(message) for message in found.first])

    def database(self, columns: Sequence[Column]) -> Database:
        """A database whose table `failed` has these columns of them."""
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
    """A former look whose messages are masked."""
    if mask is not None:
        assert isinstance(look.messages, KeptMessages)
        look.messages = MaskedMessages(look.messages, mask)
    return look


def check_filter(filter_: Filter) -> None:
    """Checks that a filter does not ask for a body."""
    if isinstance(filter_.where, str):
        with Database(filter_.now) as database:
            columns = database.columns_of(filter_.where)
        if BODIES & {column.name for column in columns} or columns == COLUMNS:
            raise _asks_for_bodies("the filter asks for it")


def _asks_for_bodies(why: str) -> ConfigurationError:
    others = ", ".join(name for name in ("error_type", "routing_key", "type") if name in BY_NAME)
    return ConfigurationError(
        f"this console masks parts of bodies, and {why}",
        f"Use other columns, such as {others}; a query shows bodies, masked.",
    )
