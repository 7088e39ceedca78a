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
from redrive.web.desk import Desk

_JUST_COME = 60.0
"""Seconds."""
_MOST_CHECKS = 4
"""Logins that the broker is asked for at a time: each is a connection."""


MOST_DESKS = 50
"""Of guests. Each follows the broker by two connections and as many threads, once a page was shown:
the one that has been idle for longest is left when another is needed."""


class Guest:
    """Somebody who has come in.

    Args:
        name: the user; empty for who has come by the link.
        desk: what their pages work with.
    """

    def __init__(self, name: str, desk: Desk) -> None:
        self.name = name
        self.desk = desk
        self.came = time.monotonic()
        self.requests = 0
        """How many of theirs are being answered."""
        self.is_gone = False
        """Whether their desk is closed."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells guests apart."""
        return self.name, self.desk.settings.url

    @property
    def is_busy(self) -> bool:
        """Whether something of theirs goes on."""
        return bool(self.requests) or self.desk.is_busy


class Guests:
    """Those who have come in. Each acts over a connection of their own, if they have logged in; one
    who comes twice is one.

    Args:
        settings: what the console was told.
        own: the desk of whoever has started the console.
    """

    def __init__(self, settings: ConsoleSettings, own: Desk) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._checks = threading.BoundedSemaphore(_MOST_CHECKS)
        self._guests: dict[tuple[str, str], Guest] = {}
        self.own = Guest("", own)

    def logged_in(self, user: str, password: str) -> Guest:
        """Who logs in with a user and a password of the broker's, once that has let them in.

        Raises:
            PermissionDenied: it does not.
            BrokerUnavailable: it does not answer.
        """
        url = url_with_login(self._settings.url, user, password)
        with self._checks:
            check_login(url)
        return self._guest(user, replace(self._settings, url=url))

    def named(self, user: str) -> Guest:
        """Whom a proxy has let in. They act as the console's user, and stand in the journal."""
        return self._guest(user, replace(self._settings, operator=user))

    @contextlib.contextmanager
    def seated(self, guest: Guest) -> Iterator[Guest]:
        """A guest at a desk that stays open for as long as the block: the guest's own, or another
        one where that was left meanwhile."""
        with self._lock:
            if guest is not self.own:
                guest = self._at_a_desk(guest)
            guest.requests += 1
        try:
            yield guest
        finally:
            with self._lock:
                guest.requests -= 1

    def _at_a_desk(self, guest: Guest) -> Guest:
        found = self._guests.pop(guest.key, guest)
        if found.is_gone:
            found = Guest(guest.name, self._desk(guest.desk.settings, guest.name))
        self._guests[guest.key] = found  # who has come last is the last
        self._leave_idle_desks(found)
        return found

    def _desk(self, settings: ConsoleSettings, name: str) -> Desk:
        return Desk.of(settings, name, self.own.desk.recollection.questions)

    def _leave_idle_desks(self, newest: Guest) -> None:
        """Closes the desks that nobody has come to for longest, where there are too many; none at
        which something goes on."""
        too_many = len(self._guests) - MOST_DESKS
        if too_many > 0:
            others = (one for one in self._guests.values() if one is not newest)
            for guest in list(islice((one for one in others if not one.is_busy), too_many)):
                self._close(guest)

    def _close(self, guest: Guest) -> None:
        if guest.is_gone:
            return
        guest.is_gone = True
        self._guests = {key: one for key, one in self._guests.items() if one is not guest}
        # It waits for what is being ended, and whoever logs out or comes does not.
        threading.Thread(target=guest.desk.close, name="redrive-desk", daemon=True).start()

    def forget(self, guest: Guest) -> None:
        """Forgets a guest, and the password, unless a job of theirs runs."""
        with self._lock:
            if guest is not self.own and not guest.desk.worker.running():
                self._close(guest)

    def forget_all_but(self, present: Iterable[Guest]) -> None:
        """Forgets all but these, and whoever has just come and has no session yet."""
        known = {id(guest) for guest in present}
        with self._lock:
            absent = [guest for guest in self._guests.values() if id(guest) not in known]
        for guest in absent:
            if time.monotonic() - guest.came > _JUST_COME:
                self.forget(guest)

    def desks(self) -> Iterator[Desk]:
        """The desks of all of them."""
        with self._lock:
            found = [guest.desk for guest in self._guests.values()]
        yield self.own.desk
        yield from found

    def _guest(self, name: str, settings: ConsoleSettings) -> Guest:
        with self._lock:
            found = self._guests.get((name, settings.url))
            return self._at_a_desk(found or Guest(name, self._desk(settings, name)))
