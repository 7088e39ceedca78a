"""Who has come in, and the desk that they sit at."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from redrive.failures.operator_rights import check_login
from redrive.pubsub.url import url_with_login
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext

_JUST_COME = 60.0
"""Seconds."""
_MOST_CHECKS = 4
"""Logins that the broker is asked for at a time: each is a connection."""


MOST_DESKS = 50
"""Of guests. Each follows the broker by two connections and as many threads, once a page was shown:
the one that has been idle for longest is left when another is needed."""


class SessionUser:
    """Somebody who has come in."""

    def __init__(self, name: str, context: ConsoleContext) -> None:
        self.name = name
        self.context = context
        self.came = time.monotonic()
        self.requests = 0
        """How many of theirs are being answered."""
        self.is_gone = False
        """Whether their desk is closed."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells guests apart."""
        return self.name, self.context.settings.url

    @property
    def is_busy(self) -> bool:
        """Whether something of theirs goes on."""
        return bool(self.requests) or self.context.is_busy


class SessionUsers:
    """Those who have come in. Each acts over a connection of their own, if they have logged in; one
    who comes twice is one."""

    def __init__(self, settings: ConsoleSettings, own: ConsoleContext) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._checks = threading.BoundedSemaphore(_MOST_CHECKS)
        self._session_users: dict[tuple[str, str], SessionUser] = {}
        self.own = SessionUser("", own)

    def logged_in(self, user: str, password: str) -> SessionUser:
        """Who logs in with a user and a password of the broker's, once that has let them in."""
        url = url_with_login(self._settings.url, user, password)
        with self._checks:
            check_login(url)
        return self._session_user(user, replace(self._settings, url=url))

    def named(self, user: str) -> SessionUser:
        """Whom a proxy has let in. They act as the console's user, and stand in the journal."""
        return self._session_user(user, replace(self._settings, operator=user))

    @contextlib.contextmanager
    def as_active(self, session_user: SessionUser) -> Iterator[SessionUser]:
        """A guest at a desk that stays open for as long as the block: the guest's own, or another
        one where that was left meanwhile."""
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
        self._session_users[session_user.key] = found  # who has come last is the last
        self._leave_idle_desks(found)
        return found

    def _context(self, settings: ConsoleSettings, name: str) -> ConsoleContext:
        return ConsoleContext.of(settings, name, self.own.context.looks.questions)

    def _leave_idle_desks(self, newest: SessionUser) -> None:
        """Closes the desks that nobody has come to for longest, where there are too many; none at
        which something goes on."""
        too_many = len(self._session_users) - MOST_DESKS
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
        # It waits for what is being ended, and whoever logs out or comes does not.
        threading.Thread(
            target=session_user.context.close, name="redrive-desk", daemon=True
        ).start()

    def forget(self, session_user: SessionUser) -> None:
        """Forgets a guest, and the password, unless a job of theirs runs."""
        with self._lock:
            if session_user is not self.own and not session_user.context.worker.running():
                self._close(session_user)

    def forget_all_but(self, present: Iterable[SessionUser]) -> None:
        """Forgets all but these, and whoever has just come and has no session yet."""
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
        """The desks of all of them."""
        with self._lock:
            found = [session_user.context for session_user in self._session_users.values()]
        yield self.own.context
        yield from found

    def _session_user(self, name: str, settings: ConsoleSettings) -> SessionUser:
        with self._lock:
            found = self._session_users.get((name, settings.url))
            return self._with_context(found or SessionUser(name, self._context(settings, name)))
