"""The sessions of signed-in users."""

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

User = TypeVar("User")

LONGEST = timedelta(hours=12)
"""A session ends after this time even if it is used: its user may have left the browser."""
_MOST_FOR_EACH = 20
"""Most sessions of one user; a further one ends the oldest."""


@dataclass(slots=True)
class _Session(Generic[User]):
    session_user: User
    begun: float
    used: float


class Sessions(Generic[User]):
    """The sessions of signed-in users. They are kept in memory and end with the process.

    Only digests of tokens are kept, so that a memory dump reveals none, and comparison times leak
    nothing.
    """

    def __init__(self, idle_time: timedelta | None = None) -> None:
        self._idle = None if idle_time is None else idle_time.total_seconds()
        self._longest = LONGEST.total_seconds()
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Session[User]] = {}

    def begin(self, session_user: User) -> str:
        """Start a session, and return its token. It is always new, so that a token that somebody
        planted in a browser is never valid."""
        token = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            self._drop_ended(now)
            own = [key for key, one in self._sessions.items() if one.session_user == session_user]
            for key in own[: max(0, len(own) - _MOST_FOR_EACH + 1)]:
                del self._sessions[key]
            self._sessions[_digest(token)] = _Session(session_user, now, now)
        return token

    def session_user(self, token: str | None, *, is_used: bool = True) -> User | None:
        """Return the user of a session; None if it does not exist or has ended."""
        if not token:
            return None
        now = time.monotonic()
        with self._lock:
            session = self._sessions.get(_digest(token))
            if session is None or self._has_ended(session, now):
                return None
            if is_used:
                session.used = now
            return session.session_user

    def end(self, token: str | None) -> None:
        """End a session."""
        if token:
            with self._lock:
                self._sessions.pop(_digest(token), None)

    def end_all(self, session_user: User) -> None:
        """End all sessions of a user."""
        with self._lock:
            for key in [
                key for key, one in self._sessions.items() if one.session_user == session_user
            ]:
                del self._sessions[key]

    def session_users(self) -> list[User]:
        """Return the users who have a session."""
        with self._lock:
            self._drop_ended(time.monotonic())
            return [session.session_user for session in self._sessions.values()]

    def _has_ended(self, session: _Session[User], now: float) -> bool:
        if self._idle is None:
            return False
        return now - session.used > self._idle or now - session.begun > self._longest

    def _drop_ended(self, now: float) -> None:
        for key in [key for key, one in self._sessions.items() if self._has_ended(one, now)]:
            del self._sessions[key]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
