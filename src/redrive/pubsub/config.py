"""Where the broker is and how to reach it: the URL that every part of redrive takes.

    amqp://user:password@host:5672/virtual-host?heartbeat=30
    amqps://user:password@host1,host2:5671/?cacertfile=/etc/ca.pem

Query parameters are RabbitMQ's own. Source: https://www.rabbitmq.com/docs/uri-query-parameters
"""

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, quote, unquote

from redrive.errors import ConfigurationError
from redrive.redaction import redact

Credentials = Callable[[], tuple[str, str]]
"""Gives the user name and the password; asked at each connection, so that rotated ones are picked up."""

_EXAMPLE = "Give one such as amqp://localhost:5672/virtual-host, with the user and the password before the host: user:password@."
_PORTS = {"amqp": 5672, "amqps": 5671}
_SECONDS = ("heartbeat", "connection_timeout")
TLS_OPTIONS = ("cacertfile", "certfile", "keyfile", "verify")
_TLS_OPTIONS = (*TLS_OPTIONS, "server_name_indication")


_MARK = "redrive"


def client_properties(name: str) -> dict[str, str]:
    """What a connection of ours tells the broker about itself: its name, and whose it is."""
    return {"connection_name": name, _MARK: "yes"}


def is_ours(properties: Mapping[str, object]) -> bool:
    """Whether a connection that told the broker this is redrive's."""
    return _MARK in properties


def seconds_of(time: float | timedelta) -> float:
    """A length of time in seconds.

    Raises:
        ConfigurationError: it is negative, or none.
    """
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < float("inf"):
        raise ConfigurationError(f"the time {time!r} can't be waited for", "Give seconds as a number from 0, or a timedelta.")
    return float(seconds)


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
        endpoints: the hosts that are tried in turn.
        username: the user.
        password: the password.
        virtual_host: the virtual host.
        tls: whether the connection is encrypted.
        heartbeat: seconds between heartbeats, or None for the broker's own suggestion.
        connection_timeout: seconds that connecting to one host may take.
        tls_options: `cacertfile`, `certfile`, `keyfile`, `verify`, `server_name_indication`, as RabbitMQ names them.
    """

    endpoints: tuple[Endpoint, ...]
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    tls: bool = False
    heartbeat: int | None = None
    connection_timeout: float = 10.0
    tls_options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> "BrokerURL":
        """The address in a URL.

        Raises:
            ConfigurationError: the URL can't be read; the message says which part.
        """
        scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        if not separator or scheme not in _PORTS:
            shown = redact(str(url)).rpartition("@")[2]  # what stands before an @ may be a password
            raise ConfigurationError(f"{shown!r} is no address of a broker: it does not begin with amqp:// or amqps://", _EXAMPLE)
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        userinfo, at, hosts = authority.rpartition("@")
        username, colon, password = userinfo.partition(":")
        options = _options(query)
        return cls(
            endpoints=tuple(_endpoint(host, _PORTS[scheme]) for host in hosts.split(",")),
            username=unquote(username) if at and username else "guest",
            password=unquote(password) if colon else "guest",
            virtual_host=unquote(path) if slash and path else "/",
            tls=scheme == "amqps",
            heartbeat=int(options["heartbeat"]) if "heartbeat" in options else None,
            connection_timeout=float(options.get("connection_timeout", 10_000)) / 1000,
            tls_options=tuple((name, options[name]) for name in _TLS_OPTIONS if name in options),
        )

    @property
    def address(self) -> str:
        """The address in words for people, without the password."""
        hosts = ",".join(map(str, self.endpoints))
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{quote(self.username, safe='')}@{hosts}/{quote(self.virtual_host, safe='')}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS settings, or None without TLS.

        Raises:
            ConfigurationError: a certificate or key file can't be read.
        """
        return tls_context(dict(self.tls_options)) if self.tls else None

    def __str__(self) -> str:
        return self.address


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS settings that options of a URL ask for; what the system trusts is trusted where they name no CA.

    Raises:
        ConfigurationError: a certificate or key file can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
        if "certfile" in options:
            context.load_cert_chain(options["certfile"], options.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the TLS files of the URL can't be read: {error}", "Check cacertfile, certfile and keyfile.") from error
    if options.get("verify") == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def options_of(query: str, known: Sequence[str]) -> dict[str, str]:
    """The options in a URL's query, each of which is known.

    Raises:
        ConfigurationError: one is not.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise ConfigurationError(
                f"the URL has the parameter {name!r}, which is none that redrive knows", f"Known are {', '.join(known)}."
            )
    return options


def _options(query: str) -> dict[str, str]:
    options = options_of(query, (*_SECONDS, *_TLS_OPTIONS))
    for name, value in options.items():
        if name in _SECONDS and not value.isdigit():
            raise ConfigurationError(
                f"the URL has {name}={value!r}", "Give a whole number: heartbeat in seconds, connection_timeout in ms."
            )
    return options


def _endpoint(text: str, default_port: int) -> Endpoint:
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in text:
        host, _, port = text.partition(":")
    if not host:
        raise ConfigurationError("the URL has no host", _EXAMPLE)
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError(f"the URL has the port {port!r}", "Give a number from 1 to 65535.")
    return Endpoint(unquote(host), int(port) if port else default_port)
