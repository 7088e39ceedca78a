"""A broker with TLS, its management API over https."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from certificates import Certificates, certificates
from redrive.testing import private_broker
from redrive.testing.ports import free_ports


@dataclass(frozen=True)
class Secured:
    """A broker, and where it and its management API are reached."""

    files: Certificates
    port: int
    management_port: int

    @property
    def place(self) -> str:
        """The broker's address, without what it needs to be trusted."""
        return f"amqps://guest:guest@localhost:{self.port}/"

    @property
    def url(self) -> str:
        """The broker's address."""
        return f"{self.place}?{self.files.options()}"

    @property
    def management_url(self) -> str:
        """The management API's address, which takes the CA from that of the broker."""
        return f"https://localhost:{self.management_port}"


@contextlib.contextmanager
def secured_broker(max_message_size: int = 16 * 1024 * 1024) -> Iterator[Secured]:
    """The broker, for as long as the block.

    Args:
        max_message_size: the largest body that it takes, in bytes.
    """
    with certificates() as files:
        port, management_port = free_ports(2)
        folder = files.folder
        tls = {
            "cacertfile": str(folder / "ca.pem"),
            "certfile": str(folder / "server.pem"),
            "keyfile": str(folder / "server.key"),
        }
        config = {
            "listeners.ssl.1": str(port),
            "management.ssl.port": str(management_port),
            "max_message_size": str(max_message_size),
            **{f"ssl_options.{name}": path for name, path in tls.items()},
            **{f"management.ssl.{name}": path for name, path in tls.items()},
        }
        with private_broker(config=config, folder=folder, ports=[port, management_port]):
            yield Secured(files, port, management_port)
