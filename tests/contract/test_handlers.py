"""What runs around a handler, and which of several runs."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import pytest
from fast_depends import Depends

from contract.shells import STOP_SECONDS, EventLoop
from contract.support import SOON, Service
from redrive import (
    AsyncSubscriber,
    Attempt,
    GiveUp,
    Message,
    RetryPolicy,
    Subscriber,
    current_message,
)
from waiting import DEADLINE, wait_until

ONE_RETRY = RetryPolicy(1, SOON)


class Seen:
    """What happened, in its order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def session(self, message: Message) -> Iterator[str]:
        """A dependency."""
        self.events.append(f"opened at attempt {message.attempt}")
        yield "session"
        self.events.append("closed")

    async def async_session(self, message: Message) -> AsyncIterator[str]:
        """The same for asyncio."""
        self.events.append(f"opened at attempt {message.attempt}")
        yield "session"
        self.events.append("closed")

    def around(self, attempt: Attempt) -> Iterator[None]:
        """A middleware."""
        try:
            yield
        finally:
            self.events.append(str(attempt))

    async def async_around(self, attempt: Attempt) -> AsyncIterator[None]:
        """The same for asyncio."""
        try:
            yield
        finally:
            self.events.append(str(attempt))

    def gave_up(self, attempt: Attempt) -> None:
        """A hook."""
        self.events.append(f"gave up with {type(attempt.error).__name__}: {attempt.reason}")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@contextlib.contextmanager
def running(service: Service, subscriber: Subscriber | AsyncSubscriber) -> Iterator[None]:
    """Runs a subscriber as long as the block."""
    if isinstance(subscriber, Subscriber):
        subscriber.start()
        wait_until(lambda: subscriber.ready, "it consumes")
        yield
        subscriber.stop()
        assert subscriber.wait(STOP_SECONDS)
        return
    with EventLoop() as loop:
        loop.run(subscriber.start())
        wait_until(lambda: subscriber.ready, "it consumes")
        yield
        subscriber.stop()
        assert loop.run(subscriber.wait(STOP_SECONDS))


def made(service: Service, *, handler_timeout: float | None = None) -> Subscriber | AsyncSubscriber:
    """A subscriber of the service's shell, without a handler."""
    kind = Subscriber if service.shell.name == "blocking" else AsyncSubscriber
    return kind(
        service.url,
        service.queue,
        ["#"],
        retry=ONE_RETRY,
        queue_type=service.queue_type,
        handler_timeout=handler_timeout,
    )


def test_middleware_hears_what_comes_next_and_the_hook_of_the_end(
    service: Service, seen: Seen
) -> None:
    subscriber = made(service)
    if isinstance(subscriber, Subscriber):
        subscriber.middleware(seen.around)

        @subscriber.handler
        def fails(message: Message) -> None:
            raise KeyError("sku")

    else:
        subscriber.middleware(seen.async_around)

        @subscriber.handler
        async def fails_too(message: Message) -> None:
            raise KeyError("sku")

    subscriber.on_give_up(seen.gave_up)
    with running(service, subscriber):
        service.publish(b"{}")
        service.wait_for_failed()
    assert seen.events == [
        "retrying in 0.05 s",
        "gave up: retries-exhausted",
        "gave up with KeyError: retries-exhausted",
    ]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_whatever_a_hook_raises_is_logged_and_changes_nothing(
    service: Service, seen: Seen, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    subscriber = made(service)

    @subscriber.on_give_up
    def page(attempt: Attempt) -> None:
        raise kind("no pager configured")

    subscriber.on_give_up(seen.gave_up)
    if isinstance(subscriber, Subscriber):

        @subscriber.handler
        def fails(message: Message) -> None:
            raise GiveUp

    else:

        @subscriber.handler
        async def fails_too(message: Message) -> None:
            raise GiveUp

    with running(service, subscriber):
        for number in range(3):
            service.publish(str(number))
        service.wait_for_failed(3)
    assert seen.events == 3 * ["gave up with GiveUp: gave-up"]
    assert caplog.text.count("page raised") == 3


def test_what_a_middleware_raises_fails_the_attempt(service: Service) -> None:
    subscriber = made(service)
    if isinstance(subscriber, Subscriber):

        @subscriber.middleware
        def commits(attempt: Attempt) -> Iterator[None]:
            yield
            raise ConnectionError("the database is gone")

        @subscriber.handler
        def handles(message: Message) -> None: ...

    else:

        @subscriber.middleware
        async def commits_too(attempt: Attempt) -> AsyncIterator[None]:
            yield
            raise ConnectionError("the database is gone")

        @subscriber.handler
        async def handles_too(message: Message) -> None: ...

    with running(service, subscriber):
        service.publish(b"{}")
        (failed,) = service.wait_for_failed()
    assert (failed.error_type, failed.retries) == ("ConnectionError", 1)


def test_a_dependency_is_made_for_each_attempt_and_cleaned_up(service: Service, seen: Seen) -> None:
    subscriber = made(service)
    if isinstance(subscriber, Subscriber):

        @subscriber.handler
        def fails_once(
            body: bytes, message: Message, session: Annotated[str, Depends(seen.session)]
        ) -> None:
            seen.events.append(f"{body.decode()} with {session}")

    else:

        @subscriber.handler
        async def fails_once_too(
            body: bytes, message: Message, session: Annotated[str, Depends(seen.async_session)]
        ) -> None:
            seen.events.append(f"{body.decode()} with {session}")

    with running(service, subscriber):
        service.publish(b"order")
        wait_until(lambda: "closed" in seen.events, "the dependency is cleaned up")
    assert seen.events == ["opened at attempt 1", "order with session", "closed"]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_dependency_that_raises_or_never_ends_fails_the_attempt(
    service: Service, hangs: bool
) -> None:
    over = threading.Event()

    def session() -> str:
        if hangs:
            over.wait(DEADLINE)
        raise ConnectionError("the pool is exhausted")

    async def async_session() -> str:
        if hangs:
            await asyncio.Event().wait()
        raise ConnectionError("the pool is exhausted")

    subscriber = made(service, handler_timeout=3 if hangs else None)
    if isinstance(subscriber, Subscriber):

        @subscriber.handler
        def handles(message: Message, session: Annotated[str, Depends(session)]) -> None: ...

    else:

        @subscriber.handler
        async def handles_too(
            message: Message, session: Annotated[str, Depends(async_session)]
        ) -> None: ...

    with running(service, subscriber):
        try:
            service.publish(b"{}")
            (failed,) = service.wait_for_failed()
        finally:
            over.set()
    error = "redrive.errors.HandlerTimeout" if hangs else "ConnectionError"
    assert (failed.error_type, failed.retries) == (error, 1)


def test_a_message_goes_to_the_handler_for_its_key(service: Service, seen: Seen) -> None:
    subscriber = made(service)
    if isinstance(subscriber, Subscriber):

        @subscriber.handler("order.paid")
        def on_paid(body: bytes) -> None:
            seen.events.append("paid")

        @subscriber.handler("order.*")
        def on_order(message: Message) -> None:
            seen.events.append(message.routing_key)

    else:

        @subscriber.handler("order.paid")
        async def on_paid_too(body: bytes) -> None:
            seen.events.append("paid")

        @subscriber.handler("order.*")
        async def on_order_too(message: Message) -> None:
            seen.events.append(message.routing_key)

    with running(service, subscriber):
        service.publish(b"1", "order.paid")
        service.publish(b"2", "order.sent")
        stranger = service.publish(b"3", "user.created")
        (failed,) = service.wait_for_failed()
        wait_until(lambda: len(seen.events) == 2, "both orders are handled")
    assert sorted(seen.events) == ["order.sent", "paid"]
    assert (failed.message_id, failed.retries) == (stranger, 0)
    assert failed.error_message is not None
    assert "no handler for the routing key 'user.created'" in failed.error_message


def test_a_handler_and_what_it_calls_know_the_message(service: Service, seen: Seen) -> None:
    def note() -> None:
        message = current_message()
        assert message is not None
        seen.events.append(
            f"{message.message_id} attempt {message.attempt}"
            f"{', the last' if message.is_last_attempt else ''}"
        )
        raise KeyError("sku")

    subscriber = made(service)
    if isinstance(subscriber, Subscriber):

        @subscriber.handler
        def handles(body: bytes) -> None:
            note()

    else:

        @subscriber.handler
        async def handles_too(body: bytes) -> None:
            await asyncio.to_thread(note)

    with running(service, subscriber):
        message_id = service.publish(b"{}")
        service.wait_for_failed()
    assert seen.events == [f"{message_id} attempt 1", f"{message_id} attempt 2, the last"]
    assert current_message() is None


def test_the_traceback_of_an_attempt_is_logged_where_that_is_asked_for(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    kind = Subscriber if service.shell.name == "blocking" else AsyncSubscriber
    subscriber = kind(
        service.url,
        service.queue,
        ["#"],
        retry=ONE_RETRY,
        queue_type=service.queue_type,
        log_tracebacks=True,
    )
    if isinstance(subscriber, Subscriber):

        @subscriber.handler
        def fails(message: Message) -> None:
            raise KeyError("sku")

    else:

        @subscriber.handler
        async def fails_too(message: Message) -> None:
            raise KeyError("sku")

    with caplog.at_level(logging.WARNING, "redrive"), running(service, subscriber):
        service.publish(b"{}")
        service.wait_for_failed()
    traced = [one for one in caplog.records if "its attempt failed" in one.getMessage()]
    assert [one.exc_info and one.exc_info[0] for one in traced] == [KeyError, KeyError]
