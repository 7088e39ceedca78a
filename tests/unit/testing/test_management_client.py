"""An error of the broker's own is told apart from one of ours, since it may pass."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from redrive.errors import BrokerUnavailable, PermissionDenied
from redrive.testing.management_client import AnsweredWithAnError, ManagementClient


@contextmanager
def answering(*codes: int) -> Iterator[ManagementClient]:
    """A management API that answers so, one request after the other."""
    left = list(codes)

    class Answer(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(left.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing of this is for the terminal."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield ManagementClient(f"http://127.0.0.1:{server.server_port}", "guest", "guest")
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize("code", [500, 503])
def test_an_error_of_the_broker_s_own_is_told_apart(code: int) -> None:
    with answering(code) as client, pytest.raises(AnsweredWithAnError, match=f"with {code}"):
        client.put_virtual_host("shop")


@pytest.mark.parametrize(
    ("code", "kind"), [(400, BrokerUnavailable), (404, BrokerUnavailable), (401, PermissionDenied)]
)
def test_an_error_of_ours_is_not_one_of_the_broker_s(code: int, kind: type[Exception]) -> None:
    with answering(code) as client, pytest.raises(kind) as refused:
        client.put_virtual_host("shop")
    assert not isinstance(refused.value, AnsweredWithAnError)
