"""An S3 server (moto's) that can lose a connection in the middle of a file, or half of a file."""

import contextlib
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET, KEY, SECRET = "incidents", "AKIAREDRIVE", "a-secret-word"


@dataclass
class Faults:
    """What goes wrong with the next files whose names contain a text."""

    name: str = "messages/"
    cut: int = 0
    """Connections to lose in the middle of a file."""
    shorten: int = 0
    """Files of which half arrives."""
    done: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    port: int
    faults: Faults

    @property
    def environment(self) -> dict[str, str]:
        """What Arrow finds the server by."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    faults, lock = Faults(), threading.Lock()
    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        cuts = shortens = False
        if environ["REQUEST_METHOD"] == "PUT" and faults.name in environ["PATH_INFO"]:
            with lock:
                cuts, shortens = faults.cut > 0, faults.shorten > 0 and not faults.cut
                faults.cut -= cuts
                faults.shorten -= shortens
        if cuts:
            environ["wsgi.input"].read(100)
            faults.done.append("cut")
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        answer: Iterable[bytes] = moto(environ, start_response)
        if shortens:
            file = environ["PATH_INFO"].removeprefix("/")
            with client.open_input_stream(file) as stored:
                half = stored.read()[::2]
            with client.open_output_stream(file) as stored:
                stored.write(half)
            faults.done.append("shortened")
        return answer

    server = make_server("127.0.0.1", 0, application, threaded=True)
    client = pyarrow.fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region="us-east-1",
        endpoint_override=f"127.0.0.1:{server.server_port}",
        scheme="http",
        allow_bucket_creation=True,
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        client.create_dir(BUCKET)
        yield S3Server(server.server_port, faults)
    finally:
        server.shutdown()
        thread.join()
