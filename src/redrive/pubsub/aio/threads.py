"""What can't be awaited, on a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from redrive.errors import ConfigurationError

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs.

    Raises:
        ConfigurationError: none of asyncio's does.
    """
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
