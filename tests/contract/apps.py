"""An app of either shell, as a test drives it: its handlers are plain functions, and calls wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from contract.shells import AwaitedPublisher, EventLoop, Handles, Publishes, awaited
from redrive import App, AsyncApp, AsyncRouter, AsyncSubscriber, Attempt, Router, Subscriber


class DrivenApp:
    """An `App`."""

    name = "blocking"

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.app: Any = App(url, **options)

    def router(self, **options: Any) -> Any:
        """A router of the same shell."""
        return Router(**options)

    def subscriber(
        self, place: Any, handler: Handles, queue: str, *keys: str, **options: Any
    ) -> Any:
        """Gives the app, or one of its routers, a subscriber."""
        subscriber: Subscriber = place.subscriber(queue, *keys, **options)
        subscriber.handler(handler)
        return subscriber

    def surround(self, place: Any, note: Callable[[str], object], name: str) -> None:
        """Puts a middleware around a place that notes its name."""

        def around(attempt: Attempt) -> Iterator[None]:
            note(f"{name} before")
            yield
            note(f"{name} after")

        place.middleware(around)

    def lifespan(self, before: Callable[[], object], after: Callable[[], object]) -> None:
        """Gives it a lifespan that does these."""

        def life(_: App) -> Iterator[None]:
            before()
            yield
            after()

        self.app.lifespan(life)

    def start(self, only: Sequence[str] | None = None) -> None:
        """Starts it."""
        self.app.start(only)

    def declare(self) -> None:
        """Declares what its subscribers need."""
        self.app.declare()

    def close(self) -> None:
        """Closes it."""
        self.app.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Runs it as long as the block."""
        with self.app:
            yield self

    @property
    def publisher(self) -> Publishes:
        """Its publisher."""
        publisher: Publishes = self.app.publisher
        return publisher

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DrivenAsyncApp(DrivenApp):
    """An `AsyncApp`, on a loop of its own as long as the block."""

    name = "async"

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.app = AsyncApp(url, **options)
        self._threads = ThreadPoolExecutor(40)

    def router(self, **options: Any) -> Any:
        return AsyncRouter(**options)

    def subscriber(
        self, place: Any, handler: Handles, queue: str, *keys: str, **options: Any
    ) -> Any:
        subscriber: AsyncSubscriber = place.subscriber(queue, *keys, **options)
        subscriber.handler(awaited(handler, self._threads))
        return subscriber

    def surround(self, place: Any, note: Callable[[str], object], name: str) -> None:
        async def around(attempt: Attempt) -> AsyncIterator[None]:
            note(f"{name} before")
            yield
            note(f"{name} after")

        place.middleware(around)

    def lifespan(self, before: Callable[[], object], after: Callable[[], object]) -> None:
        async def life(_: AsyncApp) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            before()
            yield
            after()

        self.app.lifespan(life)

    def start(self, only: Sequence[str] | None = None) -> None:
        self._loop.run(self.app.start(only))

    def declare(self) -> None:
        self._loop.run(self.app.declare())

    def close(self) -> None:
        self._loop.run(self.app.close())

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        self._loop.run(self.app.__aenter__())
        try:
            yield self
        except BaseException as error:
            self._loop.run(self.app.__aexit__(type(error), error, None))
            raise
        self._loop.run(self.app.__aexit__(None, None, None))

    @property
    def publisher(self) -> Publishes:
        return AwaitedPublisher(self.app.publisher, self._loop)

    def __enter__(self) -> Self:
        self._exits = contextlib.ExitStack()
        self._loop = self._exits.enter_context(EventLoop())
        self._exits.enter_context(self._threads)
        return self

    def __exit__(self, *_: object) -> None:
        with self._exits:
            self.close()


APPS: tuple[type[DrivenApp], ...] = (DrivenApp, DrivenAsyncApp)
