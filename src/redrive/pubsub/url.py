"""The broker's address: the URL that every part of redrive takes.

    amqp://user:password@host:5672/virtual-host?heartbeat=30
    amqps://user:password@host1,host2:5671/?cacertfile=/etc/ca.pem

Query parameters are RabbitMQ's own. Source: https://www.rabbitmq.com/docs/uri-query-parameters
"""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError
from redrive.pubsub import tls
from redrive.topology.durations import Duration, duration_of

Credentials = Callable[[], tuple[str, str] | tuple[str, str, datetime]]
"""Returns the user name and the password, and, if they expire, the aware datetime at which they do.
Called at each connection, so that rotated credentials are picked up, and again before they
expire."""


class Login(NamedTuple):
    """The login of a connection, and when it expires; None for never."""

    username: str
    password: str
    expires: datetime | None = None


_EXAMPLE = (
    "Give one such as amqp://localhost:5672/virtual-host, with the user and the password "
    "before the host: user:password@."
)
_PORTS = {"amqp": 5672, "amqps": 5671}
_SECONDS = ("heartbeat", "connection_timeout")
_TLS_OPTIONS = (*tls.OPTIONS, "server_name_indication")
_MECHANISM = "auth_mechanism"
_ENCODE = (
    "Percent-encode these characters in user, password and virtual host: / as %2F, ? as %3F, # as "
    "%23, @ as %40, : as %3A "
    "(urllib.parse.quote(password, safe='') does it)."
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

AuthMechanism = Literal["plain", "external"]
"""How a connection authenticates: by user and password, or by its client certificate."""


_MARK, _TAGS, _POLICIES = "redrive", "redrive_tags", "redrive_policies"

_MOST_OF_POLICIES = 2000
"""Limit in bytes on the policies in a connection's properties. These are sent in one frame before
the frame size is negotiated, when only 4096 bytes are guaranteed to be accepted. Source: AMQP
0-9-1, `frame-min-size`."""


def default_port(*, tls: bool) -> int:
    """Return the port of a broker whose address has none."""
    return _PORTS["amqps" if tls else "amqp"]


def client_properties(
    name: str,
    tags: str | dict[str, str] | None = None,
    policies: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, FieldValue]:
    """Return the client properties of a redrive connection: its name, a mark, the tag expression of
    its subscriber (or of each queue, if there are several), and the description of each queue's
    retry policy, if there is room for all of them."""
    mine: dict[str, FieldValue] = {"connection_name": name, _MARK: "yes"}
    if tags is not None:
        mine[_TAGS] = tags if isinstance(tags, str) else {**tags}
    if policies and len(f"{policies}".encode()) <= _MOST_OF_POLICIES:
        mine[_POLICIES] = {**policies}
    return mine


def policy_of(properties: Mapping[str, object], queue: str) -> str | None:
    """Return the description of a queue's retry policy from the properties of a redrive
    connection."""
    policies = properties.get(_POLICIES)
    policy = policies.get(queue) if isinstance(policies, Mapping) else None
    return policy if isinstance(policy, str) else None


def tags_of(properties: Mapping[str, object], queue: str) -> str:
    """Return the tags and the filter of a queue's subscriber as text, from the properties of a
    redrive connection; empty if it has none."""
    tags = properties.get(_TAGS)
    if isinstance(tags, Mapping):
        tags = tags.get(queue)
    return tags if isinstance(tags, str) else ""


def is_ours(properties: Mapping[str, object]) -> bool:
    """Check whether client properties are those of a redrive connection."""
    return _MARK in properties


def seconds_of(time: Duration) -> float:
    """Return a duration in seconds."""
    seconds = duration_of(time, "the time to wait").total_seconds()
    if seconds < 0:
        raise ConfigurationError(f"the time to wait is {time!r}", "Give zero or more.")
    return seconds


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerURL:
    """A broker's address. Printing it never shows the password.

    Args:
        endpoints: the hosts to try in turn.
        username: the user.
        password: the password.
        virtual_host: the virtual host.
        tls: whether the connection is encrypted.
        heartbeat: seconds between heartbeats, or None for the broker's suggestion.
        connection_timeout: seconds that connecting to one host may take.
        tls_options: `cacertfile`, `certfile`, `keyfile`, `verify`, `server_name_indication`, with
            RabbitMQ's names.
        auth_mechanism: `plain`, or `external` for login by client certificate, without user and
            password.
    """

    endpoints: tuple[Endpoint, ...]
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    tls: bool = False
    heartbeat: int | None = None
    connection_timeout: float = 10.0
    tls_options: tuple[tuple[str, str], ...] = ()
    auth_mechanism: AuthMechanism = "plain"

    @classmethod
    def parse(cls, url: str) -> "BrokerURL":
        """Parse a URL."""
        scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        if not separator or scheme not in _PORTS:
            # Of an invalid URL, show only the scheme: a password may be anywhere in the rest.
            found = (
                f"a URL with {scheme}://"
                if separator and _SCHEME.fullmatch(scheme)
                else "what was given"
            )
            raise ConfigurationError(
                f"{found} is not a broker address: it does not begin with amqp:// or amqps://",
                _EXAMPLE,
            )
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        check_unambiguous("the URL", path, query)
        userinfo, at, hosts = authority.rpartition("@")
        username, colon, password = userinfo.partition(":")
        # Without an @, what looks like a port or a query may be part of a password.
        may_show = bool(at) or ":" not in authority
        endpoints = tuple(
            _endpoint(host, _PORTS[scheme], may_show=may_show) for host in hosts.split(",")
        )
        options = _options(query, may_show=may_show)
        _check_tls(scheme, options)
        mechanism = _mechanism(scheme, options, has_password=bool(colon))
        nobody = "" if mechanism == "external" else "guest"
        return cls(
            endpoints=endpoints,
            username=unquote(username) if at and username else nobody,
            password=unquote(password) if colon else nobody,
            virtual_host=unquote(path) if slash and path else "/",
            tls=scheme == "amqps",
            heartbeat=int(options["heartbeat"]) if "heartbeat" in options else None,
            connection_timeout=float(options.get("connection_timeout", 10_000)) / 1000,
            tls_options=tuple((name, options[name]) for name in _TLS_OPTIONS if name in options),
            auth_mechanism=mechanism,
        )

    @property
    def address(self) -> str:
        """The address for display, without the password, and without a user if none is known."""
        hosts = ",".join(map(str, self.endpoints))
        scheme = "amqps" if self.tls else "amqp"
        user = f"{quote(self.username, safe='')}@" if self.username else ""
        return f"{scheme}://{user}{hosts}/{quote(self.virtual_host, safe='')}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, from the current files, or None without TLS."""
        return tls.tls_context(dict(self.tls_options)) if self.tls else None

    def __str__(self) -> str:
        return self.address


def url_with_login(url: str, username: str, password: str) -> str:
    """Return the same address for another user, with a password."""
    BrokerURL.parse(url)
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    hosts = authority.rpartition("@")[2]
    kept = "&".join(one for one in query.split("&") if one and not one.startswith(_MECHANISM))
    login = f"{quote(username, safe='')}:{quote(password, safe='')}"
    return f"{scheme}://{login}@{hosts}{slash}{path}{'?' if kept else ''}{kept}"


def check_unambiguous(what: str, *after_the_host: str) -> None:
    """Refuse a URL, called `what` in the error, whose password may have been cut off at a `/` or
    `?` in it, so that the `@` comes after that."""
    if any("@" in part for part in after_the_host):
        raise ConfigurationError(
            f"{what} has an @ after its first / or ?, so it is unclear where its password ends",
            _ENCODE,
        )


def options_of(query: str, known: Sequence[str], *, may_show: bool = True) -> dict[str, str]:
    """Return the options in a URL's query; unknown ones are refused."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            named = f"the parameter {name!r}, which" if may_show else "a parameter that"
            raise ConfigurationError(
                f"the URL has {named} redrive does not know", f"Known are {', '.join(known)}."
            )
    return options


def _options(query: str, *, may_show: bool) -> dict[str, str]:
    options = options_of(query, (*_SECONDS, *_TLS_OPTIONS, _MECHANISM), may_show=may_show)
    for name, value in options.items():
        if name in _SECONDS and not _is_number(value):
            raise ConfigurationError(
                f"the URL has {name}={value!r}",
                "Give a whole number: heartbeat in seconds, connection_timeout in ms.",
            )
    return options


def _check_tls(scheme: str, options: Mapping[str, str]) -> None:
    for name in _TLS_OPTIONS:
        if name in options and scheme != "amqps":
            raise ConfigurationError(
                f"the URL has {name}, and amqp:// is not encrypted",
                "Begin it with amqps://, or leave that out.",
            )
    tls.check_options(options)


def _mechanism(scheme: str, options: Mapping[str, str], *, has_password: bool) -> AuthMechanism:
    match options.get(_MECHANISM, "plain").lower():
        case "plain":
            return "plain"
        case "external":
            if scheme != "amqps":
                raise ConfigurationError(
                    f"the URL has {_MECHANISM}=external, and amqp:// shows no certificate",
                    "Use amqps://.",
                )
            if has_password:
                raise ConfigurationError(
                    f"the URL has a password and {_MECHANISM}=external", "Leave one of them out."
                )
            return "external"
        case _:
            raise ConfigurationError(
                f"the URL has {_MECHANISM}={options[_MECHANISM]!r}",
                "Give plain (the default) or external.",
            )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _endpoint(text: str, default_port: int, *, may_show: bool) -> Endpoint:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.partition(":")
    if not host:
        raise ConfigurationError("the URL has no host", _EXAMPLE)
    if port and not (_is_number(port) and 0 < int(port) < 65536):
        if may_show:
            raise ConfigurationError(
                f"the URL has the port {port!r}", "Give a number from 1 to 65535."
            )
        raise ConfigurationError(
            "the URL has a port that is not a number from 1 to 65535, and no @",
            "If it is a password, an @ and the host must follow it: amqp://user:password@host.",
        )
    return Endpoint(unquote(host), int(port) if port else default_port)
