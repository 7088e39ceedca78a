"""What the pages of a console work with."""

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
from redrive.failures.filter import Filter
from redrive.failures.job_record import JobRecord
from redrive.failures.look import Look
from redrive.failures.mask import check_patch
from redrive.failures.masked_messages import check_filter
from redrive.failures.operator_rights import OperatorRights
from redrive.failures.order import Order
from redrive.pubsub.url import BrokerURL
from redrive.redaction import in_one_line
from redrive.topology.doctor.act_rights import OperatorAct, rights_needed, rights_to_remark
from redrive.web.access_config import Login
from redrive.web.console_settings import ConsoleSettings
from redrive.web.filter_bar import where_of
from redrive.web.health import Health
from redrive.web.html import page
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
"""How many times as long as it takes an answer serves whoever asks meanwhile."""


class _SharedAnswer(NamedTuple):
    """An answer, and until when it serves.

    Args:
        values: the answer.
        until: by the monotonic clock.
    """

    values: dict[str, object]
    until: float


class SharedAnswers:
    """Answers that all tabs share: each is made once, however many ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[object, threading.Lock] = {}
        self._told: dict[object, _SharedAnswer] = {}

    def answer(self, name: object, make: Callable[[], dict[str, object]]) -> dict[str, object]:
        """The answer of this name; made anew where the last one is too old."""
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
    """What the pages of a console work with.

    Args:
        settings: what the console was told.
        queue_states: what the queues hold.
        looks: what earlier looks tell of them.
        worker: runs jobs.
        journal_cache: what the journal tells of causes and jobs.
        health: what the doctor finds.
        store: copies of failed messages.
        live: what the broker tells of them just now.
        answers: what tabs that follow them are told.
        rights: what the broker lets the user do.
        session_user: who works at it; empty for who has come by the link.
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
        """A desk for a broker."""
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
        """Whether each who works here is a user of the broker's, with rights of their own."""
        return self.settings.access.login is Login.BROKER

    def filter_of(self, request: PageRequest) -> Filter:
        """Which messages a page is asked for, as the team has said what causes are."""
        where = where_of(request)
        return self.journal_cache.book.resolved(replace(request.filter, where=where or None))

    def may(self, act: OperatorAct, place: QueuePlace) -> bool:
        """Whether an act on a queue is allowed here, and the broker grants the user what it needs.
        What the broker does not say is not offered."""
        if act is not OperatorAct.LOOK and not self.settings.allows(act):
            return False
        try:
            if act is OperatorAct.LOOK:
                return _may_look(self.settings, self.rights, place)
            return not self.rights.missing(act, place.name, literal=place.literal)
        except (BrokerUnavailable, PermissionDenied):
            return False

    def why_not(self, order: Order, place: QueuePlace) -> str:
        """Say why an order can't be carried out here; empty where it can."""
        try:
            self.check_order(order, place)
        except RedriveError as error:
            return str(error)
        return ""

    def ask_rights(self, places: Iterable[QueuePlace]) -> None:
        """Finds out together what the user may look at: one by one, it would take a connection for
        each queue."""
        if not self.has_login:
            return
        rights = [
            right
            for place in places
            for right in rights_needed(
                OperatorAct.LOOK, place.name, self.settings.family, literal=place.literal
            )
        ]
        with contextlib.suppress(BrokerUnavailable):  # each page says so of what it shows
            self.rights.has(rights)

    def check_look(self, place: QueuePlace) -> None:
        """Checks that what is known of a queue is for this user."""
        if not _may_look(self.settings, self.rights, place):
            raise not_permitted(OperatorAct.LOOK, place, self.rights)

    def check(self, act: OperatorAct, place: QueuePlace) -> None:
        """Checks that an act on a queue may be done."""
        if act is not OperatorAct.LOOK:
            self.settings.check_allowed(act)
        if self.rights.missing(act, place.name, literal=place.literal):
            raise not_permitted(act, place, self.rights)

    def check_order(self, order: Order, place: QueuePlace) -> None:
        """Check that an order may be carried out here, whoever has written it down and however it
        is begun."""
        if order.function is not None:
            raise ConfigurationError(
                (
                    f"this order changes bodies by the function {in_one_line(order.function)}, "
                    "and a console runs none"
                ),
                "Use redrive jobs on a machine that has the function.",
            )
        self.check(OperatorAct.EDIT if order.changes_bodies else OperatorAct.REQUEUE, place)
        if order.changes_bodies and self.settings.hide_bodies:
            raise ConfigurationError(
                "this order changes bodies, and this console hides them",
                "Use redrive jobs, or a console without --hide-bodies.",
            )
        if order.edits and self.settings.mask is not None:
            raise ConfigurationError(
                "this order has whole bodies in it, and this console masks parts of them",
                "Use redrive jobs, or a console without --mask.",
            )
        if self.settings.mask is not None:
            # Whoever has written it down: what it means would tell what is hidden.
            check_filter(order.filter)
            if order.patch is not None:
                check_patch(self.settings.mask, order.patch)

    def check_remark(self) -> None:
        """Checks that the user may say something of causes, which all then see."""
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
                    f"the user {self.rights.user!r} may not say anything of causes: the "
                    "broker does not grant it"
                ),
                f"Have it granted, as to whoever requeues: {', '.join(map(str, missing))}.",
            )

    @property
    def is_busy(self) -> bool:
        """Whether something that was begun here goes on: a job, a look, or a copy."""
        work = self.store.work
        is_copying = work is not None and not work.has_ended
        return bool(self.worker.running()) or self.looks.is_looking or is_copying

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Ends what it began, cleanly."""
        self.live.close()
        self.worker.close(on_wait)
        self.store.close()

    def may_see(self, job: JobRecord) -> bool:
        """Whether what the journal has of a job is for this user."""
        return self.may(OperatorAct.LOOK, QueuePlace(job.queue, job.literal))

    def page(
        self,
        name: str,
        request: PageRequest,
        title: str,
        values: dict[str, object],
        status: int = 200,
    ) -> Response:
        """A page of the console."""
        shared = {
            "title": in_one_line(title),
            "asked": request,
            "link": request.link,
            "settings": self.settings,
            "broker": BrokerURL.parse(self.settings.url).address,
            "running": [
                job for job in self.worker.running() if self.may(OperatorAct.LOOK, job.place)
            ],
            "guest": self.session_user,
            "has_login": self.has_login,
            "now": datetime.now(UTC),
        }
        return page(name, {**shared, **values}, status)


def not_permitted(act: OperatorAct, place: QueuePlace, rights: OperatorRights) -> PermissionDenied:
    """What is said where the broker does not let the user."""
    return PermissionDenied(
        (
            f"the user {rights.user!r} may not {act.value} in {place.name!r}: the "
            "broker does not grant it"
        ),
        "The page Me has what is missing, and the command that grants it.",
    )


def _may_look(settings: ConsoleSettings, rights: OperatorRights, place: QueuePlace) -> bool:
    """Whether the user may read what is known of a queue. Where nobody logs in, all who come in are
    the user who has started the console, and whose index it is."""
    if settings.access.login is not Login.BROKER:
        return True
    return not rights.missing(OperatorAct.LOOK, place.name, literal=place.literal)


@dataclass(frozen=True, slots=True)
class LookStatus:
    """How much what a page shows of a queue is worth now.

    Args:
        place: the queue.
        look: the look that answered; None where none did.
        line: what the broker tells of it now; None where it does not.
        under_way: the look that was asked for last.
        live: what is known of the queue just now.
    """

    place: QueuePlace
    look: Look | None
    line: QueueState | None
    under_way: RunningLook | None
    live: LiveState

    @classmethod
    def of(cls, context: ConsoleContext, place: QueuePlace, look: Look | None) -> "LookStatus":
        """How much an answer is worth now."""
        line = context.queue_states.line(place)
        return cls.on(context, place, look, line)

    @classmethod
    def on(
        cls, context: ConsoleContext, place: QueuePlace, look: Look | None, line: QueueState | None
    ) -> "LookStatus":
        """The same, where it is known what the management API tells of the queue."""
        counted = None if line is None else line.failed
        live = context.live.state(place, None if look is None else look.total, counted)
        return cls(place, look, line, context.looks.look_under_way(place), live)

    @property
    def is_looking(self) -> bool:
        """Whether the page is to be read again when a look has ended."""
        return self.under_way is not None and self.under_way.is_still_to_be_seen(self.look)

    @property
    def now(self) -> str:
        """How the queue stands now, beside what a page shows of it."""
        return self.live.in_words


def local_path(address: str) -> str:
    """A path of this console, out of an address that a form has sent; the overview for any
    other."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not address.startswith("/") or address.startswith("//"):
        return "/"
    return address if "\\" not in address and address.isprintable() else "/"
