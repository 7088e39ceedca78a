"""From where a console is reached, and how people come in."""

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
    """How people come in."""

    LINK = "link"
    """By a link that was printed, once."""
    BROKER = "broker"
    """With a user and a password of RabbitMQ's."""
    PROXY = "proxy"
    """A proxy says in a header who it is."""


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """From where a console is reached, and how people come in.

    Args:
        login: how people come in.
        certfile: the certificate of the console's own TLS; None for none.
        keyfile: its key; None where it is in the same file.
        trusted_proxies: the addresses whose requests say by `X-Forwarded-…` whom they are of.
        trust_header: the header in which these say who somebody is; empty for none.
        hosts: further names that a `Host` header may say, with a port or without.
        idle_time: after how long without a request a session ends.
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
                "a header says who somebody is, and people come in another way",
                "Give either --trust-header or --login broker.",
            )
        if self.trust_header and not self.trusted_proxies:
            raise ConfigurationError(
                f"anybody could say in {self.trust_header} who they are",
                "Name the proxy whose word counts: --trusted-proxy 127.0.0.1.",
            )
        if self.keyfile is not None and self.certfile is None:
            raise ConfigurationError("there is a key without a certificate", "Give --certfile too.")

    @property
    def is_encrypted(self) -> bool:
        """Whether the console has TLS of its own."""
        return self.certfile is not None

    def is_proxy(self, address: str) -> bool:
        """Whether the word of whoever sends from an address counts."""
        try:
            found = ip_address(address)
        except ValueError:  # a socket of the file system has none
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.trusted_proxies)

    @property
    def is_local(self) -> bool:
        """Whether those who come in are surely on this machine, wherever the console listens."""
        return self.login is Login.LINK and not self.trusted_proxies


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a console listens.

    Args:
        host: an address of this machine.
        port: the port; 0 for any that is free.
    """

    host: str
    port: int

    @classmethod
    def of(cls, text: str, access: AccessConfig | None = None) -> Self:
        """The place in a text such as `127.0.0.1:8015`, `[::1]:8015` or `localhost:0`."""
        host, separator, port = text.rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        if not separator or not port.isdecimal() or int(port) > 65535 or not port.isascii():
            raise ConfigurationError(f"{text!r} is no host and port to listen at", _EXAMPLE)
        place = cls(host, int(port))
        if not place.is_loopback:
            _check_reached_by_others(text, host, access or AccessConfig())
        return place

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _LOOPBACK

    def allowed_hosts(self, port: int, access: AccessConfig) -> frozenset[str]:
        """What a `Host` header may say: the names with a port that a browser asks for it by, and
        those that were named."""
        own = ("127.0.0.1", "localhost", "[::1]") if self.is_loopback else (_bracketed(self.host),)
        named = [
            name
            for host in access.hosts
            for name in ((host,) if _has_port(host) else (host, f"{host}:{port}"))
        ]
        anywhere = self.host in _ANYWHERE
        return frozenset([*named, *(() if anywhere else (f"{host}:{port}" for host in own))])

    def address(self, port: int, access: AccessConfig | None = None) -> str:
        """Where a browser finds it."""
        scheme = "https" if access is not None and access.is_encrypted else "http"
        return f"{scheme}://{_bracketed(self.host)}:{port}"


def _check_reached_by_others(text: str, host: str, access: AccessConfig) -> None:
    if not host:
        raise ConfigurationError(f"{text!r} is no host and port to listen at", _EXAMPLE)
    if access.login is Login.LINK:
        raise ConfigurationError(
            f"the console would be reached at {text!r} by others, and has no login",
            "Have people log in (--login broker), or listen on the loopback, 127.0.0.1 or [::1], "
            "and reach it by ssh -L.",
        )
    if not access.is_encrypted and not access.trusted_proxies:
        raise ConfigurationError(
            f"passwords and sessions would pass to {text!r} unencrypted",
            "Give --certfile and --keyfile, or name the proxy in front that has TLS: "
            "--trusted-proxy ADDRESS.",
        )
    if host in _ANYWHERE and not access.hosts:
        raise ConfigurationError(
            f"{text!r} is every address of this machine, and none of them is a name to answer to",
            "Say by which name people ask for it: --host console.example.",
        )


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks in texts such as `10.0.0.7` or `10.0.0.0/8`."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError as error:
            raise ConfigurationError(
                f"{text!r} is no address of a proxy", "Give one such as 10.0.0.7 or 10.0.0.0/24."
            ) from error
    return tuple(found)


def header_named(text: str) -> str:
    """The name of a header, in lower case."""
    name = text.lower()
    is_own = name in _OWN_HEADERS or name.startswith(("x-forwarded-", "sec-"))
    if not _HEADER.fullmatch(name) or (is_own and name != "x-forwarded-user"):
        raise ConfigurationError(
            f"{text!r} is no header that says who somebody is",
            "Give one such as X-Forwarded-User, which the proxy sets, whatever came to it.",
        )
    return name


def hosts_named(texts: Iterable[str]) -> tuple[str, ...]:
    """The names that a console is asked for by, in lower case."""
    found = tuple(text.lower() for text in texts)
    for host in found:
        if not _HOST.fullmatch(host):
            raise ConfigurationError(
                f"{host!r} is no name of a host",
                "Give one such as console.example or console.example:8443.",
            )
    return found


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
