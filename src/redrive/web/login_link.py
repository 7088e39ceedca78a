"""The link that lets in whoever opens it, once, and from then on that browser."""

import hashlib
import secrets
import threading
from typing import Generic

from redrive.web.sessions import Sessions, SessionUser


class LoginLink(Generic[SessionUser]):
    """A link that lets in one browser.

    Args:
        sessions: the sessions of those who were let in.
        session_user: whom it lets in.
    """

    def __init__(self, sessions: Sessions[SessionUser], session_user: SessionUser) -> None:
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
