"""Dependencies of handlers that are awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fast_depends import Depends

from deliveries import first_delivery
from redrive.pubsub.codec import reader_of
from redrive.pubsub.handler import Handler
from redrive.pubsub.handler_table import call_with_dependencies
from redrive.pubsub.message import Message


def call_of(function: Handler) -> Callable[[Message], object]:
    return call_with_dependencies(function, "body", reader_of(bytes), [])


def test_an_async_dependency_is_awaited_and_cleaned_up_after_the_handler() -> None:
    happened: list[str] = []

    async def session() -> AsyncIterator[str]:
        happened.append("opened")
        yield "session"
        happened.append("closed")

    async def handler(body: bytes, session: Annotated[str, Depends(session)]) -> None:
        happened.append(f"{body.decode()} with {session}")

    async def attempt() -> None:
        called = call_of(handler)(Message(first_delivery(body=b"order")))
        assert isinstance(called, Awaitable)
        await called

    asyncio.run(attempt())
    assert happened == ["opened", "order with session", "closed"]


def test_those_who_ask_for_the_same_dependency_get_the_same() -> None:
    made: list[object] = []

    def session() -> object:
        made.append(object())
        return made[-1]

    def repository(session: Annotated[object, Depends(session)]) -> object:
        return session

    def handler(
        body: bytes,
        session: Annotated[object, Depends(session)],
        repository: Annotated[object, Depends(repository)],
    ) -> object:
        return session is repository

    assert call_of(handler)(Message(first_delivery())) is True
    assert len(made) == 1
