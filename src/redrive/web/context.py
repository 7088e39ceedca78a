"""The services that a console's pages use."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from redrive.failures.queue.operator_rights import OperatorRights
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import Look
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.auth.permissions import Permissions
from redrive.web.chart import trend
from redrive.web.console_settings import ConsoleSettings
from redrive.web.filter_bar import where_of
from redrive.web.health import Health
from redrive.web.html import cut, page
from redrive.web.job_worker import JobWorker
from redrive.web.journal_cache import JournalCache
from redrive.web.look_cache import LookCache, RunningLook
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.questions import Questions
from redrive.web.queue_follower import LiveState, QueueFollower
from redrive.web.queue_states import QueueState, QueueStates
from redrive.web.store import Store

_FRESH = 0.25
_OF_ITS_COST = 2.0
"""An answer is reused for this many times as long as it took to compute."""


class _SharedAnswer(NamedTuple):
    """An answer, and how long it is valid.

    Args:
        values: the answer.
        until: when it expires, by the monotonic clock.
    """

    values: dict[str, object]
    until: float


class SharedAnswers:
    """Answers shared by all open pages: each is computed once, however many pages request it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[object, threading.Lock] = {}
        self._told: dict[object, _SharedAnswer] = {}

    def answer(self, name: object, make: Callable[[], dict[str, object]]) -> dict[str, object]:
        """Return the answer with this name, computing it if the last one has expired."""
        with self._lock:
            making = self._made.setdefault(name, threading.Lock())
        with making:
            told = self._told.get(name)
            if told is None or time.monotonic() > told.until:
                began = time.monotonic()
                values = make()
                now = time.monotonic()
                told = _SharedAnswer(values, now + max(_FRESH, _OF_ITS_COST * (now - began)))
                self._told[name] = told
            return told.values


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The services that a console's pages use, for one user.

    Args:
        settings: the console's settings.
        queue_states: the current contents of the queues.
        looks: the results of earlier looks.
        worker: runs jobs.
        journal_cache: the causes and jobs from the journal.
        health: the doctor's findings.
        store: copies of failed messages.
        live: live updates from the broker.
        answers: answers for pages that poll for updates.
        permissions: what the user may do.
        session_user: the user's name; empty for the one who signed in with the link.
    """

    settings: ConsoleSettings
    queue_states: QueueStates
    looks: LookCache
    worker: JobWorker
    journal_cache: JournalCache
    health: Health
    store: Store
    live: QueueFollower
    answers: SharedAnswers
    permissions: Permissions
    session_user: str = ""

    @classmethod
    def of(
        cls, settings: ConsoleSettings, session_user: str = "", questions: Questions | None = None
    ) -> "ConsoleContext":
        """Create the context for a user."""
        permissions = Permissions(settings, OperatorRights(settings.url, settings.family))
        worker = JobWorker(settings)
        return cls(
            settings,
            QueueStates(settings),
            LookCache(settings, permissions.check_look, questions or Questions(), session_user),
            worker,
            JournalCache(worker.journal),
            Health(settings),
            Store(settings.store_folder),
            QueueFollower(settings),
            SharedAnswers(),
            permissions,
            session_user,
        )

    def filter_of(self, request: PageRequest) -> Filter:
        """Return a page's filter, with the team's merged causes resolved."""
        where = where_of(request)
        return self.journal_cache.book.resolved(replace(request.filter, where=where or None))

    @property
    def is_busy(self) -> bool:
        """Whether a job, a look or a copy that was started here is still running."""
        work = self.store.work
        is_copying = work is not None and not work.has_ended
        return bool(self.worker.running()) or self.looks.is_looking or is_copying

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Stop everything that was started here, cleanly."""
        self.live.close()
        self.worker.close(on_wait)
        self.store.close()

    def page(
        self,
        name: str,
        request: PageRequest,
        title: str,
        values: dict[str, object],
        status: int = 200,
        summary: str = "",
    ) -> Response:
        """Render a page of the console; its title and its summary are what a link to it shows."""
        shared = {
            "title": cut(title, 120),
            "summary": summary,
            "request": request,
            "link": request.link,
            "settings": self.settings,
            "broker": BrokerURL.parse(self.settings.url).address,
            "running": [
                job
                for job in self.worker.running()
                if self.permissions.may(OperatorAct.LOOK, job.place)
            ],
            "guest": self.session_user,
            "has_login": self.permissions.has_login,
            "now": datetime.now(UTC),
            "trend": trend,
        }
        return page(name, {**shared, **values}, status)


@dataclass(frozen=True, slots=True)
class LookStatus:
    """How current the data on a queue's page is.

    Args:
        place: the queue.
        look: the look that the data comes from; None if there is none.
        line: the queue's current state at the broker; None if unknown.
        under_way: the look that was requested last.
        live: the live state of the queue.
        outdated: when the last look was, if it can't answer any more.
    """

    place: QueuePlace
    look: Look | None
    line: QueueState | None
    under_way: RunningLook | None
    live: LiveState
    outdated: datetime | None = None

    @classmethod
    def of(cls, context: ConsoleContext, place: QueuePlace, look: Look | None) -> "LookStatus":
        """Return how current a look is."""
        line = context.queue_states.line(place)
        return cls.on(context, place, look, line)

    @classmethod
    def on(
        cls, context: ConsoleContext, place: QueuePlace, look: Look | None, line: QueueState | None
    ) -> "LookStatus":
        """Return how current a look is, given the queue's state from the management API."""
        counted = None if line is None else line.failed
        live = context.live.state(place, None if look is None else look.total, counted)
        outdated = context.looks.seen_at.get(place) if look is None else None
        return cls(place, look, line, context.looks.look_under_way(place), live, outdated)

    @property
    def is_looking(self) -> bool:
        """Whether the page should be reloaded when a running look ends."""
        return self.under_way is not None and self.under_way.is_still_to_be_seen(self.look)

    @property
    def now(self) -> str:
        """The queue's current state, in a sentence."""
        return self.live.in_words


def local_path(address: str) -> str:
    """Return a path of this console from an address that a form sent; the overview for any other
    address."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address.startswith("//"):
        return "/"
    return address if "\\" not in address and address.isprintable() else "/"
