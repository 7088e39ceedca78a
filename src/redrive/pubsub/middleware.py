"""Registers middleware, and hooks for messages that are given up."""

import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, TypeVar, overload

from redrive.errors import ConfigurationError
from redrive.pubsub.attempt import AsyncMiddleware, GiveUpHook, Middleware, PlainGiveUpHook
from redrive.pubsub.handler import check_runs_when_called, is_async, name_of
from redrive.pubsub.work import ConsumeOptions

_AnyMiddleware = TypeVar("_AnyMiddleware", bound=Middleware | AsyncMiddleware)
_Middleware = TypeVar("_Middleware", bound=Middleware)
_AsyncMiddleware = TypeVar("_AsyncMiddleware", bound=AsyncMiddleware)
_Hook = TypeVar("_Hook", bound=GiveUpHook)
_PlainHook = TypeVar("_PlainHook", bound=PlainGiveUpHook)


class BlockingShell(Protocol):
    """A class whose handlers, middleware and hooks are plain functions; for type checkers."""

    _handlers_are_async: ClassVar[Literal[False]]


class AsyncShell(Protocol):
    """A class whose handlers are awaited; for type checkers."""

    _handlers_are_async: ClassVar[Literal[True]]


class MiddlewareRegistry:
    """Holds middleware and hooks: for one subscriber, or for all in a router or an app."""

    _handlers_are_async: ClassVar[bool]
    _middleware: tuple[Middleware | AsyncMiddleware, ...] = ()
    _hooks: tuple[GiveUpHook, ...] = ()

    @overload
    def middleware(self: BlockingShell, function: _Middleware) -> _Middleware: ...

    @overload
    def middleware(self: AsyncShell, function: _AsyncMiddleware) -> _AsyncMiddleware: ...

    def middleware(self, function: _AnyMiddleware) -> _AnyMiddleware:
        """Run a generator function with one `yield` around each attempt; a decorator.

        It gets the `Attempt`. Code before the `yield` runs before the handler. The handler's error
        is raised at the `yield`; after it, the attempt says what happens next. The first one
        registered is the outermost, and an app's middleware is outside that of its subscribers. An
        error that it raises becomes the attempt's error; if it swallows one, the message counts as
        handled.

        Raises:
            ConfigurationError: the function is not a generator function, or it is async where
                handlers are plain functions, or the reverse.
        """
        is_one = (
            inspect.isasyncgenfunction if self._handlers_are_async else inspect.isgeneratorfunction
        )
        if not is_one(function):
            wanted = "an async generator" if self._handlers_are_async else "a generator"
            raise ConfigurationError(
                f"the middleware {name_of(function)!r} is not {wanted} function",
                f"Make it {'async def' if self._handlers_are_async else 'def'}, with one `yield` "
                "where the handler runs.",
            )
        self._middleware = (*self._middleware, function)
        return function

    @overload
    def on_give_up(self: BlockingShell, function: _PlainHook) -> _PlainHook: ...

    @overload
    def on_give_up(self: AsyncShell, function: _Hook) -> _Hook: ...

    def on_give_up(self, function: _Hook) -> _Hook:
        """Call a function, with the `Attempt`, for each message that is being set aside; a
        decorator.

        It is also called for a message that is set aside without an attempt, as after crashes; then
        the attempt has no error. An error that the function raises is logged, and changes nothing.

        Raises:
            ConfigurationError: it is a generator function, or async where handlers are plain
                functions.
        """
        check_runs_when_called("hook", function)
        if is_async(function) and not self._handlers_are_async:
            raise ConfigurationError(
                f"the hook {name_of(function)!r} is async, and Subscriber runs on threads",
                "Make it a plain function, or use AsyncSubscriber.",
            )
        self._hooks = (*self._hooks, function)
        return function


def surrounded(options: ConsumeOptions, places: Iterable[MiddlewareRegistry]) -> ConsumeOptions:
    """Return options with the middleware and hooks of all of these, the outermost first."""
    places = list(places)
    return replace(
        options,
        middleware=tuple(one for place in places for one in place._middleware),
        on_give_up=tuple(one for place in places for one in place._hooks),
    )
