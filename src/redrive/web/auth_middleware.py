"""What every request passes before a page sees it, and what every answer says to the browser."""

import asyncio
import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Generic, NamedTuple
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.redaction import in_one_line
from redrive.web.access_config import AccessConfig, Login
from redrive.web.session_users import SessionUser, SessionUsers
from redrive.web.sessions import Sessions, User


class LoginLink(Generic[User]):
    """A link that lets in one browser."""

    def __init__(self, sessions: Sessions[User], session_user: User) -> None:
        self._lock = threading.Lock()
        self._link: bytes | None = None
        self._sessions = sessions
        self._session_user = session_user

    def new_link(self) -> str:
        """The token of a new link, which takes the place of the former one."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._link = _digest(token)
        return token

    def exchange(self, token: str) -> str | None:
        """A session for the token of the link; None where it is another, or was used before."""
        with self._lock:
            if self._link is None or not secrets.compare_digest(self._link, _digest(token)):
                return None
            self._link = None
        return self._sessions.begin(self._session_user)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_SCHEMES = frozenset({"http", "https"})
_LONGEST_NAME = 255


class UntrustedHeader(Exception):
    """What was said can't be believed; the text says why."""


def believed(scope: Scope, access: AccessConfig) -> tuple[Scope, str]:
    """The request as it came to the proxy, and who the proxy says it is of; empty where nobody says
    that. What somebody else than a trusted proxy says is not believed."""
    headers = Headers(scope=scope)
    peer = str((scope.get("client") or ("", 0))[0])
    if not access.is_proxy(peer):
        if access.trust_header and access.trust_header in headers:
            raise UntrustedHeader("who you are is believed only of the proxy in front")
        return scope, ""
    seen = dict(scope)
    scheme = _one(headers, "x-forwarded-proto")
    if scheme:
        if scheme.lower() not in _SCHEMES:
            raise UntrustedHeader(f"X-Forwarded-Proto is {in_one_line(scheme)[:40]}")
        seen["scheme"] = scheme.lower()
    host = _one(headers, "x-forwarded-host")
    if host:
        others = [one for one in scope["headers"] if one[0] != b"host"]
        seen["headers"] = [*others, (b"host", host.encode("latin-1"))]
    seen["client"] = (_client(headers, access) or peer, 0)
    return seen, _user(headers, access)


def _client(headers: Headers, access: AccessConfig) -> str:
    """Whom the last proxy that is trusted has seen: what stands before that may be made up."""
    said = [
        address.strip()
        for line in headers.getlist("x-forwarded-for")
        for address in line.split(",")
        if address.strip()
    ]
    while said and access.is_proxy(said[-1]):
        said.pop()
    return said[-1][:60] if said else ""


def _user(headers: Headers, access: AccessConfig) -> str:
    if not access.trust_header:
        return ""
    # A header holds bytes; whoever puts a name with letters of other alphabets in one sends UTF-8.
    raw = _one(headers, access.trust_header)
    try:
        name = raw.encode("latin-1").decode("utf-8").strip()
    except UnicodeError as error:
        raise UntrustedHeader(f"{access.trust_header} is no text") from error
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UntrustedHeader(f"{access.trust_header} is no name")
    return name


def _one(headers: Headers, name: str) -> str:
    """A header that may be there once; empty where it is not."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise UntrustedHeader(f"{name} came {len(found)} times")
    return found[0].strip() if found else ""


ENTRY, LOGIN, LOGOUT = "/open", "/login", "/logout"
PROBES = frozenset({"/healthz", "/readyz"})
SESSION_USER, SESSION = "redrive.guest", "redrive.session"
"""What the gate notes of a request for the console: who has sent it, and the session's token."""
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


_ONLY_ENCRYPTED = {"strict-transport-security": "max-age=31536000"}


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


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """By what people come in.

    Args:
        access: how, and from where.
        hosts: what a `Host` header may say. A page of a stranger's whose name was made to stand for
            this machine says another.
        sessions: the sessions of those who were let in.
        session_users: those whom a proxy has let in.
        cookie: the name of the session's cookie.
    """

    access: AccessConfig
    hosts: frozenset[str]
    sessions: Sessions[SessionUser]
    session_users: SessionUsers
    cookie: str


class AuthMiddleware:
    """Lets requests through to an application that come from somebody who was let in, by a name of
    the console's, and from its own pages."""

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
            remedy = "Come by the proxy, and have it set this header itself."
            seen, app = scope, self._refused(Refusal(403, str(error), remedy))
        await app(seen, receive, self._guarded(seen, send))

    def _guarded(self, scope: Scope, send: Send) -> Send:
        """Sends answers with what the browser may not do in them. An answer that goes on and on
        ends with the session."""
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
        """What whoever watches over the process is told: nothing but whether it is well. They ask
        by an address, and have no session."""
        if scope["method"] not in _READS:
            return PlainTextResponse("", 405, _HEADERS)
        if path == "/readyz" and not self._is_ready():
            return PlainTextResponse("ending", 503, _HEADERS)
        try:
            # Where pages are made: if all threads are taken, nobody gets any.
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
        if has_login and is_read and _is_navigation(headers):
            query = scope.get("query_string", b"").decode("latin-1")
            request = urlencode({"next": f"{path}{'?' if query else ''}{query}"})
            root = str(scope.get("root_path", ""))
            return RedirectResponse(f"{root}{LOGIN}{'' if path == '/' else f'?{request}'}", 303)
        return self._refused(self._not_let_in())

    def _session_user(
        self, scope: Scope, headers: Headers, token: str | None, user: str
    ) -> SessionUser | None:
        """Who has sent a request; None for a stranger."""
        if self._auth.access.login is Login.PROXY:
            return self._auth.session_users.named(user) if user else None
        # A page that asks by itself does not keep a session alive of which everybody has left.
        is_used = scope["method"] == "POST" or _is_navigation(headers)
        return self._auth.sessions.session_user(token, is_used=is_used)

    def _unacceptable(self, scope: Scope, headers: Headers) -> Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._auth.hosts:
            named = in_one_line(", ".join(hosts)) or "no name"
            return Refusal(
                421,
                f"this console does not answer to {named}",
                (
                    "Open the address that redrive web has printed, or start it with --host "
                    "and this name."
                ),
            )
        if scope["method"] not in (*_READS, "POST"):
            return Refusal(
                405,
                f"{scope['method']} is not understood",
                "Use the pages.",
            )
        if scope["method"] == "POST" and not _is_of_own_page(scope, headers):
            return Refusal(
                403,
                "this was sent by another site's page, or by none",
                "Do it on the console's own page.",
            )
        return None

    def _not_let_in(self) -> Refusal:
        match self._auth.access.login:
            case Login.LINK:
                return Refusal(
                    403,
                    "this browser was not let in",
                    (
                        "Open the link that redrive web has printed. It lets in one browser: "
                        "start redrive web again for another one."
                    ),
                )
            case Login.BROKER:
                return Refusal(401, "nobody is logged in, or no longer", "Log in again.")
            case Login.PROXY:
                return Refusal(
                    403,
                    "nobody says who you are",
                    "Come by the proxy that you log in to.",
                )


def _is_this_machine(scope: Scope) -> bool:
    """Whether a browser asks for this machine by the name that all its services have."""
    host = Headers(scope=scope).get("host", "").rpartition(":")[0]
    return host in ("localhost", "127.0.0.1", "[::1]")


def _is_navigation(headers: Headers) -> bool:
    """Whether a browser shows what comes, and not a script; so, too, where it does not say."""
    return headers.get("sec-fetch-mode", "navigate") == "navigate"


def _is_of_own_page(scope: Scope, headers: Headers) -> bool:
    """Whether a request was sent by a page of the console's, as the browser vouches for it."""
    site = headers.getlist("sec-fetch-site")
    if site:
        return site == ["same-origin"]
    return headers.getlist("origin") == [f"{scope['scheme']}://{headers['host']}"]


def session_of(headers: Headers, name: str) -> str | None:
    """The token of the session that a request has."""
    cookies: SimpleCookie = SimpleCookie()
    for line in headers.getlist("cookie"):
        try:
            cookies.load(line)
        except CookieError:
            return None
    found = cookies.get(name)
    return None if found is None else found.value
