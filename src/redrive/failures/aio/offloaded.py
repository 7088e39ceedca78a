"""Make an asyncio method of a blocking one."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from redrive.pubsub.aio.threads import EitherOf, ended, on_loop, on_thread

P = ParamSpec("P")
B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")


class Wrapper(Protocol[B_co]):
    """An object for asyncio that does its work with a blocking one."""

    @property
    def _blocking(self) -> B_co: ...


@overload
def offloaded(
    method: Callable[Concatenate[B, P], T], *, at_once: bool = False
) -> Callable[Concatenate[Wrapper[B], P], Coroutine[None, None, T]]: ...


@overload
def offloaded(
    method: Callable[Concatenate[B, P], T], made: Callable[[T], R], *, at_once: bool = False
) -> Callable[Concatenate[Wrapper[B], P], Coroutine[None, None, R]]: ...


def offloaded(
    method: Callable[Concatenate[B, P], object],
    made: Callable[..., object] | None = None,
    *,
    at_once: bool = False,
) -> Callable[Concatenate[Wrapper[B], P], Coroutine[None, None, object]]:
    """Return a coroutine function that runs a blocking method on a thread, with the same arguments
    and documentation.

    Functions given as `on_…` are called on the event loop. If the coroutine is cancelled, a method
    that takes `cancel` is told to stop, and the coroutine ends only when the method has, because
    messages may be held until then.

    Args:
        method: the method of the blocking class.
        made: what the coroutine returns for what the method returned; None for the same.
        at_once: whether a cancelled coroutine ends at once, since the method holds no messages.
    """
    stops = "cancel" in inspect.signature(method).parameters

    @functools.wraps(method)
    async def run(self: Wrapper[B], /, *given: P.args, **named: P.kwargs) -> object:
        options: dict[str, Any] = dict(named)
        stop = EitherOf(options.get("cancel"))
        for name in options:
            if name.startswith("on_"):
                options[name] = on_loop(options[name])
        if stops:
            options["cancel"] = stop
        call = getattr(self._blocking, method.__name__)
        running = on_thread(lambda: call(*given, **options), f"redrive-{method.__name__}")
        result = await (running if at_once else ended(asyncio.ensure_future(running), stop.set))
        return result if made is None else made(result)

    return run
