"""Where a console is reachable, and how people sign in to it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Self

from redrive.errors import ConfigurationError

Network = IPv4Network | IPv6Network

_EXAMPLE = "Give one such as 127.0.0.1:8015 or [::1]:8015."
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_ANYWHERE = frozenset({"0.0.0.0", "::"})
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_HOST = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_OWN_HEADERS = frozenset({"host", "cookie", "origin", "content-type", "content-length"})


class Login(StrEnum):
    """How people sign in."""

    LINK = "link"
    """With a one-time link that the console prints."""
    BROKER = "broker"
    """With a RabbitMQ user name and password."""
    PROXY = "proxy"
    """Through a proxy that names the user in a header."""


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """Where a console is reachable, and how people sign in to it.

    Args:
        login: how people sign in.
        certfile: the certificate for the console's own TLS; None for no TLS.
        keyfile: its private key; None if the key is in `certfile`.
        trusted_proxies: the addresses whose `X-Forwarded-…` headers are trusted.
        trust_header: the header in which these proxies name the user; empty for none.
        hosts: further names to accept in a `Host` header, with or without a port.
        idle_time: how long a session lasts without a request.
    """

    login: Login = Login.LINK
    certfile: Path | None = None
    keyfile: Path | None = None
    trusted_proxies: tuple[Network, ...] = ()
    trust_header: str = ""
    hosts: tuple[str, ...] = ()
    idle_time: timedelta = timedelta(minutes=30)

    def __post_init__(self) -> None:
        if bool(self.trust_header) != (self.login is Login.PROXY):
            raise ConfigurationError(
                "a header names the user, but the login is a different one",
                "Use either --trust-header or --login broker.",
            )
        if self.trust_header and not self.trusted_proxies:
            raise ConfigurationError(
                f"anybody could set {self.trust_header} and pose as another user",
                "Name the proxy to trust: --trusted-proxy 127.0.0.1.",
            )
        if self.keyfile is not None and self.certfile is None:
            raise ConfigurationError("--keyfile needs a certificate", "Give --certfile too.")

    @property
    def is_encrypted(self) -> bool:
        """Whether the console has its own TLS."""
        return self.certfile is not None

    def is_proxy(self, address: str) -> bool:
        """Return whether an address belongs to a trusted proxy."""
        try:
            found = ip_address(address)
        except ValueError:  # a Unix socket has no address
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.trusted_proxies)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address that a console listens on.

    Args:
        host: an address of this machine.
        port: the port; 0 for any free port.
    """

    host: str
    port: int

    @classmethod
    def of(cls, text: str, access: AccessConfig | None = None) -> Self:
        """Parse an address such as `127.0.0.1:8015`, `[::1]:8015` or `localhost:0`."""
        host, separator, port = text.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        if not separator or not port.isdecimal() or int(port) > 65535 or not port.isascii():
            raise ConfigurationError(f"{text!r} is not a host and port to listen on", _EXAMPLE)
        place = cls(host, int(port))
        if not place.is_loopback:
            _check_reached_by_others(text, host, access or AccessConfig())
        return place

    @property
    def is_loopback(self) -> bool:
        """Whether the address is reachable from this machine only."""
        return self.host in _LOOPBACK

    def allowed_hosts(self, port: int, access: AccessConfig) -> frozenset[str]:
        """Return the accepted `Host` headers: the configured names, and the address that the
        console listens on, with its port."""
        own = ("127.0.0.1", "localhost", "[::1]") if self.is_loopback else (_bracketed(self.host),)
        named = [
            name
            for host in access.hosts
            for name in ((host,) if _has_port(host) else (host, f"{host}:{port}"))
        ]
        anywhere = self.host in _ANYWHERE
        return frozenset([*named, *(() if anywhere else (f"{host}:{port}" for host in own))])

    def address(self, port: int, access: AccessConfig | None = None) -> str:
        """Return the URL for a browser."""
        scheme = "https" if access is not None and access.is_encrypted else "http"
        return f"{scheme}://{_bracketed(self.host)}:{port}"


def _check_reached_by_others(text: str, host: str, access: AccessConfig) -> None:
    if not host:
        raise ConfigurationError(f"{text!r} is not a host and port to listen on", _EXAMPLE)
    if access.login is Login.LINK:
        raise ConfigurationError(
            f"{text!r} is reachable from other machines, and the console has no login",
            "Add a login (--login broker), or listen on the loopback, 127.0.0.1 or [::1], "
            "and forward the port with ssh -L.",
        )
    if not access.is_encrypted and not access.trusted_proxies:
        raise ConfigurationError(
            f"passwords and sessions would travel to {text!r} unencrypted",
            "Give --certfile and --keyfile, or name the proxy that terminates TLS: "
            "--trusted-proxy ADDRESS.",
        )
    if host in _ANYWHERE and not access.hosts:
        raise ConfigurationError(
            f"{text!r} is every address of this machine, so a host name is needed",
            "Name the host that people open: --host console.example.",
        )


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks such as `10.0.0.7` or `10.0.0.0/8`."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError as error:
            raise ConfigurationError(
                f"{text!r} is not a proxy address", "Give one such as 10.0.0.7 or 10.0.0.0/24."
            ) from error
    return tuple(found)


def header_named(text: str) -> str:
    """Return a header's name in lower case, after checking that it can name a user."""
    name = text.lower()
    is_own = name in _OWN_HEADERS or name.startswith(("x-forwarded-", "sec-"))
    if not _HEADER.fullmatch(name) or (is_own and name != "x-forwarded-user"):
        raise ConfigurationError(
            f"{text!r} is not a header that can name a user",
            "Give one such as X-Forwarded-User, which the proxy must always overwrite.",
        )
    return name


def hosts_named(texts: Iterable[str]) -> tuple[str, ...]:
    """Return host names in lower case, after checking them."""
    found = tuple(text.lower() for text in texts)
    for host in found:
        if not _HOST.fullmatch(host):
            raise ConfigurationError(
                f"{host!r} is not a host name",
                "Give one such as console.example or console.example:8443.",
            )
    return found


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
