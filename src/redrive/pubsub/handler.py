"""Checks handlers and their results, so that work that was never done can't count as handled."""

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator

from redrive.errors import ConfigurationError

Handler = Callable[..., object]
PlainHandler = Callable[..., None]
"""A handler that runs on a thread, as type checkers see it. Its result is ignored. No type can say
"anything but an awaitable", so only type checkers refuse a handler that returns a value."""
AsyncHandler = Callable[..., Awaitable[object]]
"""A handler that is awaited."""

_NEVER_ENTERED = (contextlib.ContextDecorator, contextlib.AsyncContextDecorator)
"""Results of calling a function that `contextlib` made a context manager; its body runs only when
that is entered."""


def name_of(function: object) -> str:
    """Return a handler's name for error messages."""
    return getattr(function, "__qualname__", type(function).__qualname__)


def is_async(function: Handler) -> bool:
    """Check whether calling a function returns a coroutine: an `async def`, also as a method, in a
    `functools.partial` or as `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        _called_by(function)
    )


def check_runs_when_called(role: str, function: Handler) -> None:
    """Refuse a generator function, since calling it does not run its body."""
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
            "does not run its body",
            "Make it a function without yield.",
        )


def check_handler(function: Handler, *, awaited: bool) -> None:
    """Refuse a function that can't be a handler in this shell.

    If handlers are awaited, a decorator's plain wrapper around an `async def` (made with
    `functools.wraps`) is accepted, because its result is awaited.
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
    """Refuse a handler's result if it is work that will never be done: a coroutine, another
    awaitable, or a generator.

    A coroutine or generator is closed.
    """
    if result is None or not isinstance(
        result, (Awaitable, Generator, AsyncGenerator, *_NEVER_ENTERED)
    ):
        return
    if isinstance(result, Coroutine | Generator):
        result.close()  # else Python would also warn that it was never awaited
    raise ConfigurationError(
        f"the {role} {name_of(function)!r} returned {_described(result)}: the work in it was never "
        "done",
        "Have it do its work before it returns: await the coroutine in an `async def` with "
        "AsyncSubscriber, or iterate the generator.",
    )


def awaitable_of(function: Handler, result: object) -> Awaitable[object]:
    """Check that an awaited handler returned an awaitable, and return it."""
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
    """Return the function that a call runs in the end: inside a partial, behind a method, or an
    object's `__call__`."""
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
