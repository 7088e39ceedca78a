"""Keeps a connection whose login expires: the broker is given a new secret before the old one has.

The same for both shells. A broker that has heard of none closes the connection at its expiry, or
refuses what is asked for from then on.
"""

import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from redrive.errors import RedriveError
from redrive.pubsub.lifecycle import BrokerAccess, reconnect_delay
from redrive.pubsub.url import Login

logger = logging.getLogger("redrive")

_USED_UP = 2 / 3
"""The share of a login's time after which it is renewed; the rest is for further tries."""
_SOONEST = 1.0


class RenewableConnection(Protocol):
    """A connection that can be given another secret."""

    def update_login(self, password: str) -> None:
        """Has the broker check the user's rights by another password from now on."""


class LoginRenewal:
    """Renews the login of a link's connection. All but the asking is done on the link's thread."""

    def __init__(
        self,
        access: BrokerAccess,
        call: Callable[[Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], object],
        reconnect: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_thread: Callable[[Callable[[], None]], None] = lambda ask: threading.Thread(
            target=ask, name="redrive-credentials", daemon=True
        ).start(),
    ) -> None:
        self._access = access
        self._call = call
        self._call_later = call_later
        self._reconnect = reconnect
        self._now = now
        self._on_thread = on_thread
        self._connection: RenewableConnection | None = None

    def connected(self, connection: RenewableConnection, login: Login | None) -> None:
        """A connection was opened with this login."""
        self._connection = connection
        if login is not None:
            self._wait(connection, login)

    def disconnected(self) -> None:
        """The connection is gone."""
        self._connection = None

    def _wait(self, connection: RenewableConnection, login: Login) -> None:
        if login.expires is not None:
            left = (login.expires - self._now()).total_seconds()
            self._call_later(
                max(left * _USED_UP, _SOONEST), lambda: self._ask(connection, login, 0)
            )

    def _ask(self, connection: RenewableConnection, login: Login, attempt: int) -> None:
        """Asks on a thread: a vault may take its time."""
        if connection is not self._connection:
            return

        def ask() -> None:
            try:
                new = self._access.login()
            except RedriveError as error:
                failed = error
                self._call(lambda: self._failed(connection, login, attempt, failed))
            else:
                self._call(lambda: self._renew(connection, login, new))

        self._on_thread(ask)

    def _failed(
        self, connection: RenewableConnection, login: Login, attempt: int, error: RedriveError
    ) -> None:
        delay = reconnect_delay(attempt, random.random())
        logger.warning(
            "the login at %s could not be renewed; trying again in %.1f s: %s",
            self._access.url.address,
            delay,
            str(error).partition("\n")[0],
        )
        self._call_later(delay, lambda: self._ask(connection, login, attempt + 1))

    def _renew(self, connection: RenewableConnection, login: Login, new: Login) -> None:
        if connection is not self._connection:
            return
        if new.username != login.username:
            self._reconnect(f"{new.username} logs in now in place of {login.username}")
            return
        if new.password != login.password:
            connection.update_login(new.password)
            logger.info("the login at %s was renewed", self._access.url.address)
        self._wait(connection, new)
