"""What `publish_many` waits for while its confirms come in."""

import asyncio
from collections.abc import Callable

from redrive.errors import RedriveError
from redrive.pubsub.outbox import Outgoing
from redrive.pubsub.report import PublishReport


class Stream:
    """Room in the window, and progress."""

    def __init__(self, report: PublishReport, mandatory: bool) -> None:
        self._report = report
        self._mandatory = mandatory
        self._open: dict[Outgoing, int] = {}
        self._unheard: set[str] = set()
        self._awaited = 0
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._progress_at = self._loop.time()

    def add(self, batch: list[tuple[int, Outgoing]]) -> None:
        """These are about to be sent."""
        if not self._open:
            self._progress_at = self._loop.time()
        self._open.update((outgoing, position) for position, outgoing in batch)

    def settle(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        """A message is settled."""
        position = self._open.pop(outgoing, None)
        if position is None:
            return
        self._progress_at = self._loop.time()
        if self._report.note(outgoing.message_id, position, error, self._mandatory):
            self._unheard.add(outgoing.routing_key)
        if len(self._open) < self._awaited:
            self._room.set()

    async def wait_until_below(self, count: int, timeout: float) -> bool:
        """Waits until fewer than `count` are unconfirmed; False where nothing was confirmed for `timeout` seconds."""
        if len(self._open) < count:
            await asyncio.sleep(0)  # others, and the confirms, get their turn
            return True
        self._awaited = max(1, count * 3 // 4)
        try:
            while len(self._open) >= self._awaited:
                self._room.clear()
                try:
                    async with asyncio.timeout_at(self._progress_at + timeout):
                        await self._room.wait()
                except TimeoutError:
                    if self._loop.time() >= self._progress_at + timeout:
                        return False
        finally:
            self._awaited = 0
        return True

    def take_unheard(self) -> set[str]:
        """The routing keys, since the last call, that no queue got a message of."""
        unheard, self._unheard = self._unheard, set()
        return unheard

    def withdraw(self, error_of: Callable[[Outgoing], RedriveError]) -> None:
        """Settles everything that is still open as failed."""
        for outgoing, position in self._open.items():
            outgoing.withdrawn = True
            self._report.note(outgoing.message_id, position, error_of(outgoing), self._mandatory)
        self._open.clear()
