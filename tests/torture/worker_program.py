"""A worker that handles the messages of all lanes of one shell, and writes down each attempt.

python -m torture.worker_program '{"name": …}' [declare]
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import ClassVar

from redrive import AsyncSubscriber, Message, Retry, Subscriber, run, run_async
from torture.event_journal import EventJournal
from torture.lanes import ALWAYS, UNTIL_REQUEUED, Lane
from torture.plants import is_held
from torture.program import Settings
from torture.subscriptions import options_of

_CONCURRENCY = 3
_WORK_SECONDS = 0.003
_BETWEEN_LOOKS = 0.05


class NotYet(Exception):
    """What a message fails with that says that it is to fail."""


class Overtaken(Exception):
    """What the handler of a held message ends with once the message was delivered again: nobody
    waits for it any more."""


class Attempt:
    """One run of a handler."""

    _latest: ClassVar[dict[str, "Attempt"]] = {}

    def __init__(self, journal: EventJournal, lane: Lane, message: Message) -> None:
        body = json.loads(message.body)
        self.id: str = body["id"]
        self._fails: int = body["fails"]
        self._wait_ms: int = body["wait_ms"] if lane.way == "ladder" else 0
        self._journal = journal
        self._retries = message.retries
        count = message.headers.get("redrive-count", 0)
        self._requeues = count if isinstance(count, int) else 0
        journal.note("begun", self.id, self._retries, self._requeues)

    def is_held(self, settings: Settings) -> bool:
        """Whether it is not to end yet.

        Raises:
            Overtaken: it never is, because the message was delivered again.
        """
        if not is_held(settings.plant, self.id):
            return False
        if self._latest[self.id] is not self:
            raise Overtaken
        return not settings.publishing_is_over

    def begin(self, settings: Settings) -> None:
        """Has earlier attempts with the same message end, where it is held."""
        if is_held(settings.plant, self.id):
            self._latest[self.id] = self

    def end(self) -> None:
        """Fails or succeeds, as the message says."""
        if self._is_to_fail():
            self._journal.note("failed", self.id, self._retries, self._requeues)
            if self._wait_ms:
                raise Retry("not yet", after=timedelta(milliseconds=self._wait_ms))
            raise NotYet(self.id)
        self._journal.note("handled", self.id, self._retries, self._requeues)

    def _is_to_fail(self) -> bool:
        if self._fails == UNTIL_REQUEUED:
            return not self._requeues
        return self._fails == ALWAYS or self._retries < self._fails


def blocking_handler(settings: Settings, lane: Lane) -> Callable[[Message], None]:
    """A handler for the blocking shell."""
    journal = settings.journal

    def handle(message: Message) -> None:
        attempt = Attempt(journal, lane, message)
        attempt.begin(settings)
        while attempt.is_held(settings):
            time.sleep(_BETWEEN_LOOKS)
        time.sleep(_WORK_SECONDS)
        attempt.end()

    return handle


def async_handler(settings: Settings, lane: Lane) -> Callable[[Message], Awaitable[None]]:
    """A handler for the asyncio shell."""
    journal = settings.journal

    async def handle(message: Message) -> None:
        attempt = Attempt(journal, lane, message)
        attempt.begin(settings)
        while attempt.is_held(settings):
            await asyncio.sleep(_BETWEEN_LOOKS)
        await asyncio.sleep(_WORK_SECONDS)
        attempt.end()

    return handle


def run_blocking(settings: Settings, *, only_declare: bool) -> None:
    """Declares all lanes, or handles their messages until SIGTERM."""
    subscribers = []
    for lane in settings.lanes:
        concurrency = 1 if lane.is_ordered else _CONCURRENCY
        subscriber = Subscriber(
            settings.url, concurrency=concurrency, prefetch=lane.prefetch, **options_of(lane)
        )
        subscriber.handler(blocking_handler(settings, lane))
        if only_declare:
            subscriber.declare()
        subscribers.append(subscriber)
    if not only_declare:
        run(*subscribers)


async def run_asynchronously(settings: Settings, *, only_declare: bool) -> None:
    """The same with asyncio."""
    subscribers = []
    for lane in settings.lanes:
        concurrency = 1 if lane.is_ordered else _CONCURRENCY
        subscriber = AsyncSubscriber(
            settings.url, concurrency=concurrency, prefetch=lane.prefetch, **options_of(lane)
        )
        subscriber.handler(async_handler(settings, lane))
        if only_declare:
            await subscriber.declare()
        subscribers.append(subscriber)
    if not only_declare:
        await run_async(*subscribers)


def main() -> None:
    """Runs the worker."""
    settings = Settings.begin()
    only_declare = sys.argv[2:] == ["declare"]
    if settings.shell == "async":
        asyncio.run(run_asynchronously(settings, only_declare=only_declare))
    else:
        run_blocking(settings, only_declare=only_declare)


if __name__ == "__main__":
    main()
