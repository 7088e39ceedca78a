"""A broker's address and its AMQP URL."""

from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from redrive.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Address:
    """One AMQP endpoint with the user and the virtual host to use there."""

    host: str
    port: int
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    tls: bool = False
    query: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read an `amqp://` or `amqps://` URL."""
        parts = urlsplit(url)
        if parts.scheme not in {"amqp", "amqps"} or not parts.hostname:
            raise ConfigurationError(
                f"{url!r} is not the address of a RabbitMQ",
                "Give amqp://user:password@host:port/ or amqps://…",
            )
        tls = parts.scheme == "amqps"
        return cls(
            host=parts.hostname,
            port=parts.port or (5671 if tls else 5672),
            user=unquote(parts.username) if parts.username is not None else "guest",
            password=unquote(parts.password) if parts.password is not None else "guest",
            virtual_host=unquote(parts.path[1:]) or "/",
            tls=tls,
            query=parts.query,
        )

    @property
    def url(self) -> str:
        """The AMQP URL with user, password and virtual host, each percent-encoded."""
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = f"?{self.query}" if self.query else ""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"{scheme}://{login}@{host}:{self.port}/{quote(self.virtual_host, safe='')}{query}"

    @property
    def label(self) -> str:
        """`host:port` for messages, without the password."""
        return f"{self.host}:{self.port}"

    def on(self, virtual_host: str) -> Self:
        """Return the same endpoint with another virtual host."""
        return replace(self, virtual_host=virtual_host)

    def at(self, host: str, port: int) -> Self:
        """Return the same user and virtual host at another endpoint."""
        return replace(self, host=host, port=port)
