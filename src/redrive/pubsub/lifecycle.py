"""Connection settings, the interface of connections, and how long to retry. Each shell implements
connections itself."""

import copy
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol, Self

from redrive.amqp.field_table import FieldValue
from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
    RedriveError,
    TopologyMismatch,
)
from redrive.pubsub import tls
from redrive.pubsub.service_connection import Address, broker_of
from redrive.pubsub.url import BrokerURL, Credentials, Endpoint, Login, client_properties
from redrive.pubsub.wire_protocol import Wire

logger = logging.getLogger("redrive")

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
ANSWER_TIMEOUT = 60.0
"""Seconds that a broker has to answer about a queue, an exchange, or messages that were moved."""
CLOSING_TIME = 2.0
"""Seconds that a broker has to answer when a connection is closed."""
HANDSHAKE_TIME = 5.0
"""Seconds that a broker has for the TLS and AMQP handshakes, in addition to the URL's
`connection_timeout`."""


def reconnect_delay(attempt: int, chance: float) -> float:
    """Return the seconds until the next try, counting attempts from 0: doubled each time, capped,
    and reduced by up to half according to `chance` (0 to 1).

    Jitter keeps a fleet of workers from reconnecting all at once when their broker is back.
    """
    return min(LONGEST_DELAY, FIRST_DELAY * float(2 ** min(attempt, 16))) * (1 - chance / 2)


def default_name(role: str, detail: str = "") -> str:
    """Return a connection name by which people recognise this connection on the broker's management
    page."""
    return f"redrive {role}{f' {detail}' if detail else ''} on {socket.gethostname()}"


class Listener(Protocol):
    """The user of a link. Its methods are called on the connection's thread."""

    def connected(self, connection: Wire) -> None:
        """Open channels: the connection is open."""

    def disconnected(self, error: RedriveError) -> None:
        """React to the loss of the connection and its channels; the link tries to reconnect."""

    def gave_up(self, error: RedriveError) -> None:
        """React to the link giving up: it can't connect, and stops trying."""

    def ended(self) -> None:
        """React to the end of the link; it does nothing any more."""


class Link(Protocol):
    """Keeps one connection open for a listener."""

    @property
    def address(self) -> str:
        """The broker's address, without the password."""

    def start(self) -> None:
        """Start connecting."""

    def on_io_thread(self) -> bool:
        """Check whether the caller runs on the connection's thread."""

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the connection's thread soon; not at all once the link is closed."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` on the connection's thread after `seconds`. Only from that thread."""

    def reconnect(self, reason: str) -> None:
        """Close the connection; the link opens a new one. Only from the connection's thread."""

    def close(self) -> None:
        """Close the connection and end the link; a second call does nothing."""

    def abort(self) -> None:
        """Drop the socket without closing the connection, as a crash would, and end the link."""


class BrokerAccess:
    """How to reach a broker: its hosts in turn, beginning with a random one. Credentials and
    certificate files are read at each connection."""

    def __init__(
        self,
        url: Address,
        name: str,
        credentials: Credentials | None = None,
        ssl_context: tls.ContextSource | None = None,
    ) -> None:
        self.url, its_context = broker_of(url)
        """The address, including the user that logged in last."""
        self.name = name
        self.tags: str | dict[str, str] | None = None
        """The subscriber's tag expression, or the expression of each queue if there are several;
        None if there is none, or if the connection does not consume."""
        self.policies: Mapping[str, str] = MappingProxyType({})
        """Description of the retry policy of each queue that this connection consumes."""
        self.credentials = credentials
        self.ssl_context = ssl_context if ssl_context is not None else its_context
        # If all clients began with the first host, the others would be idle.
        self._turn = random.randrange(len(self.url.endpoints))
        _check(self.url, credentials, self.ssl_context)
        if credentials is not None:
            self.url = replace(self.url, username="", password="")  # not known yet
        tls.warn_of_no_check(self.url.address, dict(self.url.tls_options))
        if not callable(self.ssl_context):
            # check now rather than on connecting: a missing file is the caller's mistake
            self.tls()

    def beside(self, suffix: str) -> Self:
        """Return the same access for another connection, with a suffix on its name."""
        other = copy.copy(self)
        other.name += suffix
        other.tags, other.policies = None, MappingProxyType({})
        return other

    @property
    def endpoint(self) -> Endpoint:
        """The host that answered last, or is next in turn."""
        return self.url.endpoints[self._turn]

    @property
    def client_properties(self) -> dict[str, FieldValue]:
        """What a connection tells the broker about itself."""
        return client_properties(self.name, self.tags, self.policies)

    @property
    def server_hostname(self) -> str:
        """The name that the host's certificate must have."""
        return dict(self.url.tls_options).get("server_name_indication", self.endpoint.host)

    @property
    def longest_opening(self) -> float:
        """Seconds after which to give up on opening a connection."""
        return self.url.connection_timeout + HANDSHAKE_TIME

    def next_host(self) -> None:
        """Move on to the next host, because the current one did not answer or was lost."""
        self._turn = (self._turn + 1) % len(self.url.endpoints)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings for the next connection, from the current files; None without
        TLS."""
        if self.ssl_context is None or isinstance(self.ssl_context, ssl.SSLContext):
            return self.ssl_context or self.url.ssl_context()
        try:
            context = self.ssl_context()
        except Exception as error:
            raise self._not_had("making the TLS context", "ssl_context", error) from error
        if not isinstance(context, ssl.SSLContext):
            raise ConfigurationError(
                f"the ssl_context function returned {type(context).__name__}",
                "Return an ssl.SSLContext.",
            )
        return context

    def login(self) -> Login:
        """Return the user and password; later errors name this user."""
        if self.credentials is None:
            return Login(self.url.username, self.url.password)
        try:
            login = _login_of(self.credentials())
        except Exception as error:
            raise self._not_had("asking for credentials", "credentials", error) from error
        self.url = replace(self.url, username=login.username)
        return login

    def with_login(self) -> BrokerURL:
        """Return the address with the current user and password, for requests that don't use
        AMQP."""
        login = self.login()
        return replace(self.url, username=login.username, password=login.password)

    def _not_had(self, what: str, argument: str, error: Exception) -> BrokerUnavailable:
        logger.debug("%s for %s raised", what, self.url.address, exc_info=error)
        return BrokerUnavailable(
            self.url.address, f"{what} raised {error!r}", f"Look into the {argument} callback."
        )


def _check(
    url: BrokerURL, credentials: Credentials | None, ssl_context: tls.ContextSource | None
) -> None:
    """Raise ConfigurationError if the arguments of an access contradict each other."""
    own = [name for name, _ in url.tls_options if name in tls.OPTIONS]
    if ssl_context is not None and not (
        isinstance(ssl_context, ssl.SSLContext) or callable(ssl_context)
    ):
        raise ConfigurationError(
            f"ssl_context is {ssl_context!r:.80}",
            "Give an ssl.SSLContext, or a function that returns one.",
        )
    if ssl_context is not None and not url.tls:
        raise ConfigurationError(
            "ssl_context is given, and the URL is not encrypted", "Begin it with amqps://."
        )
    if ssl_context is not None and own:
        raise ConfigurationError(
            f"ssl_context is given, and the URL has {', '.join(own)}", "Leave one of them out."
        )
    if url.auth_mechanism == "external":
        if credentials is not None:
            raise ConfigurationError(
                "the URL has auth_mechanism=external, and credentials are given",
                "Leave one of them out.",
            )
        if ssl_context is None and "certfile" not in own:
            raise ConfigurationError(
                "the URL has auth_mechanism=external and no client certificate to log in with",
                "Add certfile=… (or give ssl_context=).",
            )


def _login_of(given: object) -> Login:
    """Check what a credentials callback returned; errors don't show it, since it may be a
    password."""
    match given:
        case (str() as username, str() as password):
            return Login(username, password)
        case (str() as username, str() as password, datetime() as expires) if expires.tzinfo:
            return Login(username, password, expires)
    raise TypeError(
        f"it returned a {type(given).__name__}: return a user and a password, and optionally an "
        "aware datetime of their expiry"
    )


class ReconnectPolicy:
    """How long a link goes on trying to connect."""

    def __init__(
        self,
        access: BrokerAccess,
        patience: timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._destination = access
        self._patience = patience.total_seconds()
        self._clock = clock
        self._began = clock()
        self._attempt = 0
        self._was_up = False

    def began(self) -> None:
        """Record that the link starts connecting."""
        self._began = self._clock()

    def connected(self) -> None:
        """Record that the connection is open."""
        if self._was_up and self._attempt:
            logger.info("connected to %s again", self._destination.url.address)
        self._was_up = True
        self._attempt = 0

    def failed(self, error: RedriveError) -> float | None:
        """Return the seconds to wait after a failed or lost connection; None to give up."""
        if not self._was_up and (_is_final(error) or (self._is_over and self._tried_every_host)):
            return None
        delay = reconnect_delay(self._attempt, random.random())
        self._attempt += 1
        logger.warning(
            "%s; trying again in %.1f s", str(error).partition("\n")[0].rstrip("."), delay
        )
        return delay

    @property
    def _is_over(self) -> bool:
        # Measured by the clock, since each try takes time if a broker does not answer.
        return self._clock() - self._began >= self._patience

    @property
    def _tried_every_host(self) -> bool:
        return self._attempt + 1 >= len(self._destination.url.endpoints)


def _is_final(error: RedriveError) -> bool:
    """Check whether an error is one that waiting can't fix."""
    return isinstance(error, PermissionDenied | ConfigurationError | TopologyMismatch)
