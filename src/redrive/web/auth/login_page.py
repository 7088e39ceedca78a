"""The page where people log in with a RabbitMQ user."""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.web.auth.middleware import LOGIN, SESSION, SESSION_USER, AuthConfig
from redrive.web.auth.session_users import SessionUser
from redrive.web.context import local_path
from redrive.web.html import page
from redrive.web.page_request import PageRequest

_FREE = {True: 5, False: 30}
"""Failed attempts without a delay: per user and address (True), and per address (False)."""
_LONGEST_WAIT = 30.0
_FORGOTTEN_AFTER = 900.0
_MOST = 10_000


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    last: float = 0.0
    again_at: float = 0.0


class LoginThrottle:
    """Counts of failed logins, by address, and by address and user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tries: OrderedDict[tuple[str, str | None], _Tries] = OrderedDict()

    def wait(self, address: str, user: str) -> float:
        """Return the seconds until the next attempt is allowed; 0 for now."""
        now = time.monotonic()
        with self._lock:
            known = [self._tries.get(key) for key in _keys(address, user)]
            return max([0.0, *(one.again_at - now for one in known if one is not None)])

    def failed(self, address: str, user: str) -> None:
        """Record a failed attempt."""
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
        """Forget this user's failed attempts from this address. The address's own count stays:
        otherwise one valid account would reset it for guesses at others."""
        with self._lock:
            self._tries.pop((address, user), None)


def _keys(address: str, user: str) -> tuple[tuple[str, str | None], ...]:
    return ((address, user), (address, None))


_LONGEST = 1024
_DEFAULT_USER = "guest"


class LoginForm:
    """The login form, which lets in the users that the broker accepts."""

    def __init__(self, auth: AuthConfig, *, is_local: bool) -> None:
        self._auth = auth
        self._is_local = is_local
        self._pace = LoginThrottle()

    def show(self, page_request: PageRequest, problem: str = "", status: int = 200) -> Response:
        """Show the login page."""
        values = {
            "link": page_request.link,
            "next": page_request.text("next"),
            "user": page_request.text("user"),
            "problem": problem,
        }
        return page("login", values, status)

    def log_in(self, request: Request, page_request: PageRequest) -> Response:
        """Check the login with the broker, and start a session."""
        user, password = page_request.text("user"), page_request.values.get("password", "")
        address = str((request.scope.get("client") or ("", 0))[0])
        wait = self._pace.wait(address, user)
        if wait > 0:
            seconds = math.ceil(wait)
            problem = f"Too many attempts: wait {seconds} s, then try again."
            answer = self.show(page_request, problem, 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        if user == _DEFAULT_USER and not self._is_local:
            # To the broker, the connection would come from this machine.
            problem = "The user guest may log in only on the broker's machine."
            return self.show(page_request, problem, 403)
        try:
            session_user = self._session_user(user, password)
        except (PermissionDenied, ConfigurationError):
            self._pace.failed(address, user)
            # Do not reveal whether the user exists or has access to this virtual host.
            refused = "The broker did not accept this user and password."
            return self.show(page_request, refused, 403)
        except BrokerUnavailable:
            return self.show(page_request, "The broker is not responding. Try again.", 503)
        self._pace.succeeded(address, user)
        # End any session that this browser had, even one that somebody else planted.
        self._auth.sessions.end(request.scope.get(SESSION))
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}{local_path(page_request.text('next') or '/')}", 303)
        set_session(request, answer, self._auth.cookie, self._auth.sessions.begin(session_user))
        return answer

    def log_out(self, request: Request) -> Response:
        """End the session, and forget the password after the user's last one."""
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
        # SASL separates user and password by a NUL: one inside them would name another user.
        if not is_one:
            raise PermissionDenied("the user or the password is missing or invalid", "Give both.")
        return self._auth.session_users.logged_in(user, password)


def set_session(request: Request, answer: Response, cookie: str, token: str) -> None:
    """Set the session cookie in a response."""
    root = str(request.scope.get("root_path", ""))
    answer.set_cookie(
        cookie,
        token,
        path=f"{root}/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
