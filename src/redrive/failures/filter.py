"""Which failed messages are meant."""

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from redrive.errors import ConfigurationError
from redrive.failures.cause import cause_of
from redrive.failures.columns import COLUMNS, Column, SqlType, row_of_message
from redrive.failures.failed_message import FailedMessage

if TYPE_CHECKING:
    from redrive.failures.database import Database

Predicate = Callable[[FailedMessage], bool]

_AT_A_TIME = 1000
_MOST_GROUPS = 1000
"""Groups that a filter may name: whoever approves an order is shown each."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Those messages of which all of this is true.

    Args:
        where: an expression of the filter language, or a function that says it of a message; None
            for any message. An expression needs DuckDB (`pip install redrive[cli]`).
        digests: of single messages, `FailedMessage.digest`; none for any. A failure id may be
            another message's, too.
        groups: group ids, or their first characters; none for any.
        now: what `now()` says in the expression.

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
                f"a filter can't name {len(self.groups):,} groups, but {_MOST_GROUPS:,} at most",
                "Say which messages you want by an expression.",
            )

    @property
    def is_all(self) -> bool:
        """Whether every message is meant."""
        return self.where is None and not self.digests and not self.groups

    def as_json(self) -> dict[str, object]:
        """It as JSON values; without its function, where it has one."""
        return {
            "where": self.where if isinstance(self.where, str) else None,
            "digests": sorted(self.digests),
            "groups": list(self.groups),
            "now": self.now.isoformat(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Self:
        """What `as_json` has written.

        Raises:
            ConfigurationError: redrive 0.1 has written it, and chose messages by failure ids.
        """
        known: dict[str, Any] = dict(value)
        if known.get("ids"):
            raise ConfigurationError(
                "this was begun by redrive 0.1, which chose messages by ids that others may have, "
                "too",
                "Begin it again, with --id.",
            )
        return cls(
            known["where"],
            frozenset(known.get("digests", ())),
            tuple(known["groups"]),
            datetime.fromisoformat(known["now"]),
        )


class OpenFilter:
    """Says of messages whether a filter means them, many at a time; a context manager.

    Raises:
        ConfigurationError: its expression can't be used; the message says where it is wrong.
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
        """Of each message, whether it is meant.

        Raises:
            ConfigurationError: the expression can't be said of one of them.
        """
        chosen = [self._is_named(message) for message in messages]
        where = self._filter.where
        if where is None or not any(chosen):
            return chosen
        named = [message for message, is_named in zip(messages, chosen, strict=True) if is_named]
        meant = iter(self._meant(where, named))
        return [is_named and next(meant) for is_named in chosen]

    def _meant(self, where: str | Predicate, messages: Sequence[FailedMessage]) -> list[bool]:
        """Of each message, whether the expression or the function means it."""
        if self._database is None or not isinstance(where, str):
            return [bool(where(message)) for message in messages]  # type: ignore[operator]
        rows = (row_of_message(message, self._columns) for message in messages)
        return self._database.meant(where, rows, self._columns)

    @property
    def filter(self) -> Filter:
        """What it says of messages."""
        return self._filter

    @property
    def is_of_whole_rows(self) -> bool:
        """Whether its expression speaks of a message's row as one, and not of columns of it."""
        return self._columns == COLUMNS

    @property
    def is_by_time(self) -> bool:
        """Whether its expression asks for a time: what is newest then matters most."""
        return any(column.type is SqlType.TIME for column in self._columns)

    def of(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Those of the messages that are meant."""
        left = iter(messages)
        if self._filter.is_all:
            yield from left
        while some := list(islice(left, _AT_A_TIME)):
            yield from (message for message, chosen in zip(some, self(some), strict=True) if chosen)

    def _open(self, where: str) -> "Database":
        # It takes half a second to load, and most commands need none.
        try:
            from redrive.failures.database import Database
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
    """Checks that what is called for each message is not async: it is called on a thread.

    Raises:
        ConfigurationError: it is.
    """
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"`{name}` is an async function", "Make it a plain one.")


@contextlib.contextmanager
def opened(where: Filter | str | Predicate | None) -> Iterator[OpenFilter | None]:
    """The filter, as long as the block; None where there is none."""
    if where is None:
        yield None
        return
    with OpenFilter(where if isinstance(where, Filter) else Filter(where)) as filter_:
        yield filter_
