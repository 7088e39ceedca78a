"""The sessions of those who were let in."""

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

User = TypeVar("User")

LONGEST = timedelta(hours=12)
"""After which a session ends though it was used: whoever logged in yesterday may be gone."""
_MOST_FOR_EACH = 20
"""Sessions of one guest; the oldest ends when there is another."""


@dataclass(slots=True)
class _Session(Generic[User]):
    session_user: User
    begun: float
    used: float


class Sessions(Generic[User]):
    """The sessions of those who were let in. They are this process's alone: they end with it.

    Of tokens only digests are kept, so that none can be read out of the memory's image, nor found
    by the time that a comparison takes.
    """

    def __init__(self, idle_time: timedelta | None = None) -> None:
        self._idle = None if idle_time is None else idle_time.total_seconds()
        self._longest = LONGEST.total_seconds()
        self._lock = threading.Lock()
        self._sessions: dict[bytes, _Session[User]] = {}

    def begin(self, session_user: User) -> str:
        """Begins a session; returns its token, which is always a new one: a session whose token a
        stranger has planted in a browser is none."""
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
        """Whose session it is; None where there is no such session, or it has ended."""
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
        """Ends a session."""
        if token:
            with self._lock:
                self._sessions.pop(_digest(token), None)

    def end_all(self, session_user: User) -> None:
        """Ends all sessions of a guest."""
        with self._lock:
            for key in [
                key for key, one in self._sessions.items() if one.session_user == session_user
            ]:
                del self._sessions[key]

    def session_users(self) -> list[User]:
        """Those who have a session."""
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
