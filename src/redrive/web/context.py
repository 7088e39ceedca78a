"""The services that a console's pages use."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.queue.operator_rights import OperatorRights
from redrive.failures.store.filter import Filter
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
from redrive.web.look_cache import LookCache
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.questions import Questions
from redrive.web.queue_states import QueueStates
from redrive.web.store import Store

_FRESH = 0.25
_MOST_WAITING = 5
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
        queue_states: what is known of each queue.
        looks: the results of earlier looks.
        worker: runs jobs.
        journal_cache: the causes and jobs from the journal.
        health: the doctor's findings.
        store: copies of failed messages.
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
        looks = LookCache(settings, permissions.check_look, questions or Questions(), session_user)
        return cls(
            settings,
            QueueStates(settings, looks),
            looks,
            worker,
            JournalCache(worker.journal),
            Health(settings),
            Store(settings.store_folder),
            SharedAnswers(),
            permissions,
            session_user,
        )

    def filter_of(self, request: PageRequest) -> Filter:
        """Return a page's filter, with the team's merged causes resolved."""
        where = where_of(request)
        return self.journal_cache.book.resolved(replace(request.filter, where=where or None))

    def waiting_for_approval(self, place: QueuePlace | None = None) -> list[JobRecord]:
        """Return the jobs that wait for approval, of one queue or of those that the user sees."""
        return [
            job
            for job in self.journal_cache.known.jobs
            if job.state is State.ASKED
            and place in (None, QueuePlace(job.queue, job.literal))
            and self.permissions.may_see(job)
        ][:_MOST_WAITING]

    @property
    def is_busy(self) -> bool:
        """Whether a job, a look or a copy that was started here is still running."""
        work = self.store.work
        is_copying = work is not None and not work.has_ended
        return bool(self.worker.running()) or self.looks.is_looking or is_copying

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Stop everything that was started here, cleanly."""
        self.queue_states.close()
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


def local_path(address: str) -> str:
    """Return a path of this console from an address that a form sent; the overview for any other
    address."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address.startswith("//"):
        return "/"
    return address if "\\" not in address and address.isprintable() else "/"
