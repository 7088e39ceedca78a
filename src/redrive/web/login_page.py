"""The page where people log in with a user of RabbitMQ's."""

import math

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.web.asked import Asked
from redrive.web.desk import local_path
from redrive.web.gate import GUEST, LOGIN, SESSION, Doors
from redrive.web.guest import Guest
from redrive.web.html import page
from redrive.web.login_pace import LoginPace

_LONGEST = 1024
_DEFAULT_USER = "guest"


class LoginDesk:
    """Lets people in whom the broker lets in.

    Args:
        doors: by what they come in.
        is_local: whether only this machine reaches the console.
    """

    def __init__(self, doors: Doors, *, is_local: bool) -> None:
        self._doors = doors
        self._is_local = is_local
        self._pace = LoginPace()

    def show(self, asked: Asked, problem: str = "", status: int = 200) -> Response:
        """The page."""
        values = {
            "link": asked.link,
            "next": asked.text("next"),
            "user": asked.text("user"),
            "problem": problem,
        }
        return page("login", values, status)

    def log_in(self, request: Request, asked: Asked) -> Response:
        """Asks the broker, and begins a session."""
        user, password = asked.text("user"), asked.values.get("password", "")
        address = str((request.scope.get("client") or ("", 0))[0])
        wait = self._pace.wait(address, user)
        if wait > 0:
            seconds = math.ceil(wait)
            problem = f"Too many tries: wait {seconds} s, and try again."
            answer = self.show(asked, problem, 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        if user == _DEFAULT_USER and not self._is_local:
            # The broker would take it for somebody on this machine.
            problem = "The user guest may log in on the broker's machine only."
            return self.show(asked, problem, 403)
        try:
            guest = self._guest(user, password)
        except (PermissionDenied, ConfigurationError):
            self._pace.failed(address, user)
            # Whether there is such a user is not told, nor whether it has this virtual host.
            refused = "The broker lets nobody in with this user and password."
            return self.show(asked, refused, 403)
        except BrokerUnavailable:
            return self.show(asked, "The broker does not answer: try again.", 503)
        self._pace.succeeded(address, user)
        # A session that this browser has had, whoever gave it to it, ends here.
        self._doors.sessions.end(request.scope.get(SESSION))
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}{local_path(asked.text('next') or '/')}", 303)
        set_session(request, answer, self._doors.cookie, self._doors.sessions.begin(guest))
        return answer

    def log_out(self, request: Request) -> Response:
        """Ends the session, and forgets the password."""
        self._doors.sessions.end(request.scope.get(SESSION))
        guest = request.scope[GUEST]
        if guest not in self._doors.sessions.guests():
            self._doors.guests.forget(guest)
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}{LOGIN}", 303)
        answer.delete_cookie(self._doors.cookie, path=f"{root}/", httponly=True, samesite="strict")
        return answer

    def _guest(self, user: str, password: str) -> Guest:
        is_one = all(0 < len(text) <= _LONGEST and "\0" not in text for text in (user, password))
        # SASL puts a zero between user and password: one in them would be another user.
        if not is_one:
            raise PermissionDenied("no user or no password", "Give both.")
        return self._doors.guests.logged_in(user, password)


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
