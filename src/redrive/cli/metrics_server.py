"""HTTP server of a running worker or exporter: `/metrics` for Prometheus, `/health` and `/ready`
for what keeps it running."""

import contextlib
import errno
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from redrive.errors import ConfigurationError
from redrive.pubsub import probes, telemetry
from redrive.pubsub.admin.queue_metrics import observe_queues
from redrive.pubsub.probes import TEXT, Answer
from redrive.pubsub.url import Endpoint

if TYPE_CHECKING:
    from redrive import AsyncSubscriber, Subscriber

_EXAMPLE = "Give one such as :9464, 127.0.0.1:9464 or [::1]:9464."
_ANOTHER_PORT = "Give another port, or stop what listens there."
_ANOTHER_HOST = "Give an address of this machine, or no host for every interface: --metrics :9464."
_REQUEST_SECONDS = 10.0
"""How long a client may take to send its request and to receive the answer."""
_MOST_AT_ONCE = 32


logger = logging.getLogger("redrive")


class MetricsAddress(NamedTuple):
    """An address to listen on; an empty host stands for every interface."""

    host: str
    port: int


_Request = socket.socket | tuple[bytes, socket.socket]


def place_of(text: str) -> MetricsAddress:
    """Return the address in a text such as `:9464`, `127.0.0.1:9464` or `[::1]:9464`."""
    host, separator, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (
        not separator
        or not port.isdecimal()
        or not 0 <= int(port) < 65536
        or is_bracketed != (":" in host)
    ):
        raise ConfigurationError(f"{text!r} is not a host and port to serve metrics at", _EXAMPLE)
    return MetricsAddress(host[1:-1] if is_bracketed else host, int(port))


@contextlib.contextmanager
def serving(
    place: MetricsAddress,
    subscribers: Sequence["Subscriber | AsyncSubscriber"],
    management_url: str | None = None,
) -> Iterator[int]:
    """Measure, and serve the metrics, for the duration of the block; yield the port."""
    scrape, meter_provider = probes.measuring("--metrics")
    try:
        if management_url is not None:
            observe_queues(
                *subscribers, management_url=management_url, meter_provider=meter_provider
            )
    except ConfigurationError:
        telemetry.uninstrument()
        raise
    pages: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: Answer(200, TEXT, scrape()),
        "/health": lambda: probes.health(subscribers),
        "/ready": lambda: probes.readiness(subscribers),
    }
    try:
        with serving_pages(place, pages) as port:
            yield port
    finally:
        telemetry.uninstrument()


@contextlib.contextmanager
def serving_pages(
    place: MetricsAddress, pages: Mapping[str, Callable[[], Answer]]
) -> Iterator[int]:
    """Serve pages for the duration of the block; yield the port."""
    try:
        server = _Server(place, _handler_for(pages))
    except OSError as error:
        raise ConfigurationError(
            f"metrics can't be served at {Endpoint(place.host or '*', place.port)}: "
            f"{error.strerror or error}",
            _ANOTHER_PORT if error.errno in (errno.EADDRINUSE, errno.EACCES) else _ANOTHER_HOST,
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="redrive-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A server with one thread per client, which limits how many clients there are and how long
    they stay."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, place: MetricsAddress, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = _family_of(place.host)
        self._places = threading.Semaphore(_MOST_AT_ONCE)
        self._begun: dict[socket.socket, float] = {}
        """When each client that is being served came, the first one first."""
        super().__init__((place.host, place.port), handler)

    def process_request(self, request: _Request, client_address: object) -> None:
        """Serve a client. If there are too many, end the one that came first: a probe must get
        in."""
        assert isinstance(request, socket.socket)
        while not self._places.acquire(blocking=False):
            _end(next(iter(list(self._begun)), None))
            time.sleep(0.01)
        self._begun[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._leaves(request)
            raise

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leaves(request)

    def _leaves(self, request: socket.socket) -> None:
        self._begun.pop(request, None)
        self._places.release()

    def service_actions(self) -> None:
        """End requests that take too long; called every half second. A socket's own timeout starts
        again with each byte."""
        latest = time.monotonic() - _REQUEST_SECONDS
        for request, begun in list(self._begun.items()):
            if begun <= latest:
                _end(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Log defects, but not that a client has disconnected."""
        if not isinstance(sys.exception(), OSError):
            logger.exception("a request for metrics could not be answered")


def _end(request: socket.socket | None) -> None:
    """Shut a connection down; the thread that serves it notices."""
    if request is not None:
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def _family_of(host: str) -> socket.AddressFamily:
    """Return the address family of a host: IPv4 if it has both."""
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return min((family for family, *_ in found), key=lambda family: family != socket.AF_INET)


def _handler_for(pages: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """A handler of GET requests, which logs nothing: there is a scrape every few seconds."""

        def version_string(self) -> str:
            """Return the name of the server, without the version of Python."""
            return "redrive"

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            answer = (
                page()
                if page is not None
                else Answer(404, TEXT, b"The pages are /metrics, /health and /ready.\n")
            )
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    return Handler
