"""The services that a console's pages use."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import Response

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.message.mask import check_patch
from redrive.failures.queue.operator_rights import OperatorRights
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import Look
from redrive.failures.store.masked_messages import check_filter
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.doctor.act_rights import OperatorAct, rights_needed, rights_to_remark
from redrive.web.access_config import Login
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
        rights: the user's rights at the broker.
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
    rights: OperatorRights
    session_user: str = ""

    @classmethod
    def of(
        cls, settings: ConsoleSettings, session_user: str = "", questions: Questions | None = None
    ) -> "ConsoleContext":
        """Create the context for a user."""
        rights = OperatorRights(settings.url, settings.family)

        def check(place: QueuePlace) -> None:
            if not _may_look(settings, rights, place):
                raise not_permitted(OperatorAct.LOOK, place, rights)

        worker = JobWorker(settings)
        return cls(
            settings,
            QueueStates(settings),
            LookCache(settings, check, questions or Questions(), session_user),
            worker,
            JournalCache(worker.journal),
            Health(settings),
            Store(settings.store_folder),
            QueueFollower(settings),
            SharedAnswers(),
            rights,
            session_user,
        )

    @property
    def has_login(self) -> bool:
        """Whether each user logs in to the broker, with rights of their own."""
        return self.settings.access.login is Login.BROKER

    def filter_of(self, request: PageRequest) -> Filter:
        """Return a page's filter, with the team's merged causes resolved."""
        where = where_of(request)
        return self.journal_cache.book.resolved(replace(request.filter, where=where or None))

    def may(self, act: OperatorAct, place: QueuePlace) -> bool:
        """Return whether the console permits an act on a queue and the broker grants the user the
        rights for it; False if the broker can't be asked."""
        if act is not OperatorAct.LOOK and not self.settings.allows(act):
            return False
        try:
            if act is OperatorAct.LOOK:
                return _may_look(self.settings, self.rights, place)
            return not self.rights.missing(act, place.name, literal=place.literal)
        except (BrokerUnavailable, PermissionDenied):
            return False

    def why_not(self, order: Order, place: QueuePlace) -> str:
        """Return why an order can't be carried out here; empty if it can."""
        try:
            self.check_order(order, place)
        except RedriveError as error:
            return str(error)
        return ""

    def ask_rights(self, places: Iterable[QueuePlace]) -> None:
        """Check which queues the user may read, all at once: separate checks would each need a
        connection."""
        if not self.has_login:
            return
        rights = [
            right
            for place in places
            for right in rights_needed(
                OperatorAct.LOOK, place.name, self.settings.family, literal=place.literal
            )
        ]
        with contextlib.suppress(BrokerUnavailable):  # pages report it when they need a right
            self.rights.has(rights)

    def check_look(self, place: QueuePlace) -> None:
        """Check that the user may see the contents of a queue."""
        if not _may_look(self.settings, self.rights, place):
            raise not_permitted(OperatorAct.LOOK, place, self.rights)

    def check(self, act: OperatorAct, place: QueuePlace) -> None:
        """Check that the user may act on a queue."""
        if act is not OperatorAct.LOOK:
            self.settings.check_allowed(act)
        if self.rights.missing(act, place.name, literal=place.literal):
            raise not_permitted(act, place, self.rights)

    def check_order(self, order: Order, place: QueuePlace) -> None:
        """Check that an order may be carried out here, whoever wrote it and however it is
        started."""
        if order.function is not None:
            raise ConfigurationError(
                (
                    f"this order changes bodies with the function {in_one_line(order.function)}, "
                    "and the console does not run functions"
                ),
                "Use redrive jobs on a machine that has the function.",
            )
        self.check(OperatorAct.EDIT if order.changes_bodies else OperatorAct.REQUEUE, place)
        if order.changes_bodies and self.settings.hide_bodies:
            raise ConfigurationError(
                "this order changes bodies, which this console hides",
                "Use redrive jobs, or a console without --hide-bodies.",
            )
        if order.edits and self.settings.mask is not None:
            raise ConfigurationError(
                "this order contains whole bodies, and this console masks parts of them",
                "Use redrive jobs, or a console without --mask.",
            )
        if self.settings.mask is not None:
            # Whoever wrote it: the messages that match would reveal masked values.
            check_filter(order.filter)
            if order.patch is not None:
                check_patch(self.settings.mask, order.patch)

    def check_remark(self) -> None:
        """Check that the user may add notes to causes, which the whole team sees."""
        if not self.has_login:
            return
        rights = rights_to_remark()
        missing = [
            right
            for right, is_had in zip(rights, self.rights.has(rights), strict=True)
            if not is_had
        ]
        if missing:
            raise PermissionDenied(
                (
                    f"the user {self.rights.user!r} may not add notes to causes: the "
                    "broker does not grant it"
                ),
                f"Grant the rights that a requeue needs: {', '.join(map(str, missing))}.",
            )

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

    def may_see(self, job: JobRecord) -> bool:
        """Return whether the user may see a job of the journal."""
        return self.may(OperatorAct.LOOK, QueuePlace(job.queue, job.literal))

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
                job for job in self.worker.running() if self.may(OperatorAct.LOOK, job.place)
            ],
            "guest": self.session_user,
            "has_login": self.has_login,
            "now": datetime.now(UTC),
            "trend": trend,
        }
        return page(name, {**shared, **values}, status)


def not_permitted(act: OperatorAct, place: QueuePlace, rights: OperatorRights) -> PermissionDenied:
    """Return the error for an act that the broker does not permit the user."""
    return PermissionDenied(
        (
            f"the user {rights.user!r} may not {act.value} in {place.name!r}: the "
            "broker does not grant it"
        ),
        "The page Me lists what is missing, and the command that grants it.",
    )


def _may_look(settings: ConsoleSettings, rights: OperatorRights, place: QueuePlace) -> bool:
    """Return whether the user may see the contents of a queue. Without a login, every user acts as
    the one who started the console, and who owns the index."""
    if settings.access.login is not Login.BROKER:
        return True
    return not rights.missing(OperatorAct.LOOK, place.name, literal=place.literal)


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
