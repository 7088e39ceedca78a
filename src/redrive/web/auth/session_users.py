"""The signed-in users, and the context of each."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from redrive.failures.queue.operator_rights import check_login
from redrive.pubsub.url import url_with_login
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext

_JUST_COME = 60.0
"""Seconds for which a new user is kept without a session."""
_MOST_CHECKS = 4
"""Logins that are checked with the broker at a time: each opens a connection."""


MOST_CONTEXTS = 50
"""Most contexts of users. Each uses two connections and two threads once a page was shown; beyond
the limit, the one that has been idle longest is closed."""


class SessionUser:
    """A signed-in user."""

    def __init__(self, name: str, context: ConsoleContext) -> None:
        self.name = name
        self.context = context
        self.came = time.monotonic()
        self.requests = 0
        """Number of the user's requests in progress."""
        self.is_gone = False
        """Whether the user's context is closed."""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the user."""
        return self.name, self.context.settings.url

    @property
    def is_busy(self) -> bool:
        """Whether a request or a task of the user is in progress."""
        return bool(self.requests) or self.context.is_busy


class SessionUsers:
    """The signed-in users. Each user who logs in has their own connections; several logins of one
    user share them."""

    def __init__(self, settings: ConsoleSettings, own: ConsoleContext) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._checks = threading.BoundedSemaphore(_MOST_CHECKS)
        self._session_users: dict[tuple[str, str], SessionUser] = {}
        self.own = SessionUser("", own)

    def logged_in(self, user: str, password: str) -> SessionUser:
        """Return the user for a login, after the broker has accepted it."""
        url = url_with_login(self._settings.url, user, password)
        with self._checks:
            check_login(url)
        return self._session_user(user, replace(self._settings, url=url))

    def named(self, user: str) -> SessionUser:
        """Return the user that a proxy names. They act as the console's broker user, under their
        own name in the journal."""
        return self._session_user(user, replace(self._settings, operator=user))

    @contextlib.contextmanager
    def as_active(self, session_user: SessionUser) -> Iterator[SessionUser]:
        """Yield the user with a context that stays open during the block: their own, or a new one
        if theirs was closed."""
        with self._lock:
            if session_user is not self.own:
                session_user = self._with_context(session_user)
            session_user.requests += 1
        try:
            yield session_user
        finally:
            with self._lock:
                session_user.requests -= 1

    def _with_context(self, session_user: SessionUser) -> SessionUser:
        found = self._session_users.pop(session_user.key, session_user)
        if found.is_gone:
            found = SessionUser(
                session_user.name, self._context(session_user.context.settings, session_user.name)
            )
        self._session_users[session_user.key] = found  # keep the most recently active last
        self._close_idle_contexts(found)
        return found

    def _context(self, settings: ConsoleSettings, name: str) -> ConsoleContext:
        return ConsoleContext.of(settings, name, self.own.context.looks.questions)

    def _close_idle_contexts(self, newest: SessionUser) -> None:
        """Close the contexts that have been idle longest if there are too many; busy ones stay."""
        too_many = len(self._session_users) - MOST_CONTEXTS
        if too_many > 0:
            others = (one for one in self._session_users.values() if one is not newest)
            for session_user in list(islice((one for one in others if not one.is_busy), too_many)):
                self._close(session_user)

    def _close(self, session_user: SessionUser) -> None:
        if session_user.is_gone:
            return
        session_user.is_gone = True
        self._session_users = {
            key: one for key, one in self._session_users.items() if one is not session_user
        }
        # Closing waits for running tasks, and a logout or login must not.
        threading.Thread(
            target=session_user.context.close, name="redrive-close-context", daemon=True
        ).start()

    def forget(self, session_user: SessionUser) -> None:
        """Drop a user and their password, unless one of their jobs is running."""
        with self._lock:
            if session_user is not self.own and not session_user.context.worker.running():
                self._close(session_user)

    def forget_all_but(self, present: Iterable[SessionUser]) -> None:
        """Drop all other users, except those who just signed in and have no session yet."""
        known = {id(session_user) for session_user in present}
        with self._lock:
            absent = [
                session_user
                for session_user in self._session_users.values()
                if id(session_user) not in known
            ]
        for session_user in absent:
            if time.monotonic() - session_user.came > _JUST_COME:
                self.forget(session_user)

    def contexts(self) -> Iterator[ConsoleContext]:
        """Yield the contexts of all users."""
        with self._lock:
            found = [session_user.context for session_user in self._session_users.values()]
        yield self.own.context
        yield from found

    def _session_user(self, name: str, settings: ConsoleSettings) -> SessionUser:
        with self._lock:
            found = self._session_users.get((name, settings.url))
            return self._with_context(found or SessionUser(name, self._context(settings, name)))
