"""Stands between redrive and the management API, and leaves out what a broker may not tell."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

UNCOUNTED = frozenset(
    {
        *("messages", "messages_ready", "messages_unacknowledged", "messages_dlx", "message_stats"),
        *("consumers", "head_message_timestamp", "message_bytes", "members"),
        *("operator_policy", "effective_policy_definition"),
    }
)
"""What RabbitMQ 3.10.8 leaves out of a queue where it collects no statistics."""
FIELDS = (*sorted(UNCOUNTED), "state", "node", "type", "arguments", "policy")
"""What may be missing of a queue."""
REFUSED = frozenset({"consumers", "overview", "nodes", "connections", "users"})
"""The lists that it refuses then."""


class Proxy:
    """Stands before the management API, and leaves out of its answers what it is told to."""

    def __init__(self, origin: str) -> None:
        self.left_out: frozenset[str] = frozenset()
        self.refused: frozenset[str] = frozenset()
        self.status: int | None = 400
        """What it answers with where it refuses; None for nothing at all."""
        self.over = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind = self.path.removeprefix("/api/").partition("/")[0].partition("?")[0]
                if kind in proxy.refused or (
                    "connections" in self.path and "connections" in proxy.refused
                ):
                    if proxy.status is None:
                        proxy.over.wait()
                        return
                    self._say(proxy.status, b'{"error":"x","reason":"Stats are disabled"}')
                    return
                asked = urllib.request.Request(
                    origin + self.path, headers={"Authorization": self.headers["Authorization"]}
                )
                try:
                    with urllib.request.urlopen(asked) as answer:
                        content = answer.read()
                except urllib.error.HTTPError as error:
                    self._say(error.code, error.read())
                    return
                if kind == "queues":
                    content = json.dumps(proxy.without(json.loads(content))).encode()
                self._say(200, content)

            def _say(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def without(self, told: object) -> object:
        """The same, without what is left out of each queue."""
        if isinstance(told, list):
            return [self.without(one) for one in told]
        assert isinstance(told, dict)
        return {name: value for name, value in told.items() if name not in self.left_out}


@contextlib.contextmanager
def proxy_before(origin: str) -> Iterator[Proxy]:
    """A proxy before this management API, as long as the block."""
    proxy = Proxy(origin.rstrip("/"))
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        proxy.server.shutdown()
        proxy.server.server_close()
        thread.join()
