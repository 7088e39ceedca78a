"""Checks on every request before a page sees it, and security headers on every response."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.redaction import in_one_line
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.auth.csrf import is_navigation, is_of_own_page
from redrive.web.auth.proxy_headers import UntrustedHeader, believed
from redrive.web.auth.session_users import SessionUser, SessionUsers
from redrive.web.auth.sessions import Sessions

ENTRY, LOGIN, LOGOUT = "/open", "/login", "/logout"
PROBES = frozenset({"/healthz", "/readyz"})
SESSION_USER, SESSION = "redrive.session_user", "redrive.session"
"""Keys of the ASGI scope: the user who sent the request, and the session's token."""
_PROBE_SECONDS = 5.0
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
"""The content security policy: only the console's own files, and no scripts that create markup."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With `no-referrer`, a browser sends `Origin: null` for the console's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


_ONLY_ENCRYPTED = {"strict-transport-security": "max-age=31536000"}


class Refusal(NamedTuple):
    """Why a request is refused.

    Args:
        status: the HTTP status.
        problem: what is wrong.
        remedy: what to do about it.
    """

    status: int
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """How requests are authenticated.

    Args:
        access: how people sign in, and from where.
        hosts: the accepted `Host` headers. This stops DNS rebinding: a foreign page whose name
            resolves to this machine sends another host.
        sessions: the sessions of signed-in users.
        session_users: the signed-in users, including those that a proxy names.
        cookie: the name of the session cookie.
    """

    access: AccessConfig
    hosts: frozenset[str]
    sessions: Sessions[SessionUser]
    session_users: SessionUsers
    cookie: str


class AuthMiddleware:
    """ASGI middleware that lets only requests through which come from a signed-in user, name an
    accepted host and, if they change something, come from the console's own pages."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        auth: AuthConfig,
        refused: Callable[[Refusal], Response],
        is_ready: Callable[[], bool],
    ) -> None:
        self._app = app
        self._auth = auth
        self._refused = refused
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))
        if path in PROBES:
            answer = await self._probed(scope, path)
            await answer(scope, receive, send)
            return
        try:
            seen, user = believed(scope, self._auth.access)
            app = self._app_for(seen, path, user)
        except UntrustedHeader as error:
            remedy = "Use the proxy, and configure it to set this header itself."
            seen, app = scope, self._refused(Refusal(403, str(error), remedy))
        await app(seen, receive, self._guarded(seen, send))

    def _guarded(self, scope: Scope, send: Send) -> Send:
        """Add the security headers to a response, and end a streaming response when its session
        ends."""
        token, has_ended = scope.get(SESSION), False

        async def guarded(message: Message) -> None:
            nonlocal has_ended
            if has_ended:
                return
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
                if self._auth.access.is_encrypted and not _is_this_machine(scope):
                    MutableHeaders(scope=message).update(_ONLY_ENCRYPTED)
            elif token and message.get("more_body"):
                has_ended = self._auth.sessions.session_user(token, is_used=False) is None
                if has_ended:
                    message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        return guarded

    async def _probed(self, scope: Scope, path: str) -> Response:
        """Answer a health probe. Probes use an IP address as the host and have no session, so they
        learn nothing else."""
        if scope["method"] not in _READS:
            return PlainTextResponse("", 405, _HEADERS)
        if path == "/readyz" and not self._is_ready():
            return PlainTextResponse("ending", 503, _HEADERS)
        try:
            # Pages are rendered in this thread pool: if it is exhausted, no page is served.
            await asyncio.wait_for(run_in_threadpool(lambda: None), _PROBE_SECONDS)
        except TimeoutError:
            return PlainTextResponse("busy", 503, _HEADERS)
        return PlainTextResponse("ok", 200, _HEADERS)

    def _app_for(self, scope: Scope, path: str, user: str) -> ASGIApp:
        headers = Headers(scope=scope)
        refusal = self._unacceptable(scope, headers)
        if refusal is not None:
            return self._refused(refusal)
        is_read = scope["method"] in _READS
        token = session_of(headers, self._auth.cookie)
        session_user = self._session_user(scope, headers, token, user)
        if session_user is not None:
            scope[SESSION_USER] = session_user
            if self._auth.access.login is not Login.PROXY:
                scope[SESSION] = token
            return self._app
        has_login = self._auth.access.login is Login.BROKER
        is_open = (
            path.startswith(_STATIC)
            or (path == ENTRY and self._auth.access.login is Login.LINK)
            or (path == LOGIN and has_login)
        )
        if is_open and (is_read or path == LOGIN):
            return self._app
        if has_login and is_read and is_navigation(headers):
            query = scope.get("query_string", b"").decode("latin-1")
            request = urlencode({"next": f"{path}{'?' if query else ''}{query}"})
            root = str(scope.get("root_path", ""))
            return RedirectResponse(f"{root}{LOGIN}{'' if path == '/' else f'?{request}'}", 303)
        return self._refused(self._not_let_in())

    def _session_user(
        self, scope: Scope, headers: Headers, token: str | None, user: str
    ) -> SessionUser | None:
        """Return who sent a request; None if they are not signed in."""
        if self._auth.access.login is Login.PROXY:
            return self._auth.session_users.named(user) if user else None
        # Polling by an open page must not keep a session alive after its user has left.
        is_used = scope["method"] == "POST" or is_navigation(headers)
        return self._auth.sessions.session_user(token, is_used=is_used)

    def _unacceptable(self, scope: Scope, headers: Headers) -> Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._auth.hosts:
            named = in_one_line(", ".join(hosts)) or "a request without a host"
            return Refusal(
                421,
                f"this console does not answer to {named}",
                (
                    "Open the address that redrive web printed, or start it with --host "
                    "and this name."
                ),
            )
        if scope["method"] not in (*_READS, "POST"):
            return Refusal(
                405,
                f"{scope['method']} is not supported",
                "Use the console's pages.",
            )
        if scope["method"] == "POST" and not is_of_own_page(scope, headers):
            return Refusal(
                403,
                "this request did not come from the console's own page",
                "Repeat it on the console's own page.",
            )
        return None

    def _not_let_in(self) -> Refusal:
        match self._auth.access.login:
            case Login.LINK:
                return Refusal(
                    403,
                    "this browser is not signed in",
                    (
                        "Open the link that redrive web printed. It works for one browser: "
                        "restart redrive web for another one."
                    ),
                )
            case Login.BROKER:
                return Refusal(401, "you are not logged in, or your session has ended", "Log in.")
            case Login.PROXY:
                return Refusal(
                    403,
                    "the proxy did not name a user",
                    "Log in through the proxy.",
                )


def _is_this_machine(scope: Scope) -> bool:
    """Return whether a request names this machine by a loopback host, which other local services
    share."""
    host = Headers(scope=scope).get("host", "").rpartition(":")[0]
    return host in ("localhost", "127.0.0.1", "[::1]")


def session_of(headers: Headers, name: str) -> str | None:
    """Return the session token from a request's cookies."""
    cookies: SimpleCookie = SimpleCookie()
    for line in headers.getlist("cookie"):
        try:
            cookies.load(line)
        except CookieError:
            return None
    found = cookies.get(name)
    return None if found is None else found.value
