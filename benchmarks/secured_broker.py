"""A broker to measure on with TLS besides."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from benchmarks.brokers import broker_of
from redrive.testing import Broker
from redrive.testing.ports import free_ports


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A broker that runs, and its port for TLS."""

    broker: Broker
    port: int


@contextlib.contextmanager
def secured_broker_of(name: str) -> Iterator[SecuredBroker]:
    """A broker with TLS besides, whose certificate this process and those that it starts trust.

    Args:
        name: as of `broker_of`.
    """
    # The broker's user has to read it, in a container or not.
    with tempfile.TemporaryDirectory(prefix="redrive-bench-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost")
        authority.cert_pem.write_to_path(folder / "ca.pem")
        certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        (port,) = free_ports(1)
        config = {
            "listeners.ssl.1": str(port),
            "ssl_options.cacertfile": str(folder / "ca.pem"),
            "ssl_options.certfile": str(folder / "server.pem"),
            "ssl_options.keyfile": str(folder / "server.key"),
        }
        # By which each client's defaults trust it: none of them needs code of its own.
        os.environ["SSL_CERT_FILE"] = str(folder / "ca.pem")
        try:
            with broker_of(name, config=config, folder=folder, ports=[port]) as broker:
                yield SecuredBroker(broker, port)
        finally:
            del os.environ["SSL_CERT_FILE"]
