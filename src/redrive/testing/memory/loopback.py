"""Serve an in-memory broker to clients over loopback sockets, using one thread."""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

from redrive.testing.memory.client_session import HEARTBEAT, BrokerModel, ClientSession

logger = logging.getLogger("redrive")

_READ_SIZE = 256 * 1024
_LONGEST_SLEEP = 1.0


class _Client:
    """A connection with its unsent data."""

    def __init__(self, connection: socket.socket, model: BrokerModel) -> None:
        self.socket = connection
        self.pending: list[bytes] = []
        self.told_at = time.monotonic()
        self.session = ClientSession(model, self.pending.append)

    def flush(self) -> bool:
        """Send as much as possible; return False if data is left."""
        if not self.pending:
            return True
        data = b"".join(self.pending)
        self.pending.clear()
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return True  # the client is gone, which the next read will show
        self.told_at = time.monotonic()
        if sent < len(data):
            self.pending.append(data[sent:])
            return False
        return True


class Loopback:
    """A server for clients on a port of the loopback interface.

    The model is accessed by one thread at a time: the serving thread, or a thread inside
    `changing`.
    """

    def __init__(
        self,
        model: BrokerModel,
        run: Callable[[], None],
        next_due: Callable[[], float | None],
    ) -> None:
        self._model = model
        self._run = run
        self._next_due = next_due
        self.lock = threading.RLock()
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listening.setblocking(False)
        self._wake_end, self._wake_start = socket.socketpair()
        self._wake_start.setblocking(False)
        self._wake_end.setblocking(False)
        for one in (self._listening, self._wake_start):
            self._selector.register(one, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(
            target=self._serve, name="redrive-memory-broker", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listening.getsockname()[1])

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the model for a change, and send the resulting messages at the end."""
        with self.lock:
            yield
            self._run()
            self._send()
        self._ring()

    def drop_clients(self) -> None:
        """Drop all connections without closing them properly."""
        with self.changing():
            for client in list(self._clients.values()):
                self._hang_up(client)

    def close(self) -> None:
        """Drop all connections and stop the thread."""
        if self._closing:
            return
        self._closing = True
        self._ring()
        self._thread.join()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full, so the thread wakes anyway; or it has ended
            self._wake_end.send(b"\0")

    # --- the thread -------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing:
                ready = self._selector.select(self._patience())
                with self.lock:
                    for key, _ in ready:
                        self._attend(key.fileobj)
                    self._run()
                    self._send()
        except Exception:
            # a bug: whoever waits for this broker has to learn why it is gone
            logger.exception("the in-memory broker ended because of an error")
        finally:
            self._end()

    def _patience(self) -> float:
        with self.lock:
            due = self._next_due()
        return _LONGEST_SLEEP if due is None else min(max(due, 0.0), _LONGEST_SLEEP)

    def _attend(self, ready: object) -> None:
        if ready is self._listening:
            self._accept()
        elif ready is self._wake_start:
            with contextlib.suppress(BlockingIOError):
                self._wake_start.recv(_READ_SIZE)
        else:
            client = self._clients.get(ready) if isinstance(ready, socket.socket) else None
            if client is not None:
                self._read(client)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[connection] = _Client(connection, self._model)
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, client: _Client) -> None:
        try:
            data = client.socket.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            client.session.feed(data)
        else:
            self._hang_up(client)

    def _send(self) -> None:
        now = time.monotonic()
        for client in list(self._clients.values()):
            heartbeat = client.session.heartbeat
            if heartbeat and now - client.told_at > heartbeat / 2:
                client.pending.append(HEARTBEAT)
            is_sent = client.flush()
            if is_sent and client.session.is_over:
                self._hang_up(client)
                continue
            wanted = selectors.EVENT_READ | (0 if is_sent else selectors.EVENT_WRITE)
            if self._selector.get_key(client.socket).events != wanted:
                self._selector.modify(client.socket, wanted)

    def _hang_up(self, client: _Client) -> None:
        if self._clients.pop(client.socket, None) is None:
            return
        self._selector.unregister(client.socket)
        client.socket.close()
        client.session.lost()

    def _end(self) -> None:
        with self.lock:
            for client in list(self._clients.values()):
                self._hang_up(client)
            for one in (self._listening, self._wake_start, self._wake_end):
                one.close()
            self._selector.close()
