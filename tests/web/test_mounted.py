"""The console under a prefix of another application."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from contract.administration import Administration
from redrive.web.auth.access_config import AccessConfig, Login
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
    with served(request.param, rabbitmq_url, rabbitmq_management_url, AccessConfig()) as found:
        yield found


@contextmanager
def served(
    mount: Callable[[Console], ASGIApp], url: str, management_url: str, access: AccessConfig
) -> Iterator[tuple[Console, httpx.Client]]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        settings = ConsoleSettings(url=url, management_url=management_url, access=access)
        console = Console(settings, frozenset({host}))
        server = uvicorn.Server(uvicorn.Config(mount(console), log_level="error", lifespan="off"))
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


@pytest.mark.parametrize("mount", [in_starlette, in_fastapi], ids=["starlette", "fastapi"])
def test_who_logs_in_below_the_prefix_comes_to_the_page_that_was_asked_for_and_out_again(
    rabbitmq_url: str, rabbitmq_management_url: str, mount: Callable[[Console], ASGIApp]
) -> None:
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    user = administration.unique("mounted")
    own = {"sec-fetch-site": "same-origin"}
    with (
        administration.user(user, password="secret"),
        served(mount, rabbitmq_url, rabbitmq_management_url, AccessConfig(login=Login.BROKER)) as (
            _,
            client,
        ),
    ):
        asked = client.get(f"{PREFIX}/journal?word=x").headers["location"]
        assert asked.startswith(f"{PREFIX}/login?next=")
        following = dict(parse_qsl(urlsplit(asked).query))
        form = {"user": user, "password": "secret", **following}
        answer = client.post(f"{PREFIX}/login", data=form, headers=own)
        assert answer.headers["location"] == f"{PREFIX}/journal?word=x"
        assert f"path={PREFIX}/" in answer.headers["set-cookie"].lower()
        assert client.get(answer.headers["location"]).status_code == 200
        out = client.post(f"{PREFIX}/logout", headers=own)
        assert out.headers["location"] == f"{PREFIX}/login"
        assert client.get(f"{PREFIX}/journal").status_code == 303
