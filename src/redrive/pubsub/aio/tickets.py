"""What a task waits for while its confirms come in."""

import asyncio
import contextlib

from redrive.pubsub.in_flight import InFlight


class TaskInFlight(InFlight):
    """Messages in flight that a task waits for, which runs where they are settled."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        super().__init__(contextlib.nullcontext(), self._room.set, asyncio.get_running_loop().time)

    async def wait_until_below(self, count: int, timeout: float) -> bool:
        """Waits until fewer than `count` are in flight.

        Args:
            count: how many.
            timeout: seconds for which none may be settled.

        Returns:
            Whether fewer are in flight now.
        """
        if self.count < count:
            await asyncio.sleep(0)  # others, and the confirms, get their turn
            return True
        self._await(count)
        try:
            while self._is_awaited() and (left := self._seconds_left(timeout)) > 0:
                self._room.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._room.wait()
        finally:
            self._awaited = 0
        return self.count < count
