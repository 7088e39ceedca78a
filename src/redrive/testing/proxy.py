"""A TCP proxy between a client and its broker that simulates network faults."""

import asyncio
import contextlib
import functools
import socket
import struct
import threading
import time
from collections.abc import Coroutine
from typing import Self, TypeVar

from redrive.testing.address import Address
from redrive.testing.ports import free_ports

_T = TypeVar("_T")
_HOST = "127.0.0.1"
_CHUNK = 64 * 1024
_ANSWER_SECONDS = 10.0
# Limit of data in transit in one direction: a delayed connection holds a lot, but not without end.
_CHUNKS_IN_FLIGHT = 256


class Proxy:
    """A connection to the broker that can be cut, refused, frozen and delayed.

        with Proxy(broker.url) as proxy:
            connect(proxy.url)
            proxy.cut()

    It listens on the loopback interface and runs on its own thread. Each method returns when its
    effect is in place.

    Args:
        target_url: the AMQP URL of the broker.
    """

    def __init__(self, target_url: str) -> None:
        self._target = Address.parse(target_url)
        self._port = free_ports(1, _HOST)[0]
        self._url = self._target.at(_HOST, self._port).url
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="redrive-proxy", daemon=True
        )
        self._listening: socket.socket | None = None
        self._wires: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._clients: dict[asyncio.Task[None], socket.socket] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._delay = 0.0

    @property
    def url(self) -> str:
        """The target's URL with the proxy's host and port; the same for the proxy's lifetime."""
        return self._url

    @property
    def connections(self) -> int:
        """The number of connections that currently go through it."""
        return len(self._wires)

    def start(self) -> None:
        """Start listening. The context manager calls this.

        Raises:
            OSError: the port was taken in the meantime.
        """
        self._thread.start()
        self._do(self._listen())

    def close(self) -> None:
        """Drop all connections and stop listening. Closing twice is fine."""
        if not self._thread.is_alive():
            if not self._loop.is_closed():
                self._loop.close()
            return
        self._do(self._shut())
        self._do(self._drop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_SECONDS)
        self._loop.close()

    def cut(self) -> None:
        """Drop all connections now, in both directions, with a reset. New ones are accepted."""
        self._do(self._drop())

    def refuse(self) -> None:
        """Refuse new connections. Existing ones are kept."""
        self._do(self._shut())

    def accept(self) -> None:
        """Accept new connections again, on the same port."""
        self._do(self._listen())

    def freeze(self) -> None:
        """Let no byte through in either direction, while connections stay open and new ones are
        accepted: a black hole."""
        self._loop.call_soon_threadsafe(self._thawed.clear)
        self._do(asyncio.sleep(0))

    def thaw(self) -> None:
        """Let through everything that was held up, and what follows."""
        self._loop.call_soon_threadsafe(self._thawed.set)
        self._do(asyncio.sleep(0))

    def delay(self, seconds: float) -> None:
        """Deliver every byte `seconds` later, in each direction. The throughput stays the same. 0
        ends the delay."""
        self._delay = seconds

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, work: Coroutine[None, None, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = socket.create_server((_HOST, self._port))
            self._listening.setblocking(False)
            self._loop.add_reader(self._listening, self._accept, self._listening)

    async def _shut(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            self._loop.remove_reader(listening)
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        """Accept a client. asyncio's own servers are not used: one that is closed while a client
        connects leaves that socket open (Python 3.11)."""
        try:
            client, _ = listening.accept()
        except OSError:  # the client is gone already
            return
        client.setblocking(False)
        wire = self._loop.create_task(self._connect(client))
        self._wires[wire] = []
        self._clients[wire] = client
        wire.add_done_callback(functools.partial(self._ended, client))

    def _ended(self, client: socket.socket, wire: asyncio.Task[None]) -> None:
        for writer in self._wires.pop(wire):
            writer.transport.abort()
        del self._clients[wire]
        client.close()  # it has no transport if the connection was cut before it began

    async def _drop(self) -> None:
        tasks = list(self._wires)
        for client in self._clients.values():
            _end_with_reset(client)  # also if its connection has not begun
        for writers in self._wires.values():
            for writer in writers:
                _reset(writer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # let the sockets close

    async def _connect(self, client: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._wires[task]
        try:
            client_reader, client_writer = await asyncio.open_connection(sock=client)
            writers.append(client_writer)
            reader, writer = await asyncio.open_connection(self._target.host, self._target.port)
            writers.append(writer)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry(client_reader, writer))
                directions.create_task(self._carry(reader, client_writer))
        except* (OSError, asyncio.CancelledError):
            # The broker is down, or one side hung up or was cut off: the other side notices when
            # its connection ends.
            pass

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction until its sender closes."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_IN_FLIGHT)
        delivering = asyncio.create_task(self._deliver(on_the_way, writer))
        try:
            while True:
                chunk = await reader.read(_CHUNK)
                await on_the_way.put((time.monotonic() + self._delay, chunk))
                if not chunk:
                    break
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(
        self, on_the_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, chunk = await on_the_way.get()
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await self._thawed.wait()
            if not chunk:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, like a connection that was cut."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        _end_with_reset(raw)
    writer.transport.abort()


def _end_with_reset(raw: socket.socket) -> None:
    """Make a socket close with a reset."""
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
