"""A FastAPI service with the console under a prefix. People log in with a user of RabbitMQ's, and
may do what the broker lets them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.console import Console
from redrive.web.console_settings import ConsoleSettings, Permit

console = Console(
    ConsoleSettings(
        url=os.environ.get("REDRIVE_URL", "amqp://localhost/"),
        management_url=os.environ.get("REDRIVE_MANAGEMENT_URL"),
        permits=frozenset({Permit.REQUEUE}),
        access=AccessConfig(login=Login.BROKER),
    ),
    # What a browser's address bar says; a proxy in front must pass it on.
    hosts=frozenset(os.environ.get("CONSOLE_HOSTS", "localhost:8000").split(",")),
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    console.close()  # ends its jobs cleanly


app = FastAPI(lifespan=lifespan)
app.mount("/ops/redrive", console)


@app.get("/")
def index() -> dict[str, str]:
    """The service's own page."""
    return {"console": "/ops/redrive/"}
