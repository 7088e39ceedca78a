"""The link that `redrive web` prints."""

import hashlib
import secrets
import threading
from typing import Generic

from redrive.web.auth.sessions import Sessions, User


class LoginLink(Generic[User]):
    """A link that lets one browser in, once."""

    def __init__(self, sessions: Sessions[User], session_user: User) -> None:
        self._lock = threading.Lock()
        self._link: bytes | None = None
        self._sessions = sessions
        self._session_user = session_user

    def new_link(self) -> str:
        """Return the token of a new link, which replaces the previous one."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._link = _digest(token)
        return token

    def exchange(self, token: str) -> str | None:
        """Exchange a link's token for a session; return None if it is wrong or used."""
        with self._lock:
            if self._link is None or not secrets.compare_digest(self._link, _digest(token)):
                return None
            self._link = None
        return self._sessions.begin(self._session_user)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
