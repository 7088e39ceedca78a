"""Who may come in: whoever opens the link that was printed, once, and from then on that browser."""

import hashlib
import secrets
import threading


class Entrance:
    """A link that lets in one browser, and the sessions of those that were let in.

    Sessions are this process's alone: they end with it. Of tokens only digests are kept, and these
    are compared in constant time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: bytes | None = None
        self._sessions: set[bytes] = set()
        # Cookies do not tell ports apart: two consoles on one host must not end each other's
        # sessions.
        self.cookie = f"redrive-{secrets.token_hex(4)}"

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
            session = secrets.token_urlsafe(32)
            self._sessions.add(_digest(session))
            return session

    def knows(self, session: str | None) -> bool:
        """Whether a session was begun here."""
        if not session:
            return False
        wanted = _digest(session)
        with self._lock:
            return any(secrets.compare_digest(known, wanted) for known in self._sessions)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
