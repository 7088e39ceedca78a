"""What a user may do with queues of failed messages, as the broker says it."""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from redrive.errors import BrokerUnavailable, PermissionDenied
from redrive.pubsub.admin.amqp_survey import PublishersBlocked, missing_rights
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import OperatorAct, rights_needed
from redrive.topology.doctor.permissions import Right
from redrive.topology.names import ExchangeFamily

_BELIEVED = 30.0
"""Seconds for which an answer of the broker's is believed."""
_MOST_KNOWN = 20_000


def check_login(url: str) -> None:
    """Checks that the broker lets the user of an address in, with its password, to its virtual
    host."""
    with Connector(url, default_name("login")).blocking():
        pass


class _Answer(NamedTuple):
    has: bool
    at: float


class OperatorRights:
    """What a user may do with queues of failed messages.

    Each right is asked of the broker by something that changes nothing, whatever the broker decides
    it by: permissions of its own, LDAP, tokens. So no right of the management API is needed, and a
    regular expression is never read in another way than the broker reads it.
    """

    def __init__(self, url: str, family: ExchangeFamily) -> None:
        self._url = url
        self._family = family
        self._lock = threading.Lock()
        self._answers: dict[Right, _Answer] = {}
        self.is_refused = False
        """Whether the broker does not let the user in any more."""

    @property
    def user(self) -> str:
        """The broker's user."""
        return BrokerURL.parse(self._url).username

    def missing(self, act: OperatorAct, queue: str, *, literal: bool) -> list[Right]:
        """The rights that the user lacks for an act."""
        needed = rights_needed(act, queue, self._family, literal=literal)
        has = self.has(needed)
        return [right for right, is_had in zip(needed, has, strict=True) if not is_had]

    def has(self, rights: Sequence[Right]) -> list[bool]:
        """Of each right, whether the user has it. What the broker has answered before is what
        counts while it can't be reached."""
        with self._lock:
            if len(self._answers) > _MOST_KNOWN:
                self._answers.clear()
            now = time.monotonic()
            unknown = [
                right
                for right in dict.fromkeys(rights)
                if right not in self._answers or now - self._answers[right].at > _BELIEVED
            ]
            if unknown:
                try:
                    self._ask(unknown)
                except PermissionDenied:
                    self.is_refused = True
                    raise
                except BrokerUnavailable:
                    if any(right not in self._answers for right in unknown):
                        raise
            return [self._answers[right].has for right in rights]

    def _ask(self, rights: Iterable[Right]) -> None:
        connector = Connector(self._url, default_name("rights"))
        asked = list(rights)
        try:
            with connector.blocking() as connection:
                missing = set(missing_rights(connection, asked))
        except PublishersBlocked as error:
            raise BrokerUnavailable(
                connector.url.address,
                f"{error}, and says nothing of rights to write meanwhile",
                "See its log.",
            ) from error
        at = time.monotonic()
        self._answers.update({right: _Answer(right not in missing, at) for right in asked})
