"""Serve a console on a port of this machine."""

import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator

import uvicorn

from redrive.errors import ConfigurationError
from redrive.web.auth.access_config import AccessConfig, ListenAddress
from redrive.web.console import Console
from redrive.web.console_settings import ConsoleSettings
from redrive.web.timeout_protocol import TimeoutProtocol

_MOST_CONNECTIONS = 500
_LEAVES = 2
"""Seconds that browsers have to receive their responses when the console stops."""


class ConsoleServer:
    """A console on a port."""

    def __init__(
        self, settings: ConsoleSettings, listening: socket.socket, place: ListenAddress
    ) -> None:
        self._listening = listening
        port = int(listening.getsockname()[1])
        access = settings.access
        self.address = place.address(port, access)
        self.console = Console(
            settings, place.allowed_hosts(port, access), is_local=place.is_loopback
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.console,
                log_level="error",
                access_log=False,
                lifespan="off",
                server_header=False,
                # AuthMiddleware decides which proxies to trust.
                proxy_headers=False,
                ssl_certfile=access.certfile,
                ssl_keyfile=access.keyfile,
                http=TimeoutProtocol,
                # Connections beyond this limit are refused, so idle ones can't exhaust memory.
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_LEAVES,
            )
        )

    @property
    def is_up(self) -> bool:
        """Whether the server accepts requests."""
        return self._server.started

    def new_link(self) -> str:
        """Return the address that lets one browser in, once."""
        return f"{self.address}{self.console.new_link()}"

    def run(self) -> None:
        """Serve until `stop` is called or Ctrl-C is pressed."""
        self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        """Make `run` return."""
        self._server.should_exit = True


@contextlib.contextmanager
def opened_server(settings: ConsoleSettings, place: ListenAddress) -> Iterator[ConsoleServer]:
    """Bind a console to its port for the duration of the block."""
    _check_certificate(settings.access)
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((place.host, place.port))
            listening.listen(128)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            raise ConfigurationError(
                f"the console can't listen on {place.host}:{place.port}: "
                f"{'the port is in use' if taken else error.strerror or error}",
                "Choose another port: --listen 127.0.0.1:0 picks any free one.",
            ) from error
        yield ConsoleServer(settings, listening, place)


def _check_certificate(access: AccessConfig) -> None:
    if access.certfile is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            # A callback stops OpenSSL from asking for a passphrase on the terminal.
            access.certfile,
            access.keyfile,
            password=lambda: b"",
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the certificate {str(access.certfile)!r} can't be used: "
            f"{getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error}",
            "Give a PEM certificate and its key without a passphrase: --certfile, --keyfile.",
        ) from error
