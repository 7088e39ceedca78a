"""Where to connect, whom to tell, and how long to go on trying. What a shell does about it is its own."""

import logging
import random
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError, TopologyMismatch
from redrive.pubsub.config import BrokerURL, Credentials, Endpoint
from redrive.pubsub.wire import Wire

logger = logging.getLogger("redrive")

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
CLOSING_TIME = 2.0
"""Seconds that a broker has to answer when a connection is closed."""


def reconnect_delay(attempt: int, chance: float) -> float:
    """Seconds until the next try, from attempt 0: doubling, capped, and up to half of it taken off by `chance` (0 to 1).

    Jitter keeps a fleet of workers from knocking all at once when their broker is back.
    """
    return min(LONGEST_DELAY, FIRST_DELAY * float(2 ** min(attempt, 16))) * (1 - chance / 2)


def default_name(role: str, detail: str = "") -> str:
    """A connection name that tells people at the broker's management page who this is."""
    return f"redrive {role}{f' {detail}' if detail else ''} on {socket.gethostname()}"


class Listener(Protocol):
    """What uses a link. All of it is called on the connection's thread."""

    def connected(self, connection: Wire) -> None:
        """The connection is open: open channels."""

    def disconnected(self, error: RedriveError) -> None:
        """The connection is lost, its channels with it; the link tries to come back."""

    def gave_up(self, error: RedriveError) -> None:
        """The connection can't be had, and the link does not try any further."""

    def ended(self) -> None:
        """The link is closed, and does nothing any more."""


class Link(Protocol):
    """Keeps one connection open for a listener."""

    @property
    def address(self) -> str:
        """The broker's address, without the password."""

    def start(self) -> None:
        """Begins to connect."""

    def call(self, function: Callable[[], None]) -> None:
        """Runs `function` on the connection's thread, soon. After the link is closed nothing runs."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Runs `function` on the connection's thread in so many seconds. Only from there."""

    def reconnect(self, reason: str) -> None:
        """Closes the connection; the link opens a new one. Only from the connection's thread."""

    def close(self) -> None:
        """Closes the connection and ends the link; the second call does nothing."""

    def abort(self) -> None:
        """Drops the socket without a word, as a crash would, and ends the link."""


class Destination:
    """A broker: its hosts in turn, credentials asked for each time.

    Args:
        url: the broker's address.
        name: the connection's name, as the broker shows it.
        credentials: asked for user and password at each connection, in place of the URL's.
    """

    def __init__(self, url: str | BrokerURL, name: str, credentials: Credentials | None = None) -> None:
        self.url = url if isinstance(url, BrokerURL) else BrokerURL.parse(url)
        self.name = name
        self.credentials = credentials
        self.ssl_context = self.url.ssl_context()
        self._turn = 0

    @property
    def endpoint(self) -> Endpoint:
        """The host that answered last, or is next in turn."""
        return self.url.endpoints[self._turn]

    @property
    def server_hostname(self) -> str:
        """The name that the host's certificate must have."""
        return dict(self.url.tls_options).get("server_name_indication", self.endpoint.host)

    def next_host(self) -> None:
        """Moves on to the next host: the one that was tried did not answer."""
        self._turn = (self._turn + 1) % len(self.url.endpoints)

    def login(self) -> tuple[str, str]:
        """The user and the password.

        Raises:
            BrokerUnavailable: the callback that was to give them raised.
        """
        if self.credentials is None:
            return self.url.username, self.url.password
        try:
            return self.credentials()
        except Exception as error:
            logger.exception("the credentials for %s could not be had", self.url.address)
            raise BrokerUnavailable(
                self.url.address, f"asking for credentials raised {error!r}", "Mend the credentials callback."
            ) from error


class Persistence:
    """How long a link goes on trying.

    Args:
        destination: where to.
        patience: how long a broker that does not answer is waited for at the first connection. Once it has been up, for ever.
    """

    def __init__(self, destination: Destination, patience: timedelta) -> None:
        self._destination = destination
        self._patience = patience.total_seconds()
        self._attempt = 0
        self._waited = 0.0
        self._was_up = False

    def connected(self) -> None:
        """The connection is open."""
        if self._was_up:
            logger.info("connected to %s again", self._destination.url.address)
        self._was_up = True
        self._attempt = 0

    def failed(self, error: RedriveError) -> float | None:
        """The connection could not be had, or is lost.

        Returns:
            In how many seconds to try again; None for not at all.
        """
        if not self._was_up and (_is_final(error) or (self._waited >= self._patience and self._tried_every_host)):
            return None
        delay = reconnect_delay(self._attempt, random.random())
        self._attempt += 1
        self._waited += delay
        logger.warning("%s; trying again in %.1f s", str(error).partition("\n")[0].rstrip("."), delay)
        return delay

    @property
    def _tried_every_host(self) -> bool:
        return self._attempt + 1 >= len(self._destination.url.endpoints)


def _is_final(error: RedriveError) -> bool:
    """Whether waiting can't help."""
    return isinstance(error, PermissionDenied | ConfigurationError | TopologyMismatch)
