"""Connections that the steps of one command share, so that each does not open its own."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    import pika

_IDLE_SECONDS = 10.0
"""Seconds after which an idle connection is closed: nobody answers heartbeats on it."""


class _Idle(NamedTuple):
    connection: "pika.BlockingConnection"
    timer: threading.Timer


class ConnectionPool:
    """Keeps the short-lived connections of a process open between two uses, until it ends.

    There is at most one pool at a time, that of the command which the process runs.
    """

    current: ClassVar["ConnectionPool | None"] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[object, list[_Idle]] = {}
        self._process = os.getpid()

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[None]:
        """Share connections in the block, and close them at its end."""
        if cls.current is not None:
            yield
            return
        pool = cls.current = cls()
        try:
            yield
        finally:
            cls.current = None
            pool._close()

    @contextlib.contextmanager
    def connection(
        self, key: object, connect: "Callable[[], pika.BlockingConnection]"
    ) -> "Iterator[pika.BlockingConnection]":
        """Lend an idle connection with this key, or a new one. After an error it is not used
        again."""
        connection = self._taken(key) or connect()
        try:
            yield connection
        except (KeyboardInterrupt, SystemExit):
            raise  # see Connector.blocking
        except BaseException:
            close(connection)
            raise
        self._give_back(key, connection)

    def _taken(self, key: object) -> "pika.BlockingConnection | None":
        while os.getpid() == self._process:
            with self._lock:
                idle = self._idle.get(key)
                if not idle:
                    return None
                connection, timer = idle.pop()
            timer.cancel()
            try:
                # the broker may have closed it meanwhile
                connection.process_data_events(0)
            except Exception:  # noqa: BLE001 - whatever it died of, there is another one
                continue
            if connection.is_open:
                return connection
        return None

    def _give_back(self, key: object, connection: "pika.BlockingConnection") -> None:
        if (
            not connection.is_open
            or ConnectionPool.current is not self
            or os.getpid() != self._process
        ):
            close(connection)
            return
        timer = threading.Timer(_IDLE_SECONDS, self._expire, (key, connection))
        timer.daemon = True
        with self._lock:
            self._idle.setdefault(key, []).append(_Idle(connection, timer))
        timer.start()

    def _expire(self, key: object, connection: "pika.BlockingConnection") -> None:
        with self._lock:
            idle = self._idle.get(key, [])
            found = next((one for one in idle if one.connection is connection), None)
            if found is None:
                return
            idle.remove(found)
        close(connection)

    def _close(self) -> None:
        with self._lock:
            idle = [one for several in self._idle.values() for one in several]
            self._idle.clear()
        for connection, timer in idle:
            timer.cancel()
            close(connection)


def close(connection: "pika.BlockingConnection") -> None:
    """Close a connection that may be lost, which the failed call has reported."""
    from pika.exceptions import AMQPError

    with contextlib.suppress(AMQPError):
        connection.close()
