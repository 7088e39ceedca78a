"""Address and login from a connection that a service already has.

redrive uses these to open connections of its own. On its own connections, aio-pika decodes
everything that arrives with a codec that changes header values and raises on text that is not
UTF-8: one message published by anybody else could close the service's connection. And RabbitMQ
throttles publishers by connection, so publishers would throttle consumers on the same connection
too.

Source: aiormq 6.9.0 and 7.2.4; https://www.rabbitmq.com/docs/connections
"""

import ssl
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

from redrive.errors import ConfigurationError
from redrive.pubsub.url import BrokerURL, Endpoint, default_port


class ServiceConnection(Protocol):
    """The part of aio-pika's AbstractConnection that is used; it also has a `url`."""

    @property
    def kwargs(self) -> Mapping[str, object]:
        """The settings that are not in its URL."""
        ...


Address: TypeAlias = str | BrokerURL | ServiceConnection
"""A broker's address: a URL, as text or parsed, or an aio-pika connection."""

_TLS_OPTIONS = {"cafile": "cacertfile", "certfile": "certfile", "keyfile": "keyfile"}
"""aiormq's names for the certificate files, with RabbitMQ's names."""
_UNKNOWN_HERE = ("capath", "cadata")


def broker_of(address: Address) -> tuple[BrokerURL, ssl.SSLContext | None]:
    """Return a broker's address and login, and the TLS context of a connection that was made with
    one."""
    if isinstance(address, BrokerURL):
        return address, None
    url: Any = getattr(address, "url", None)
    settings = getattr(address, "kwargs", None)
    if url is not None and isinstance(settings, Mapping):
        return _parsed(url), settings.get("context")
    return BrokerURL.parse(cast("str", address)), None


def _parsed(url: Any) -> BrokerURL:
    """Return the address from a yarl.URL with aiormq's options."""
    options = url.query
    for name in _UNKNOWN_HERE:
        if name in options:
            raise ConfigurationError(
                f"the connection has the TLS option {name}, which redrive does not support",
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
