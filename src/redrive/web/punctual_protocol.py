"""HTTP with clients that have to come to the point."""

import asyncio
from asyncio import TimerHandle
from asyncio.transports import BaseTransport

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 20.0
"""Seconds that a client has from its connection, or from the first byte of a further request, until
its request line and headers are there."""


class PunctualProtocol(H11Protocol):
    """HTTP/1.1 that closes the connection of whoever is slow to ask. uvicorn has a limit only for
    who asks nothing further."""

    _asking: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Begins to wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._begin_to_wait()

    def data_received(self, data: bytes) -> None:
        """Takes what has come; waits on, unless a request is complete with it."""
        super().data_received(data)
        is_answered = self.cycle is None or self.cycle.response_complete
        if not is_answered:
            self._wait_no_longer()
        elif self._asking is None:
            self._begin_to_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def _begin_to_wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._asking = loop.call_later(SECONDS_TO_ASK, self.transport.close)

    def _wait_no_longer(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
