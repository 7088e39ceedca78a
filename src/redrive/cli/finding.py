"""Finds messages of a failed queue by what people have in hand: an id, or the beginning of one."""

from collections.abc import Iterable

from redrive.cli.output import count_of
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.message import FailedMessage

_MOST_NAMED = 5
_SURE, _BY_MESSAGE_ID, _BY_PREFIX = range(3)

_Matches = dict[str, list[FailedMessage]]


class NothingFound(RedriveError):
    """No message has the id that was asked for."""


def find_one(failed: Iterable[FailedMessage], id_: str, source: str) -> FailedMessage:
    """The oldest message that an id stands for: a failure id, a message id, or the unique beginning of a failure id.

    Raises:
        NothingFound: there is none.
        ConfigurationError: it stands for several.
    """
    return find_some(failed, [id_], source)[0]


def find_some(failed: Iterable[FailedMessage], ids: Iterable[str], source: str) -> list[FailedMessage]:
    """The messages that these ids stand for. Where a peer's message is there twice, byte for byte, both are it.

    Raises:
        NothingFound: an id stands for none.
        ConfigurationError: an id stands for several.
    """
    searches = {id_: _Search(id_) for id_ in ids}
    for message in failed:
        for search in searches.values():
            search.look_at(message)
        if all(search.is_over for search in searches.values()):
            break  # a queue of millions need not be read to its end
    found: _Matches = {}
    for search in searches.values():
        found |= search.result(source)
    return [message for messages in found.values() for message in messages]


class _Search:
    """What an id stands for, surest first."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._found: tuple[_Matches, _Matches, _Matches] = ({}, {}, {})
        self.is_over = False

    def look_at(self, message: FailedMessage) -> None:
        """Keeps a message that it stands for. Of too many, some: they are only named then, and not all may fit into memory."""
        if message.failure_id == self._wanted:
            self.is_over = message.own_failure_id is not None  # that one is nobody else's
            matches = self._found[_SURE]
        elif message.message_id == self._wanted:
            matches = self._found[_BY_MESSAGE_ID]
        elif message.failure_id.startswith(self._wanted):
            matches = self._found[_BY_PREFIX]
        else:
            return
        if message.failure_id in matches or len(matches) <= _MOST_NAMED:
            matches.setdefault(message.failure_id, []).append(message)

    def result(self, source: str) -> _Matches:
        """The messages of the one failure that it stands for."""
        matches = next((matches for matches in self._found if matches), None)
        if matches is None:
            raise NothingFound(f"no message of {source!r} has the id {self._wanted!r}\nSee: redrive failed list")
        if len(matches) > 1:
            named = ", ".join(list(matches)[:_MOST_NAMED])
            raise ConfigurationError(
                f"{self._wanted!r} stands for {'more than ' if len(matches) > _MOST_NAMED else ''}"
                f"{count_of(min(len(matches), _MOST_NAMED), 'message')} of {source!r}",
                f"Give one of the failure ids: {named}.",
            )
        return matches
