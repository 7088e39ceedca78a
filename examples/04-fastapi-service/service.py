"""A web service that publishes: one publisher for all requests, opened and closed with the
service."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from redrive import Publisher, RedriveError

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")


class User(BaseModel):
    id: int
    name: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with Publisher(URL, connection_name="user service", timeout=5) as publisher:
        app.state.publisher = publisher
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/users", status_code=202)
def create_user(user: User, request: Request) -> dict[str, str]:
    """A plain `def`: FastAPI runs it on a thread, and the publisher takes calls from any."""
    try:
        return {"message_id": request.app.state.publisher.publish(user, "user.create")}
    except RedriveError as error:
        raise HTTPException(503, str(error)) from error
