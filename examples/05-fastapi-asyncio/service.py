"""A web service that publishes and subscribes on its own event loop, for as long as it lives."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from redrive import AsyncPublisher, AsyncSubscriber, RedriveError

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")


class User(BaseModel):
    id: int
    name: str


welcomed: list[str] = []
subscriber = AsyncSubscriber(
    URL, queue="newsletter@user", routing_keys=["user.create"], concurrency=10, grace=10
)


@subscriber.handler
async def on_user(user: User) -> None:
    """Up to ten of them at a time."""
    welcomed.append(user.name)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        AsyncPublisher(URL, connection_name="user service", timeout=5) as publisher,
        subscriber,
    ):
        app.state.publisher = publisher
        yield
    # What was being handled has been acked; the rest is in the queue.


app = FastAPI(lifespan=lifespan)


@app.post("/users", status_code=202)
async def create_user(user: User, request: Request) -> dict[str, str]:
    """Waits for the broker's confirm, and lets others have the loop meanwhile."""
    try:
        return {"message_id": await request.app.state.publisher.publish(user, "user.create")}
    except RedriveError as error:
        raise HTTPException(503, str(error)) from error


@app.get("/welcomed")
async def who_was_welcomed() -> list[str]:
    """The names of those that were handled."""
    return welcomed
