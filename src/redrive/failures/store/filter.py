"""Filters of failed messages."""

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from redrive.errors import ConfigurationError
from redrive.failures.message.cause import cause_of
from redrive.failures.message.columns import COLUMNS, Column, SqlType, row_of_message
from redrive.failures.message.failed_message import FailedMessage

if TYPE_CHECKING:
    from redrive.failures.store.database import Database
from redrive.topology.durations import duration_of

Predicate = Callable[[FailedMessage], bool]

_AT_A_TIME = 1000
_MOST_GROUPS = 1000
"""The maximum number of groups in a filter, because an approver of an order is shown each."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter; a message matches if all conditions are true.

    Args:
        where: an expression of the filter language, or a function that returns whether a message
            matches; None for any message. An expression needs DuckDB (`pip install redrive[cli]`).
        digests: the `FailedMessage.digest` of single messages; empty for any. Unlike a digest, a
            failure id may be shared by several messages.
        groups: group ids, or their first characters; empty for any.
        now: what `now()` returns in the expression.

    Raises:
        ConfigurationError: it names more than a thousand groups.
    """

    where: str | Predicate | None = None
    digests: Collection[str] = ()
    groups: Sequence[str] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        if len(self.groups) > _MOST_GROUPS:
            raise ConfigurationError(
                f"a filter can name at most {_MOST_GROUPS:,} groups, not {len(self.groups):,}",
                "Use an expression to choose the messages.",
            )

    @property
    def is_all(self) -> bool:
        """Whether every message matches."""
        return self.where is None and not self.digests and not self.groups

    def as_json(self) -> dict[str, object]:
        """Return the filter as JSON values; a function is left out."""
        return {
            "where": self.where if isinstance(self.where, str) else None,
            "digests": sorted(self.digests),
            "groups": list(self.groups),
            "now": self.now.isoformat(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """Return the filter that `as_json` wrote.

        Raises:
            ConfigurationError: redrive 0.1 wrote it and chose messages by failure ids.
        """
        known: dict[str, Any] = dict(value)
        if known.get("ids"):
            raise ConfigurationError(
                "this was begun by redrive 0.1, which chose messages by ids that other messages "
                "may share",
                "Begin it again, with --id.",
            )
        return cls(
            known["where"],
            frozenset(known.get("digests", ())),
            tuple(known["groups"]),
            datetime.fromisoformat(known["now"]),
        )


class OpenFilter:
    """An evaluator of a filter for many messages at a time; a context manager.

    Raises:
        ConfigurationError: the expression is invalid; the error says where.
    """

    def __init__(self, filter_: Filter) -> None:
        check_plain("where", filter_.where)
        self._filter = filter_
        self._digests = frozenset(filter_.digests)
        self._groups = tuple(filter_.groups)
        self._held = contextlib.ExitStack()
        self._columns: tuple[Column, ...] = ()
        self._database = self._open(filter_.where) if isinstance(filter_.where, str) else None

    def __call__(self, messages: Sequence[FailedMessage]) -> list[bool]:
        """Return for each message whether it matches.

        Raises:
            ConfigurationError: the expression fails for one of them.
        """
        chosen = [self._is_named(message) for message in messages]
        where = self._filter.where
        if where is None or not any(chosen):
            return chosen
        named = [message for message, is_named in zip(messages, chosen, strict=True) if is_named]
        meant = iter(self._meant(where, named))
        return [is_named and next(meant) for is_named in chosen]

    def _meant(self, where: str | Predicate, messages: Sequence[FailedMessage]) -> list[bool]:
        """Return for each message whether the expression or the function matches it."""
        if self._database is None or not isinstance(where, str):
            return [bool(where(message)) for message in messages]  # type: ignore[operator]
        rows = (row_of_message(message, self._columns) for message in messages)
        return self._database.meant(where, rows, self._columns)

    @property
    def filter(self) -> Filter:
        """The filter that it evaluates."""
        return self._filter

    @property
    def is_of_whole_rows(self) -> bool:
        """Whether the expression uses a message's row as a whole, not only single columns."""
        return self._columns == COLUMNS

    @property
    def is_by_time(self) -> bool:
        """Whether the expression uses a time; the newest messages then matter most."""
        return any(column.type is SqlType.TIME for column in self._columns)

    def of(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Yield the messages that match."""
        left = iter(messages)
        if self._filter.is_all:
            yield from left
        while some := list(islice(left, _AT_A_TIME)):
            yield from (message for message, chosen in zip(some, self(some), strict=True) if chosen)

    def _open(self, where: str) -> "Database":
        # Import it here: it takes half a second to load, and most commands do not need it.
        try:
            from redrive.failures.store.database import Database
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "a filter that is an expression needs DuckDB, which is not installed",
                "pip install 'redrive[cli]', or give a function.",
            ) from error

        with contextlib.ExitStack() as opened:
            database = opened.enter_context(Database(self._filter.now))
            self._columns = database.columns_of(where)
            self._held = opened.pop_all()
        return database

    def _is_named(self, message: FailedMessage) -> bool:
        if self._digests and message.digest not in self._digests:
            return False
        return not self._groups or cause_of(message).group_id.startswith(self._groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def check_plain(name: str, function: object) -> None:
    """Check that a function to call for each message is not async, because it is called on a
    thread.

    Raises:
        ConfigurationError: the function is async.
    """
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"`{name}` is an async function", "Make it a plain one.")


@contextlib.contextmanager
def opened(where: Filter | str | Predicate | None) -> Iterator[OpenFilter | None]:
    """Open a filter for the duration of the block; yield None if there is none."""
    if where is None:
        yield None
        return
    with OpenFilter(where if isinstance(where, Filter) else Filter(where)) as filter_:
        yield filter_


def moment_before(older_than: str, now: datetime) -> datetime:
    """Return the time before which messages must have failed to be older than a duration."""
    try:
        return now - duration_of(older_than)
    except OverflowError as error:
        raise ConfigurationError(
            f"{older_than} ago is before the year 1", "Give a shorter duration."
        ) from error


def failed_before(moment: datetime) -> Filter:
    """Return a filter that matches messages that failed before a time; those without a time of
    failure, as services without redrive leave them, do not match."""
    return Filter(f"failed_at < TIMESTAMPTZ '{moment.isoformat()}'")
