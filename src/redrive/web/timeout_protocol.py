"""HTTP with clients that have to come to the point, and that keep nobody else out."""

import asyncio
from asyncio import TimerHandle
from asyncio.transports import BaseTransport
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST_WAITING = 200
"""Connections that ask nothing, or have sent half a request, of all clients of a server; far fewer
than it takes in all."""
SECONDS_TO_ASK = 20.0
"""Seconds that a client has from its connection, or from the first byte of a further request, until
its request line and headers are there."""
SECONDS_TO_SEND = 60.0
"""Seconds that it has from then until the body of its request is there."""


_waiting: WeakKeyDictionary[ServerState, dict[str, dict["TimeoutProtocol", None]]] = (
    WeakKeyDictionary()
)
"""Of each server, the connections of each address that ask nothing, the oldest first."""


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes the connection of whoever is slow to ask. uvicorn has a limit only for
    who asks nothing further. Where too many wait, the oldest one is closed of the address that has
    the most: so a crowd of idle connections keeps nobody out."""

    _asking: TimerHandle | None = None
    _address = ""
    _is_sending = False

    def connection_made(self, transport: BaseTransport) -> None:
        """Begins to wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._address = self.client[0] if self.client else ""
        self._begin_to_wait(SECONDS_TO_ASK)

    def data_received(self, data: bytes) -> None:
        """Takes what has come; waits on, unless a request is complete with it, its body too."""
        super().data_received(data)
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered:
            self._is_sending = False
            if self._asking is None:
                self._begin_to_wait(SECONDS_TO_ASK)
        elif self.conn.their_state is not h11.SEND_BODY:
            self._wait_no_longer()
        elif not self._is_sending:
            self._is_sending = True
            self._wait_no_longer()
            self._begin_to_wait(SECONDS_TO_SEND)

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def _begin_to_wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._asking = loop.call_later(seconds, self.transport.close)
        waiting = self._all_waiting
        waiting.setdefault(self._address, {})[self] = None
        if sum(map(len, waiting.values())) > MOST_WAITING:
            _, address = max((len(of_one), address) for address, of_one in waiting.items())
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
