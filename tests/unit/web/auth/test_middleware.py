"""An answer that goes on and on ends with the session that asked for it."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from redrive.web.auth.access_config import AccessConfig
from redrive.web.auth.middleware import AuthConfig, AuthMiddleware
from redrive.web.auth.session_users import SessionUser, SessionUsers
from redrive.web.auth.sessions import Sessions
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext

HOST = "127.0.0.1:8015"
NOBODY_LISTENS = "amqp://guest:guest@127.0.0.1:9/"


def sent_of(ends_after: int) -> list[Message]:
    """What a browser is sent of a download of ten parts whose session ends after some of them."""
    session_user = SessionUser("", cast("ConsoleContext", None))
    sessions: Sessions[SessionUser] = Sessions()
    token = sessions.begin(session_user)

    async def parts() -> AsyncIterator[bytes]:
        for number in range(10):
            if number == ends_after:
                sessions.end(token)
            yield b"%d" % number

    async def download(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(parts())(scope, receive, send)

    session_users = SessionUsers(ConsoleSettings(url=NOBODY_LISTENS), session_user.context)
    gate = AuthMiddleware(
        download,
        auth=AuthConfig(AccessConfig(), frozenset({HOST}), sessions, session_users, "session"),
        refused=lambda refusal: PlainTextResponse(refusal.problem, refusal.status),
        is_ready=lambda: True,
    )
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    headers = [(b"host", HOST.encode()), (b"cookie", f"session={token}".encode())]
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/body",
        "headers": headers,
        "scheme": "http",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(gate(scope, receive, send))
    return sent


def test_a_download_whose_session_ends_in_the_middle_ends_there() -> None:
    sent = sent_of(ends_after=4)
    assert b"".join(one.get("body", b"") for one in sent) == b"0123"
    assert [bool(one.get("more_body")) for one in sent[1:]] == [True] * 4 + [False]


def test_a_download_whose_session_goes_on_is_whole() -> None:
    assert b"".join(one.get("body", b"") for one in sent_of(ends_after=11)) == b"0123456789"
