"""What a user may do with queues of failed messages, according to the broker."""

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
"""Seconds for which an answer of the broker is cached."""
_MOST_KNOWN = 20_000


def check_login(url: str) -> None:
    """Check that the broker accepts a URL's user and password for its virtual host."""
    with Connector(url, default_name("login")).blocking():
        pass


class _Answer(NamedTuple):
    has: bool
    at: float


class OperatorRights:
    """What a user may do with queues of failed messages.

    The broker is asked about each right by an operation that changes nothing, so it doesn't matter
    whether it decides by its own permissions, LDAP or tokens. No rights in the management API are
    needed, and regular expressions are never read differently from the broker.
    """

    def __init__(self, url: str, family: ExchangeFamily) -> None:
        self._url = url
        self._family = family
        self._lock = threading.Lock()
        self._answers: dict[Right, _Answer] = {}
        self.is_refused = False
        """Whether the broker no longer accepts the user's login."""

    @property
    def user(self) -> str:
        """The broker user."""
        return BrokerURL.parse(self._url).username

    def missing(self, act: OperatorAct, queue: str, *, literal: bool) -> list[Right]:
        """Return the rights that the user lacks for an act."""
        needed = rights_needed(act, queue, self._family, literal=literal)
        has = self.has(needed)
        return [right for right, is_had in zip(needed, has, strict=True) if not is_had]

    def has(self, rights: Sequence[Right]) -> list[bool]:
        """Tell for each right whether the user has it.

        Earlier answers stay valid while the broker can't be reached.
        """
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
                f"{error}, and does not answer about write permissions meanwhile",
                "See its log.",
            ) from error
        at = time.monotonic()
        self._answers.update({right: _Answer(right not in missing, at) for right in asked})
