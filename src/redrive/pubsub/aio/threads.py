"""What can't be awaited, on a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from redrive.errors import ConfigurationError

T = TypeVar("T")
P = TypeVar("P")


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigurationError(
            "no event loop of asyncio runs here, and redrive's async classes need one",
            "Use them in a coroutine that asyncio runs (asyncio.run); under trio, run the blocking "
            "ones on a thread.",
        ) from error


async def on_thread(function: Callable[[], T], name: str = "redrive") -> T:
    """What `function` returns or raises. Where this is cancelled the thread goes on by itself, and
    nobody waits for it.

    Not on the loop's own pool: that may be full of the application's work, and keeps a process from
    ending.
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
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            tell(lambda error=error: future.set_exception(error))  # type: ignore[misc]
        else:
            tell(lambda: future.set_result(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


async def ended(running: asyncio.Future[T], cancelled: Callable[[], object] = lambda: None) -> T:
    """What it returns. Where this is cancelled, it raises only once that has ended: messages are
    held until then."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


async def to_its_end(function: Callable[[], T]) -> T:
    """What `function` returns or raises, on a thread; where this is cancelled, once that has
    ended."""
    return await ended(asyncio.ensure_future(on_thread(function)))


async def run_out(
    run: Callable[[Callable[[P], None], "EitherOf"], T],
    on_progress: Callable[[P], object] | None,
    cancel: "Event | None",
) -> T:
    """What a run on a thread returns, which is stopped where this is cancelled, and then waited
    for."""
    stop = EitherOf(cancel)
    tell = on_loop(on_progress) or (lambda _: None)
    return await ended(
        asyncio.ensure_future(on_thread(lambda: run(tell, stop), "redrive-requeue")), stop.set
    )


def on_loop(function: Callable[[P], object] | None) -> Callable[[P], None] | None:
    """A function that a thread may call, and which is called on the event loop."""
    if function is None:
        return None
    loop, called = running_loop(), function

    def tell(told: P) -> None:
        loop.call_soon_threadsafe(called, told)

    return tell


class Event(Protocol):
    """An event that somebody sets."""

    def is_set(self) -> bool:
        """Whether it is."""


class EitherOf:
    """Set where the caller's event is, or our own."""

    def __init__(self, theirs: Event | None) -> None:
        self._theirs = theirs
        self._own = threading.Event()

    def set(self) -> None:
        """Sets our own."""
        self._own.set()

    def is_set(self) -> bool:
        """Whether one of them is."""
        return self._own.is_set() or (self._theirs is not None and self._theirs.is_set())
