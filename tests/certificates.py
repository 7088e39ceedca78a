"""Certificates of a CA of the tests' own, as files."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import trustme

CLIENT = "shop-service"
"""The name in a client's certificate, by which it may log in."""


class Certificates:
    """The files of a broker and its clients, in a folder that both can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.other_ca = trustme.CA(), trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")
        self._write("server", self.ca.issue_cert("localhost", "127.0.0.1"))
        self._write("client", self.ca.issue_cert("client.example", common_name=CLIENT))
        self._write("stranger", self.other_ca.issue_cert("client.example", common_name=CLIENT))

    def _write(self, name: str, certificate: trustme.LeafCert) -> None:
        certificate.cert_chain_pems[0].write_to_path(self.folder / f"{name}.pem")
        certificate.private_key_pem.write_to_path(self.folder / f"{name}.key")
        for path in self.folder.iterdir():
            path.chmod(0o644)

    def options(self, client: str | None = None) -> str:
        """A URL's query that names the CA, and a client's certificate."""
        shown = (
            f"&certfile={self._quoted(f'{client}.pem')}&keyfile={self._quoted(f'{client}.key')}"
            if client
            else ""
        )
        return f"cacertfile={self._quoted('ca.pem')}{shown}"

    def _quoted(self, name: str) -> str:
        return quote(str(self.folder / name), safe="")


@contextlib.contextmanager
def certificates() -> Iterator[Certificates]:
    """Certificates in a folder that a broker can read, for as long as the block."""
    # A container's user has to get there: not below pytest's folders, which are closed to others.
    folder = Path("/var/tmp") / f"redrive-tls-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o755)
    try:
        yield Certificates(folder)
    finally:
        shutil.rmtree(folder)
