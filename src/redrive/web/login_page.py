"""The page where people log in with a user of RabbitMQ's."""

import math

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.web.auth_middleware import LOGIN, SESSION, SESSION_USER, AuthConfig
from redrive.web.context import local_path
from redrive.web.html import page
from redrive.web.login_throttle import LoginThrottle
from redrive.web.page_request import PageRequest
from redrive.web.session_users import SessionUser

_LONGEST = 1024
_DEFAULT_USER = "guest"


class LoginForm:
    """Lets people in whom the broker lets in.

    Args:
        auth: by what they come in.
        is_local: whether only this machine reaches the console.
    """

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
