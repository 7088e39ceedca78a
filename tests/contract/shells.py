"""The shells that the contract binds, each behind the same few calls.

A shell of another kind joins with one class here: it runs what is asynchronous itself, and a test
never sees a difference.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, Self, TypeVar

from redrive import (
    App,
    AsyncApp,
    AsyncFailedQueue,
    AsyncPublisher,
    AsyncSubscriber,
    FailedMessage,
    FailedQueue,
    Publisher,
    PublishReport,
    RedriveError,
    RequeueProgress,
    RequeueReport,
    Subscriber,
)
from redrive.amqp.field_table import FieldValue
from redrive.failures.queue.outcome_watch import Watch
from redrive.failures.queue.requeue import Cancel, Edit
from redrive.failures.queue.return_checks import ReturnChecks
from redrive.failures.store.filter import Filter, Predicate
from redrive.pubsub.blocking.declarer import Depth
from redrive.pubsub.lanes import BlockedKey
from redrive.pubsub.publisher_base import Publishable
from redrive.pubsub.reports import DiscardReport, LookProgress
from redrive.topology.control import Control
from redrive.topology.headers import Delivery

T = TypeVar("T")

Handles = Callable[..., Any]
"""A handler; its argument is what its annotation asks for."""

STOP_SECONDS = 45.0


class Publishes(Protocol):
    """A publisher that is open."""

    @property
    def unroutable(self) -> int: ...

    def publish(
        self,
        body: object,
        routing_key: str,
        *,
        headers: Mapping[str, FieldValue] | None = None,
        message_id: str | None = None,
        mandatory: bool = False,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        tags: Collection[str] = (),
        timeout: float | timedelta | None = None,
    ) -> str: ...

    def publish_many(
        self,
        messages: Iterable[Publishable],
        *,
        mandatory: bool = False,
        timeout: float | timedelta | None = None,
    ) -> PublishReport: ...

    def close(self) -> None: ...


class Subscribes(Protocol):
    """A subscriber that runs."""

    def stop(self) -> None: ...

    def abort(self) -> None: ...

    def stopped(self, timeout: float = 0.0) -> bool: ...

    @property
    def declined(self) -> int: ...

    @property
    def let_go(self) -> int: ...

    @property
    def discarded(self) -> int: ...

    @property
    def paused(self) -> Control | None: ...

    @property
    def hung(self) -> int: ...

    @property
    def keyless(self) -> int: ...

    @property
    def parked_keys(self) -> int: ...

    @property
    def blocked_keys(self) -> list[BlockedKey]: ...

    @property
    def ready(self) -> bool: ...


class KeepsFailed(Protocol):
    """A failed queue."""

    def depth(self) -> int: ...

    def count(self) -> Depth | None: ...

    def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: Callable[[LookProgress], None] | None = None,
        patience: float | None = None,
    ) -> Generator[FailedMessage, None, None]: ...

    def requeue(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
        *,
        to: str | None = None,
        via: bool = False,
        unchecked: bool = False,
        rate: float | None = None,
        pace_by_depth: int | None = None,
        edit: Edit | None = None,
        force: bool = False,
        job: str | None = None,
        on_progress: Callable[[RequeueProgress], None] | None = None,
        cancel: Cancel | None = None,
    ) -> RequeueReport: ...

    def discard(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
    ) -> DiscardReport: ...

    def restore(self, deliveries: Iterable[Delivery]) -> PublishReport: ...

    def watch(
        self, job: str, queue: str | None = None
    ) -> AbstractContextManager[Watch | ReturnChecks]: ...

    def purge(self) -> int: ...


class Shell(Protocol):
    """Everything that a shell offers."""

    name: str
    hangs_in: str
    """The line that a handler of a test which waits for an event hangs in."""

    def publisher(self, url: str, **options: Any) -> AbstractContextManager[Publishes]:
        """An open publisher."""

    def subscriber(
        self, handler: Handles, url: str, queue: str, **options: Any
    ) -> AbstractContextManager[Subscribes]:
        """A subscriber that runs as long as the block, and raises why it could not."""

    def declare(self, url: str, queue: str, **options: Any) -> None:
        """Declares a subscription without running it."""

    def failed_queue(self, url: str, queue: str, **options: Any) -> KeepsFailed:
        """The failed queue of a subscription."""


class BlockingShell:
    """`Publisher`, `Subscriber` and `FailedQueue`, over pika."""

    name = "blocking"
    hangs_in = "released.wait(DEADLINE)"

    @contextlib.contextmanager
    def publisher(self, url: str, **options: Any) -> Iterator[Publishes]:
        with Publisher(url, **options) as publisher:
            yield publisher

    @contextlib.contextmanager
    def subscriber(
        self, handler: Handles, url: str, queue: str, **options: Any
    ) -> Iterator[Subscribes]:
        subscriber = Subscriber(url, queue, **options)
        subscriber.handler(handler)
        subscriber.start()
        try:
            yield subscriber
        finally:
            subscriber.stop()
            assert subscriber.wait(STOP_SECONDS), "the subscriber did not stop"

    def declare(self, url: str, queue: str, **options: Any) -> None:
        Subscriber(url, queue, **options).declare()

    def failed_queue(self, url: str, queue: str, **options: Any) -> KeepsFailed:
        return FailedQueue(url, queue, **options)


class AsyncShell:
    """`AsyncPublisher`, `AsyncSubscriber` and `AsyncFailedQueue`, over aiormq, on an event loop of
    a thread of their own."""

    name = "async"
    hangs_in = "run_in_executor(threads, called)"

    @contextlib.contextmanager
    def publisher(self, url: str, **options: Any) -> Iterator[Publishes]:
        with EventLoop() as loop:
            publisher = AsyncPublisher(url, **options)
            loop.run(publisher.__aenter__())
            try:
                yield AwaitedPublisher(publisher, loop)
            finally:
                loop.run(publisher.close())

    @contextlib.contextmanager
    def subscriber(
        self, handler: Handles, url: str, queue: str, **options: Any
    ) -> Iterator[Subscribes]:
        subscriber = AsyncSubscriber(url, queue, **options)
        with EventLoop() as loop, ThreadPoolExecutor(options.get("concurrency", 1) + 2) as threads:
            subscriber.handler(awaited(handler, threads))
            loop.run(subscriber.start())
            try:
                yield _Subscribes(subscriber, loop)
            finally:
                subscriber.stop()
                assert loop.run(subscriber.wait(STOP_SECONDS)), "the subscriber did not stop"

    def declare(self, url: str, queue: str, **options: Any) -> None:
        asyncio.run(AsyncSubscriber(url, queue, **options).declare())

    def failed_queue(self, url: str, queue: str, **options: Any) -> KeepsFailed:
        return _KeepsFailed(AsyncFailedQueue(url, queue, **options))


class AppShell(BlockingShell):
    """`App`, with one subscriber."""

    name = "app"

    @contextlib.contextmanager
    def subscriber(
        self, handler: Handles, url: str, queue: str, **options: Any
    ) -> Iterator[Subscribes]:
        app = App(url, **_of_the_app(options))
        subscriber = app.subscriber(queue, *options.pop("routing_keys", ()), **options)
        subscriber.handler(handler)
        app.start()
        try:
            yield subscriber
        finally:
            app.close()
            assert subscriber.wait(STOP_SECONDS), "the subscriber did not stop"


class AsyncAppShell(AsyncShell):
    """`AsyncApp`, with one subscriber."""

    name = "async-app"

    @contextlib.contextmanager
    def subscriber(
        self, handler: Handles, url: str, queue: str, **options: Any
    ) -> Iterator[Subscribes]:
        app = AsyncApp(url, **_of_the_app(options))
        subscriber = app.subscriber(queue, *options.pop("routing_keys", ()), **options)
        with EventLoop() as loop, ThreadPoolExecutor(options.get("concurrency", 1) + 2) as threads:
            subscriber.handler(awaited(handler, threads))
            loop.run(app.start())
            try:
                yield _Subscribes(subscriber, loop)
            finally:
                loop.run(app.close())
                assert loop.run(subscriber.wait(STOP_SECONDS)), "the subscriber did not stop"


def _of_the_app(options: dict[str, Any]) -> dict[str, Any]:
    """Takes what an app is told out of a subscriber's options."""
    names = ("exchange", "credentials", "ssl_context")
    return {name: options.pop(name) for name in names if name in options}


class EventLoop:
    """An event loop on a thread of its own, for as long as the block."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event-loop")
        self._thread.start()
        return self

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; after the block, in a loop of its own."""
        if self._loop.is_closed():
            return asyncio.run(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(asyncio.sleep(0.05))  # what was told of its end may act on it
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        deadline = self._loop.time() + STOP_SECONDS  # on a busy machine its last steps take a while
        while (left := asyncio.all_tasks(self._loop)) and self._loop.time() < deadline:
            self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()
        assert not left, "tasks that nobody ended"


class AwaitedPublisher:
    """A publisher of an event loop, whose calls wait."""

    def __init__(self, publisher: AsyncPublisher, loop: EventLoop) -> None:
        self._publisher = publisher
        self._loop = loop

    @property
    def unroutable(self) -> int:
        return self._publisher.unroutable

    def publish(self, body: object, routing_key: str, **options: Any) -> str:
        return self._loop.run(self._publisher.publish(body, routing_key, **options))

    def publish_many(self, messages: Iterable[Publishable], **options: Any) -> PublishReport:
        return self._loop.run(self._publisher.publish_many(messages, **options))

    def close(self) -> None:
        self._loop.run(self._publisher.close())


class _Subscribes:
    def __init__(self, subscriber: AsyncSubscriber, loop: EventLoop) -> None:
        self._subscriber = subscriber
        self._loop = loop

    def stop(self) -> None:
        self._subscriber.stop()

    def abort(self) -> None:
        self._subscriber.abort()

    def stopped(self, timeout: float = 0.0) -> bool:
        with contextlib.suppress(
            RedriveError
        ):  # why it could not run is told at the end of the block
            self._loop.run(self._subscriber.wait(timeout))
        return self._subscriber.stopped()

    @property
    def declined(self) -> int:
        return self._subscriber.declined

    @property
    def let_go(self) -> int:
        return self._subscriber.let_go

    @property
    def discarded(self) -> int:
        return self._subscriber.discarded

    @property
    def hung(self) -> int:
        return self._subscriber.hung

    @property
    def paused(self) -> Control | None:
        return self._subscriber.paused

    @property
    def keyless(self) -> int:
        return self._subscriber.keyless

    @property
    def parked_keys(self) -> int:
        return self._subscriber.parked_keys

    @property
    def blocked_keys(self) -> list[BlockedKey]:
        return self._subscriber.blocked_keys

    @property
    def ready(self) -> bool:
        return self._subscriber.ready


class _KeepsFailed:
    def __init__(self, failed: AsyncFailedQueue) -> None:
        self._failed = failed

    def depth(self) -> int:
        return asyncio.run(self._failed.depth())

    def count(self) -> Depth | None:
        return asyncio.run(self._failed.count())

    def browse(
        self,
        limit: int | None = None,
        *,
        on_progress: Callable[[LookProgress], None] | None = None,
        patience: float | None = None,
    ) -> Generator[FailedMessage, None, None]:
        with EventLoop() as loop:
            messages = self._failed.browse(limit, on_progress=on_progress, patience=patience)
            try:
                while (message := loop.run(_next(messages))) is not None:
                    yield message
            finally:
                loop.run(messages.aclose())

    def requeue(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
        **options: Any,
    ) -> RequeueReport:
        return asyncio.run(self._failed.requeue(where, limit, **options))

    def discard(
        self,
        where: Filter | str | Predicate | None = None,
        limit: int | None = None,
    ) -> DiscardReport:
        return asyncio.run(self._failed.discard(where, limit))

    def restore(self, deliveries: Iterable[Delivery]) -> PublishReport:
        return asyncio.run(self._failed.restore(deliveries))

    @contextlib.contextmanager
    def watch(self, job: str, queue: str | None = None) -> Iterator[Watch | ReturnChecks]:
        with EventLoop() as loop:
            watching = self._failed.watch(job, queue)
            watch = loop.run(watching.__aenter__())
            try:
                yield watch
            finally:
                loop.run(watching.__aexit__(None, None, None))

    def purge(self) -> int:
        return asyncio.run(self._failed.purge())


async def _next(messages: AsyncIterator[FailedMessage]) -> FailedMessage | None:
    return await anext(messages, None)


def awaited(handler: Handles, threads: ThreadPoolExecutor) -> Callable[..., Awaitable[object]]:
    """The handler of a test as one that is awaited: it runs on a thread, since it may wait for
    whatever the test does."""

    async def handle(argument: Any) -> object:
        called = functools.partial(contextvars.copy_context().run, handler, argument)
        return await asyncio.get_running_loop().run_in_executor(threads, called)

    asks_for = inspect.signature(handler, eval_str=True).parameters.values()
    handle.__annotations__ = {"argument": next(iter(asks_for)).annotation}
    return handle


BLOCKING = BlockingShell()
ASYNC = AsyncShell()
APP = AppShell()
ASYNC_APP = AsyncAppShell()
SHELLS: tuple[Shell, ...] = (BLOCKING, ASYNC)
APP_SHELLS: tuple[Shell, ...] = (APP, ASYNC_APP)
"""The same engines, each within an app."""
