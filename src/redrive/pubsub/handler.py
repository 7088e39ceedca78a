"""What may be a handler, and what a handler may return: work that nobody has done must never count
as handled."""

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator

from redrive.errors import ConfigurationError

Handler = Callable[..., object]
PlainHandler = Callable[..., None]
"""A handler that runs on a thread, as a type checker takes it. What it returns is ignored, and no
type says `anything but an awaitable`: so one that returns a value is only refused there."""
AsyncHandler = Callable[..., Awaitable[object]]
"""A handler that is awaited."""

_NEVER_ENTERED = (contextlib.ContextDecorator, contextlib.AsyncContextDecorator)
"""What calling a function gives that `contextlib` has made a context manager of; its body runs when
that is entered."""


def name_of(function: object) -> str:
    """What an error calls a handler."""
    return getattr(function, "__qualname__", type(function).__qualname__)


def is_async(function: Handler) -> bool:
    """Whether calling it gives a coroutine: an `async def`, also as a method, in a
    `functools.partial` or as `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        _called_by(function)
    )


def check_runs_when_called(role: str, function: Handler) -> None:
    """Refuses a generator function: calling it runs nothing of its body."""
    called = _called_by(function)
    kind = (
        "an async generator"
        if inspect.isasyncgenfunction(called)
        else "a generator"
        if inspect.isgeneratorfunction(called)
        else ""
    )
    if kind:
        raise ConfigurationError(
            f"the {role} {name_of(function)!r} is {kind} function (it has a yield): calling it "
            "runs nothing of its body",
            "Make it a function without yield.",
        )


def check_handler(function: Handler, *, awaited: bool) -> None:
    """Refuses what can't do a handler's work in this shell.

    A decorator's plain wrapper around an `async def` (made with `functools.wraps`) is taken where
    handlers are awaited: what it returns is.
    """
    check_runs_when_called("handler", function)
    if is_async(function) and not awaited:
        raise ConfigurationError(
            f"the handler {name_of(function)!r} is async, and Subscriber runs handlers on threads",
            "Make it a plain function, or use AsyncSubscriber.",
        )
    if awaited and not is_async(function) and not _wraps_async(function):
        raise ConfigurationError(
            f"the handler {name_of(function)!r} is a plain function, and AsyncSubscriber awaits "
            "handlers",
            "Make it `async def` (a decorator around one: use functools.wraps), or use Subscriber, "
            "which runs handlers on threads.",
        )


def check_result(role: str, function: Handler, result: object) -> None:
    """Refuses what a handler has returned, where that is work that nobody will do: a coroutine,
    another awaitable, a generator.

    A coroutine or generator is closed.
    """
    if result is None or not isinstance(
        result, (Awaitable, Generator, AsyncGenerator, *_NEVER_ENTERED)
    ):
        return
    if isinstance(result, Coroutine | Generator):
        result.close()  # or Python would warn besides that it was never awaited
    raise ConfigurationError(
        f"the {role} {name_of(function)!r} returned {_described(result)}: the work in it was never "
        "done",
        "Have it do its work before it returns: await the coroutine in an `async def` with "
        "AsyncSubscriber, or iterate the generator.",
    )


def awaitable_of(function: Handler, result: object) -> Awaitable[object]:
    """What an awaited handler's call gave, to be awaited."""
    if isinstance(result, Awaitable):
        return result
    check_result("handler", function, result)
    raise ConfigurationError(
        f"the handler {name_of(function)!r} returned a {type(result).__name__}, and "
        "AsyncSubscriber awaits what it returns",
        "Make it `async def`; a decorator around one must return what it awaits.",
    )


def _described(result: object) -> str:
    if isinstance(result, Coroutine):
        return "a coroutine that nobody awaits"
    if isinstance(result, Awaitable):
        return f"a {type(result).__name__} that nobody awaits"
    if isinstance(result, Generator | AsyncGenerator):
        return "a generator that nobody iterates"
    return "a context manager that nobody enters"


def _called_by(function: Handler) -> object:
    """The function that a call ends in: of a partial the one in it, of a method its function, of an
    object its `__call__`."""
    called: object = function
    while True:
        if isinstance(called, functools.partial):
            called = called.func
        elif inspect.ismethod(called):
            called = called.__func__
        elif isinstance(called, type) or inspect.isroutine(called) or not callable(called):
            return called
        else:
            called = type(called).__call__


def _wraps_async(function: Handler) -> bool:
    inner = getattr(_called_by(function), "__wrapped__", getattr(function, "__wrapped__", None))
    while inner is not None:
        if is_async(inner):
            return True
        inner = getattr(inner, "__wrapped__", None)
    return False
