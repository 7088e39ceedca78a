"""Which failed messages are meant."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from redrive.errors import ConfigurationError
from redrive.failures.cause import cause_of
from redrive.failures.columns import Column, SqlType, row_of
from redrive.pubsub.message import FailedMessage

if TYPE_CHECKING:
    from redrive.failures.database import Database

_AT_A_TIME = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """Those messages of which all of this is true.

    Args:
        where: an expression of the filter language; None for any message.
        digests: of single messages, `FailedMessage.digest`; none for any. A failure id may be
            another message's, too.
        groups: group ids, or their first characters; none for any.
        now: what `now()` says in the expression.
    """

    where: str | None = None
    digests: Collection[str] = ()
    groups: Sequence[str] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def is_all(self) -> bool:
        """Whether every message is meant."""
        return self.where is None and not self.digests and not self.groups

    def as_json(self) -> dict[str, object]:
        """It as JSON values."""
        return {
            **asdict(self),
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


class Chooser:
    """Says of messages whether a selection means them, many at a time; a context manager.

    Raises:
        ConfigurationError: its expression can't be used; the message says where it is wrong.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._digests = frozenset(selection.digests)
        self._groups = tuple(selection.groups)
        self._held = contextlib.ExitStack()
        self._columns: tuple[Column, ...] = ()
        self._database = None if selection.where is None else self._open(selection.where)

    def __call__(self, messages: Sequence[FailedMessage]) -> list[bool]:
        """Of each message, whether it is meant.

        Raises:
            ConfigurationError: the expression can't be said of one of them.
        """
        chosen = [self._is_named(message) for message in messages]
        where = self._selection.where
        if self._database is None or where is None or not any(chosen):
            return chosen
        rows = [
            row_of(message.delivery, self._columns)
            for message, named in zip(messages, chosen, strict=True)
            if named
        ]
        picked = iter(self._database.picks(where, rows, self._columns))
        return [named and next(picked) for named in chosen]

    @property
    def is_by_time(self) -> bool:
        """Whether its expression asks for a time: what is newest then matters most."""
        return any(column.type is SqlType.TIME for column in self._columns)

    def of(self, messages: Iterable[FailedMessage]) -> Iterator[FailedMessage]:
        """Those of the messages that are meant."""
        left = iter(messages)
        if self._selection.is_all:
            yield from left
        while some := list(islice(left, _AT_A_TIME)):
            yield from (message for message, chosen in zip(some, self(some), strict=True) if chosen)

    def _open(self, where: str) -> "Database":
        # It takes half a second to load, and most commands need none.
        from redrive.failures.database import Database

        with contextlib.ExitStack() as opened:
            database = opened.enter_context(Database(self._selection.now))
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
