"""Renews logins that expire: the broker gets a new secret before the old one expires.

Shared by both shells. A broker that gets none closes the connection at expiry, or refuses all
requests from then on.
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
"""The share of a login's lifetime after which it is renewed; the rest leaves time to retry."""
_SOONEST = 1.0


class RenewableConnection(Protocol):
    """A connection whose secret can be updated."""

    def update_login(self, password: str) -> None:
        """Have the broker check the user's rights with another password from now on."""


class LoginRenewal:
    """Renews the login of a link's connection. Everything but the credentials callback runs on the
    link's thread."""

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
        """Schedule the renewal for a connection opened with this login."""
        self._connection = connection
        if login is not None:
            self._wait(connection, login)

    def disconnected(self) -> None:
        """Forget the connection that was lost."""
        self._connection = None

    def _wait(self, connection: RenewableConnection, login: Login) -> None:
        if login.expires is not None:
            left = (login.expires - self._now()).total_seconds()
            self._call_later(
                max(left * _USED_UP, _SOONEST), lambda: self._ask(connection, login, 0)
            )

    def _ask(self, connection: RenewableConnection, login: Login, attempt: int) -> None:
        """Ask for credentials on a separate thread, since a vault may be slow."""
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
