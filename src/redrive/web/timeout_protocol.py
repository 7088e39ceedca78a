"""HTTP with time limits for slow clients, so that they don't keep others out."""

import asyncio
from asyncio import TimerHandle
from asyncio.transports import BaseTransport
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST_WAITING = 200
"""Most connections of all clients of a server that are idle or have sent only part of a request;
far fewer than the server accepts in all."""
SECONDS_TO_ASK = 20.0
"""Seconds from connecting, or from the first byte of a later request, until the request line and
headers must have arrived."""
SECONDS_TO_SEND = 60.0
"""Seconds from then until the body must have arrived."""


_waiting: WeakKeyDictionary[ServerState, dict[str, dict["TimeoutProtocol", None]]] = (
    WeakKeyDictionary()
)
"""The waiting connections by server and address, oldest first."""


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes the connections of slow clients; uvicorn itself only limits idle time
    between requests. If too many connections wait, the oldest one of the address with the most is
    closed, so that a crowd of idle connections keeps nobody out."""

    _asking: TimerHandle | None = None
    _address = ""
    _is_sending = False

    def connection_made(self, transport: BaseTransport) -> None:
        """Start the time limit for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._address = self.client[0] if self.client else ""
        self._begin_to_wait(SECONDS_TO_ASK)

    def data_received(self, data: bytes) -> None:
        """Process data, and update the time limit; a complete request has none."""
        super().data_received(data)
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered:
            self._is_sending = False
            if self._asking is None:
                self._begin_to_wait(SECONDS_TO_ASK)
        elif self.conn.their_state is not h11.SEND_BODY:
            self._is_sending = False
            self._wait_no_longer()
        elif not self._is_sending:
            self._is_sending = True
            self._wait_no_longer()
            self._begin_to_wait(SECONDS_TO_SEND)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def _begin_to_wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._asking = loop.call_later(seconds, self.transport.close)
        waiting = self._all_waiting
        waiting.setdefault(self._address, {})[self] = None
        if sum(map(len, waiting.values())) > MOST_WAITING:
            address = max(waiting, key=lambda one: len(waiting[one]))
            oldest = next(iter(waiting[address]))
            oldest._wait_no_longer()
            oldest.transport.close()

    def _wait_no_longer(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
            of_address = self._all_waiting[self._address]
            del of_address[self]
            if not of_address:
                del self._all_waiting[self._address]

    @property
    def _all_waiting(self) -> dict[str, dict["TimeoutProtocol", None]]:
        return _waiting.setdefault(self.server_state, {})
