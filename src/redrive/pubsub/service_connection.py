"""A connection that a service has already, for redrive to connect as it does.

redrive opens connections of its own beside it. aio-pika reads whatever arrives on one of its own by
a codec that changes header values and raises at texts that are not UTF-8: a message that somebody
else published would take the service's connection down. And RabbitMQ holds publishers back by
connection, so that those who share one with consumers hold these back, too.

Source: aiormq 6.9.0 and 7.2.4; https://www.rabbitmq.com/docs/connections
"""

import ssl
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

from redrive.errors import ConfigurationError
from redrive.pubsub.url import BrokerURL, Endpoint, default_port


class ServiceConnection(Protocol):
    """What is used of aio-pika's AbstractConnection; besides, it has a `url`."""

    @property
    def kwargs(self) -> Mapping[str, object]:
        """The settings that are not in its URL."""
        ...


Address: TypeAlias = str | BrokerURL | ServiceConnection
"""Where a broker is: a URL, as text or parsed, or a connection of aio-pika's that knows."""

_TLS_OPTIONS = {"cafile": "cacertfile", "certfile": "certfile", "keyfile": "keyfile"}
"""What aiormq calls the files of certificates, and what RabbitMQ does."""
_UNKNOWN_HERE = ("capath", "cadata")


def broker_of(address: Address) -> tuple[BrokerURL, ssl.SSLContext | None]:
    """Where a broker is, with the login; and the TLS context that a connection was made with."""
    if isinstance(address, BrokerURL):
        return address, None
    url: Any = getattr(address, "url", None)
    settings = getattr(address, "kwargs", None)
    if url is not None and isinstance(settings, Mapping):
        return _parsed(url), settings.get("context")
    return BrokerURL.parse(cast("str", address)), None


def _parsed(url: Any) -> BrokerURL:
    """The address in a yarl.URL, with the options that aiormq has."""
    options = url.query
    for name in _UNKNOWN_HERE:
        if name in options:
            raise ConfigurationError(
                f"the connection has the TLS option {name}, which redrive has not",
                "Give the certificates as ssl_context, too.",
            )
    tls = url.scheme == "amqps"
    external = options.get("auth", "plain").lower() == "external"
    nobody = "" if external else "guest"
    named = [(ours, options[name]) for name, ours in _TLS_OPTIONS.items() if name in options]
    if options.get("no_verify_ssl", "0") != "0":
        named.append(("verify", "verify_none"))
    return BrokerURL(
        (Endpoint(url.host or "localhost", url.port or default_port(tls=tls)),),
        url.user or nobody,
        url.password or nobody,
        url.path[1:] or "/",
        tls,
        int(options["heartbeat"]) if "heartbeat" in options else None,
        tls_options=tuple(named) if tls else (),
        auth_mechanism="external" if external else "plain",
    )
