"""What every request passes before a page sees it, and what every answer says to the browser."""

from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.redaction import in_one_line
from redrive.web.entrance import Entrance

ENTRY = "/open"
_STATIC = "/static/"
_READS = frozenset({"GET", "HEAD"})
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The content security policy: nothing but the console's own files, and no script that makes
markup."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With `no-referrer` a browser would say `Origin: null` of the console's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Refusal(NamedTuple):
    """Why a request is not answered.

    Args:
        status: the status of HTTP.
        problem: what was found.
        remedy: what to do about it.
    """

    status: int
    problem: str
    remedy: str


class Gate:
    """Lets requests through to an application that come from a browser of this machine's user, by a
    name of this machine, and from the console's own pages.

    Args:
        app: the application.
        entrance: knows the sessions.
        hosts: what a `Host` header may say. A page of a stranger's whose name was made to stand for
            this machine says another.
        refused: makes the answer to a request that is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        entrance: Entrance,
        hosts: frozenset[str],
        refused: Callable[[Refusal], Response],
    ) -> None:
        self._app = app
        self._entrance = entrance
        self._hosts = hosts
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else self._refused(refusal)
        await app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            named = in_one_line(", ".join(hosts)) or "no name"
            return Refusal(
                421,
                f"this console does not answer to {named}",
                "Open the address that redrive web has printed.",
            )
        if scope["method"] not in (*_READS, "POST"):
            return Refusal(405, f"{scope['method']} is not understood", "Use the pages.")
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if scope["method"] == "POST" and not _is_of_own_page(scope, headers):
            return Refusal(
                403,
                "this was sent by another site's page, or by none",
                "Do it on the console's own page.",
            )
        is_open = scope["method"] in _READS and (path == ENTRY or path.startswith(_STATIC))
        if not is_open and not self._entrance.knows(_session(headers, self._entrance.cookie)):
            return Refusal(
                403,
                "this browser was not let in",
                "Open the link that redrive web has printed. It lets in one browser: start redrive "
                "web again for another one.",
            )
        return None


def _is_of_own_page(scope: Scope, headers: Headers) -> bool:
    """Whether a request was sent by a page of the console's, as the browser vouches for it."""
    site = headers.getlist("sec-fetch-site")
    if site:
        return site == ["same-origin"]
    return headers.getlist("origin") == [f"{scope['scheme']}://{headers['host']}"]


def _session(headers: Headers, name: str) -> str | None:
    cookies: SimpleCookie = SimpleCookie()
    for line in headers.getlist("cookie"):
        try:
            cookies.load(line)
        except CookieError:
            return None
    found = cookies.get(name)
    return None if found is None else found.value
