"""The console under a prefix of another application."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from redrive.web.console import Console
from redrive.web.console_settings import ConsoleSettings
from waiting import wait_until

PREFIX = "/ops/redrive"


def in_starlette(console: Console) -> ASGIApp:
    return Starlette(routes=[Mount(PREFIX, console)])


def in_fastapi(console: Console) -> ASGIApp:
    application = FastAPI()
    application.mount(PREFIX, console)
    return application


@pytest.fixture(params=[in_starlette, in_fastapi], ids=["starlette", "fastapi"])
def mounted(
    request: pytest.FixtureRequest, rabbitmq_url: str, rabbitmq_management_url: str
) -> Iterator[tuple[Console, httpx.Client]]:
    """A console that another application has mounted, and a browser."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        settings = ConsoleSettings(url=rabbitmq_url, management_url=rabbitmq_management_url)
        console = Console(settings, frozenset({host}))
        server = uvicorn.Server(
            uvicorn.Config(request.param(console), log_level="error", lifespan="off")
        )
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started, "it answers")
            with httpx.Client(base_url=f"http://{host}", trust_env=False, timeout=60) as client:
                yield console, client
        finally:
            server.should_exit = True
            thread.join()


def test_it_lets_in_by_its_link_and_every_link_has_the_prefix(
    mounted: tuple[Console, httpx.Client],
) -> None:
    console, client = mounted
    assert client.get(f"{PREFIX}/").status_code == 403
    entered = client.get(f"{PREFIX}{console.new_link()}")
    assert entered.headers["location"] == f"{PREFIX}/"
    assert f"path={PREFIX}/" in entered.headers["set-cookie"].lower()
    overview = client.get(f"{PREFIX}/")
    assert overview.status_code == 200
    assert 'href="/' not in overview.text.replace(f'href="{PREFIX}/', "")
    assert client.get(f"{PREFIX}/journal").status_code == 200
    assert client.get(f"{PREFIX}/static/console.css").status_code == 200


def test_a_form_leads_back_below_the_prefix(mounted: tuple[Console, httpx.Client]) -> None:
    console, client = mounted
    client.get(f"{PREFIX}{console.new_link()}")
    answer = client.post(
        f"{PREFIX}/look",
        data={"queue": "no-such-queue", "back": "/causes?queue=no-such-queue"},
        headers={"sec-fetch-site": "same-origin"},
    )
    assert answer.headers["location"] == f"{PREFIX}/causes?queue=no-such-queue"
