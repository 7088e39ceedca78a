"""Run blocking calls on a thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from redrive.errors import ConfigurationError

T = TypeVar("T")
P = TypeVar("P")


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop; raises ConfigurationError if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigurationError(
            "no asyncio event loop is running here, and redrive's async classes need one",
            "Use them in a coroutine that asyncio runs (asyncio.run); under trio, use the blocking "
            "classes on a thread.",
        ) from error


async def on_thread(function: Callable[[], T], name: str = "redrive") -> T:
    """Run `function` on a thread and return its result or raise its exception.

    If this is cancelled, the thread keeps running and nobody waits for it.

    It does not use the loop's own pool, which may be full of the application's work and would keep
    the process from exiting.
    """
    loop = running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(tell_it: Callable[[], None]) -> None:
        def tell_if_wanted() -> None:
            if not future.done():
                tell_it()

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell_if_wanted)

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - any exception belongs to the caller
            tell(lambda error=error: future.set_exception(error))  # type: ignore[misc]
        else:
            tell(lambda: future.set_result(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


async def ended(running: asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """Return the result of `running`. If this is cancelled, raise only once `running` has ended,
    because messages are held until then."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


async def to_its_end(function: Callable[[], T]) -> T:
    """Run `function` on a thread and return its result; if cancelled, raise only once it has
    ended."""
    return await ended(asyncio.ensure_future(on_thread(function)))


def on_loop(function: Callable[[P], object] | None) -> Callable[[P], None] | None:
    """Wrap a function so that a thread can call it, but it runs on the event loop."""
    if function is None:
        return None
    loop, called = running_loop(), function

    def tell(told: P) -> None:
        loop.call_soon_threadsafe(called, told)

    return tell


class Event(Protocol):
    """An event that can be checked."""

    def is_set(self) -> bool:
        """Return whether the event is set."""


class EitherOf:
    """An event that is set if the caller's event is set, or its own."""

    def __init__(self, theirs: Event | None) -> None:
        self._theirs = theirs
        self._own = threading.Event()

    def set(self) -> None:
        """Set its own event."""
        self._own.set()

    def is_set(self) -> bool:
        """Return whether either event is set."""
        return self._own.is_set() or (self._theirs is not None and self._theirs.is_set())
