"""What is refused as a handler when it is given, and what a handler may not return."""

import asyncio
import contextlib
import functools
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from redrive import AsyncSubscriber, ConfigurationError, Message, Subscriber
from redrive.pubsub.handler import awaitable_of, check_result

URL = "amqp://guest:guest@localhost/"


def a_generator(message: Message) -> Iterator[None]:
    yield


async def an_async_generator(message: Message) -> AsyncIterator[None]:
    yield


async def a_coroutine(message: Message) -> None: ...


def plain(message: Message) -> None: ...


class Methods:
    def generates(self, message: Message) -> Iterator[None]:
        yield

    @staticmethod
    async def generates_async(message: Message) -> AsyncIterator[None]:
        yield

    async def awaits(self, message: Message) -> None: ...


class CalledGenerator:
    def __call__(self, message: Message) -> Iterator[None]:
        yield


class CalledStatically:
    __call__ = staticmethod(a_generator)


class CalledAsync:
    async def __call__(self, message: Message) -> None: ...


def of_two(_: object, message: Message) -> Iterator[None]:
    yield


def passing_on(function: Callable[[Message], object]) -> Callable[[Message], Any]:
    """A decorator that is no more than a call."""

    @functools.wraps(function)
    def wrapper(message: Message) -> object:
        return function(message)

    return wrapper


def yielding(function: Callable[[Message], object]) -> Callable[[Message], object]:
    """A decorator whose wrapper is a generator."""

    @functools.wraps(function)
    def wrapper(message: Message) -> Iterator[object]:
        yield function(message)

    return wrapper


GENERATORS = [
    a_generator,
    an_async_generator,
    Methods().generates,
    Methods.generates_async,
    CalledGenerator(),
    CalledStatically(),
    functools.partial(a_generator),
    functools.partial(functools.partial(of_two, 1)),
    functools.partial(CalledGenerator()),
    yielding(plain),
]
ASYNC = [
    a_coroutine,
    Methods().awaits,
    CalledAsync(),
    functools.partial(a_coroutine),
    functools.partial(CalledAsync()),
]


@pytest.mark.parametrize("subscriber", [Subscriber, AsyncSubscriber])
@pytest.mark.parametrize("handler", GENERATORS, ids=range(len(GENERATORS)))
def test_a_generator_function_is_refused_when_it_is_given(
    subscriber: type[Subscriber] | type[AsyncSubscriber], handler: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigurationError, match="generator function") as told:
        subscriber(URL, "shop@orders").handler(handler)

    assert "without yield" in told.value.remedy


@pytest.mark.parametrize("handler", ASYNC, ids=range(len(ASYNC)))
def test_what_is_async_in_any_wrapping_is_refused_by_a_subscriber_on_threads_and_taken_on_a_loop(
    handler: Callable[..., Any],
) -> None:
    with pytest.raises(ConfigurationError, match="is async"):
        Subscriber(URL, "shop@orders").handler(handler)

    assert AsyncSubscriber(URL, "shop@orders").handler(handler) is handler


def test_a_plain_wrapper_around_an_async_function_is_taken_on_a_loop_and_a_plain_one_is_not() -> (
    None
):
    AsyncSubscriber(URL, "shop@orders").handler(passing_on(passing_on(a_coroutine)))

    for handler in (plain, passing_on(plain), lambda message: a_coroutine(message)):
        with pytest.raises(ConfigurationError, match="is a plain function"):
            AsyncSubscriber(URL, "shop@orders").handler(cast(Callable[..., Any], handler))


@pytest.mark.parametrize("predicate", [a_generator, an_async_generator, a_coroutine])
def test_a_predicate_that_decides_nothing_when_it_is_called_is_refused(
    predicate: Callable[[Message], bool],
) -> None:
    with pytest.raises(ConfigurationError, match=r"generator function|is async"):
        Subscriber(URL, "shop@orders", where=predicate)


async def some_work() -> None: ...


def some_values() -> Iterator[int]:
    yield 1


async def some_values_later() -> AsyncIterator[int]:
    yield 1


@contextlib.contextmanager
def a_block() -> Iterator[None]:
    yield


class Promise:
    """What can be awaited and is no coroutine."""

    def __await__(self) -> Iterator[None]:
        return iter(())


@pytest.mark.parametrize("make", [some_work, some_values, some_values_later, a_block, Promise])
def test_work_that_a_handler_returned_is_refused_and_python_does_not_warn_of_it_again(
    make: Callable[[], object],
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ConfigurationError, match=r"'plain' returned a.* that nobody"):
            check_result("handler", plain, make())
        gc.collect()

    assert warned == []


@pytest.mark.parametrize("value", [None, 0, "done", b"", [], {"a": 1}, iter([1]), object(), plain])
def test_any_other_value_that_a_handler_returns_is_let_be(value: object) -> None:
    check_result("handler", plain, value)


def test_what_an_async_handler_is_called_for_must_be_awaitable() -> None:
    work: Coroutine[Any, Any, None] = some_work()
    awaited: Awaitable[object] = awaitable_of(plain, work)
    assert awaited is work
    work.close()
    for result in (None, 3, some_values()):
        with pytest.raises(ConfigurationError, match="'plain' returned"):
            awaitable_of(plain, result)


def test_a_task_that_nobody_awaits_is_refused() -> None:
    async def main() -> None:
        task = asyncio.ensure_future(some_work())
        with pytest.raises(ConfigurationError, match="a Task that nobody awaits"):
            check_result("handler", plain, task)
        await task

    asyncio.run(main())
