"""A web service that publishes and subscribes on its own event loop, for as long as it lives."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from redrive import AsyncApp, RedriveError
from redrive.pubsub.probes import asgi

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")


class User(BaseModel):
    id: int
    name: str


welcomed: list[str] = []
messages = AsyncApp(URL, name="user service", concurrency=10, grace=10, publish_timeout=5)


@messages.subscriber("newsletter@user", "user.create")
async def on_user(user: User) -> None:
    """Up to ten of them at a time."""
    welcomed.append(user.name)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with messages:
        yield
    # What was being handled has been acked; the rest is in the queue.


app = FastAPI(lifespan=lifespan)
app.mount("/probes", asgi(messages, metrics=False))


@app.post("/users", status_code=202)
async def create_user(user: User) -> dict[str, str]:
    """Waits for the broker's confirm, and lets others have the loop meanwhile."""
    try:
        return {"message_id": await messages.publisher.publish(user, "user.create")}
    except RedriveError as error:
        raise HTTPException(503, str(error)) from error


@app.get("/welcomed")
async def who_was_welcomed() -> list[str]:
    """The names of those that were handled."""
    return welcomed
