"""The page where people log in with a user of RabbitMQ's."""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.web.auth_middleware import LOGIN, SESSION, SESSION_USER, AuthConfig
from redrive.web.context import local_path
from redrive.web.html import page
from redrive.web.page_request import PageRequest
from redrive.web.session_users import SessionUser

_FREE = {True: 5, False: 30}
"""How many tries fail before one waits: of one user from one address, and of all users from it."""
_LONGEST_WAIT = 30.0
_FORGOTTEN_AFTER = 900.0
_MOST = 10_000


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    last: float = 0.0
    again_at: float = 0.0


class LoginThrottle:
    """Counts failed logins, by address, and by address and user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tries: OrderedDict[tuple[str, str | None], _Tries] = OrderedDict()

    def wait(self, address: str, user: str) -> float:
        """Seconds until this may be tried; 0 for now."""
        now = time.monotonic()
        with self._lock:
            known = [self._tries.get(key) for key in _keys(address, user)]
            return max([0.0, *(one.again_at - now for one in known if one is not None)])

    def failed(self, address: str, user: str) -> None:
        """Notes a try that failed."""
        now = time.monotonic()
        with self._lock:
            for key in _keys(address, user):
                tries = self._tries.setdefault(key, _Tries())
                if now - tries.last > _FORGOTTEN_AFTER:
                    tries.failed = 0
                tries.failed += 1
                tries.last = now
                over = tries.failed - _FREE[key[1] is not None]
                if over >= 0:
                    tries.again_at = now + min(_LONGEST_WAIT, float(2 ** min(over, 10)))
                self._tries.move_to_end(key)
            while len(self._tries) > _MOST:
                self._tries.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        """Forgets what this user has tried from there. What was tried of others stays: else one
        account would buy tries at all."""
        with self._lock:
            self._tries.pop((address, user), None)


def _keys(address: str, user: str) -> tuple[tuple[str, str | None], ...]:
    return ((address, user), (address, None))


_LONGEST = 1024
_DEFAULT_USER = "guest"


class LoginForm:
    """Lets people in whom the broker lets in."""

    def __init__(self, auth: AuthConfig, *, is_local: bool) -> None:
        self._auth = auth
        self._is_local = is_local
        self._pace = LoginThrottle()

    def show(self, page_request: PageRequest, problem: str = "", status: int = 200) -> Response:
        """The page."""
        values = {
            "link": page_request.link,
            "next": page_request.text("next"),
            "user": page_request.text("user"),
            "problem": problem,
        }
        return page("login", values, status)

    def log_in(self, request: Request, page_request: PageRequest) -> Response:
        """Asks the broker, and begins a session."""
        user, password = page_request.text("user"), page_request.values.get("password", "")
        address = str((request.scope.get("client") or ("", 0))[0])
        wait = self._pace.wait(address, user)
        if wait > 0:
            seconds = math.ceil(wait)
            problem = f"Too many tries: wait {seconds} s, and try again."
            answer = self.show(page_request, problem, 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        if user == _DEFAULT_USER and not self._is_local:
            # The broker would take it for somebody on this machine.
            problem = "The user guest may log in on the broker's machine only."
            return self.show(page_request, problem, 403)
        try:
            session_user = self._session_user(user, password)
        except (PermissionDenied, ConfigurationError):
            self._pace.failed(address, user)
            # Whether there is such a user is not told, nor whether it has this virtual host.
            refused = "The broker lets nobody in with this user and password."
            return self.show(page_request, refused, 403)
        except BrokerUnavailable:
            return self.show(page_request, "The broker does not answer: try again.", 503)
        self._pace.succeeded(address, user)
        # A session that this browser has had, whoever gave it to it, ends here.
        self._auth.sessions.end(request.scope.get(SESSION))
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}{local_path(page_request.text('next') or '/')}", 303)
        set_session(request, answer, self._auth.cookie, self._auth.sessions.begin(session_user))
        return answer

    def log_out(self, request: Request) -> Response:
        """Ends the session, and forgets the password."""
        self._auth.sessions.end(request.scope.get(SESSION))
        session_user = request.scope[SESSION_USER]
        if session_user not in self._auth.sessions.session_users():
            self._auth.session_users.forget(session_user)
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}{LOGIN}", 303)
        answer.delete_cookie(self._auth.cookie, path=f"{root}/", httponly=True, samesite="strict")
        return answer

    def _session_user(self, user: str, password: str) -> SessionUser:
        is_one = all(0 < len(text) <= _LONGEST and "\0" not in text for text in (user, password))
        # SASL puts a zero between user and password: one in them would be another user.
        if not is_one:
            raise PermissionDenied("no user or no password", "Give both.")
        return self._auth.session_users.logged_in(user, password)


def set_session(request: Request, answer: Response, cookie: str, token: str) -> None:
    """Has a browser keep the token of its session."""
    root = str(request.scope.get("root_path", ""))
    answer.set_cookie(
        cookie,
        token,
        path=f"{root}/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
