"""A Starlette application with the console under a prefix, for whoever its own login lets in: the
console reads, and a link lets in one browser."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from redrive.web.console import Console
from redrive.web.console_settings import ConsoleSettings

PREFIX = "/ops/redrive"
console = Console(
    ConsoleSettings(
        url=os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/"),
        management_url=os.environ.get("REDRIVE_MANAGEMENT_URL"),
    ),
    hosts=frozenset(os.environ.get("CONSOLE_HOSTS", "localhost:8000").split(",")),
)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    print(f"The console opens, once, at {PREFIX}{console.new_link()}", flush=True)
    yield
    console.close()


def index(request: Request) -> PlainTextResponse:
    """The application's own page."""
    return PlainTextResponse(f"The console is at {PREFIX}/")


app = Starlette(lifespan=lifespan, routes=[Route("/", index), Mount(PREFIX, console)])
