"""Find messages of a failed queue by an id or a prefix of one."""

import re
from collections.abc import Iterable

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.message.failed_message import FailedMessage

_MOST_NAMED = 5
_SURE, _BY_MESSAGE_ID, _BY_PREFIX = range(3)
_SHORT_DIGEST = 16
_DIGEST = re.compile(rf"[0-9a-f]{{{_SHORT_DIGEST},64}}")

_Matches = dict[str, list[FailedMessage]]
"""Messages by their digests."""


class NothingFound(RedriveError):
    """No message has the requested id."""


def find_one(failed: Iterable[FailedMessage], id_: str, source: str) -> FailedMessage:
    """Return the oldest message with this id.

    An id is a failure id or a unique prefix of one, the first 16 digits of a digest, or a message
    id.
    """
    search = _Search(id_)
    for message in failed:
        search.look_at(message)
        if search.is_found:
            break  # a queue of millions need not be read to its end to find one message
    return next(iter(search.result(source).values()))[0]


def find_some(
    failed: Iterable[FailedMessage], ids: Iterable[str], source: str
) -> list[FailedMessage]:
    """Return the messages with these ids, including exact copies of them.

    All messages are read, since any of them may have copied an id. An id shared by messages that
    differ is refused: nothing here tells which of them made it up.
    """
    searches = {id_: _Search(id_) for id_ in ids}
    for message in failed:
        for search in searches.values():
            search.look_at(message)
    found: _Matches = {}
    for search in searches.values():
        found |= search.result(source)
    return [message for messages in found.values() for message in messages]


class _Search:
    """The messages that match an id, the most certain matches first."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._may_be_digest = _DIGEST.fullmatch(wanted) is not None
        self._found: tuple[_Matches, _Matches, _Matches] = ({}, {}, {})

    @property
    def is_found(self) -> bool:
        """Whether a message with this failure id was found."""
        return bool(self._found[_SURE])

    def look_at(self, message: FailedMessage) -> None:
        """Keep a message that matches. If there are too many, only some are kept, to save memory.

        The error for an ambiguous id names only some.
        """
        if message.failure_id == self._wanted or (
            self._may_be_digest and message.digest.startswith(self._wanted)
        ):
            matches = self._found[_SURE]
        elif message.message_id == self._wanted:
            matches = self._found[_BY_MESSAGE_ID]
        elif message.failure_id.startswith(self._wanted):
            matches = self._found[_BY_PREFIX]
        else:
            return
        if message.digest in matches or len(matches) <= _MOST_NAMED:
            matches.setdefault(message.digest, []).append(message)

    def result(self, source: str) -> _Matches:
        """Return the matching messages, which must all be the same message."""
        matches = next((matches for matches in self._found if matches), None)
        if matches is None:
            raise NothingFound(
                f"no message of {source!r} has the id {self._wanted!r}\nSee: redrive failed list"
            )
        if len(matches) > 1:
            more = "more than " if len(matches) > _MOST_NAMED else ""
            several = f"{more}{min(len(matches), _MOST_NAMED)} messages"
            ids = list(dict.fromkeys(messages[0].failure_id for messages in matches.values()))
            if len(ids) < len(matches):
                # Their failure ids don't tell them apart.
                digests = [digest[:_SHORT_DIGEST] for digest in list(matches)[:_MOST_NAMED]]
                raise ConfigurationError(
                    f"{self._wanted!r} matches {several} of {source!r} that differ, though some "
                    "share a failure id",
                    f"Give the digest of one: {', '.join(digests)}.",
                )
            raise ConfigurationError(
                f"{self._wanted!r} matches {several} of {source!r}",
                f"Give one of the failure ids: {', '.join(ids[:_MOST_NAMED])}.",
            )
        return matches
