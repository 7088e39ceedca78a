"""The page that moves old failed messages out of their queue, into a file of the store."""

import uuid
from datetime import UTC, datetime

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.discard_job import discard_into
from redrive.failures.expiry import failed_before, moment_before
from redrive.failures.failed_queue_facts import source_of
from redrive.failures.filter import Filter
from redrive.failures.groups import Groups
from redrive.failures.job_record import JobRecord
from redrive.failures.look import Look
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.asked import Asked, QueuePlace
from redrive.web.command_words import expire_command
from redrive.web.desk import Desk, Freshness
from redrive.web.look_questions import CausesOf
from redrive.web.store import StoreWork
from redrive.web.store_page import check_user

OLD = "30d"
"""What is old, until somebody says something else."""
_MOST_CAUSES = 20


def show(desk: Desk, asked: Asked) -> Response:
    """What would be moved, of what the last look has found.

    Raises:
        PermissionDenied: people log in here, and the store has messages of any queue.
    """
    return _page(desk, asked, "")


def begin(desk: Desk, asked: Asked) -> Response:
    """Has the messages written to a new file of the store and then deleted from the queue, and
    shows how far that is.

    Raises:
        ConfigurationError: this console discards nothing.
        PermissionDenied: the broker does not let the user, or people log in here.
    """
    check_user(desk)
    place = asked.place
    desk.check(OperatorAct.DISCARD, place)
    try:
        filter_ = failed_before(_moment(asked))
        groups, _ = _counted(desk, place, filter_)
        reason = asked.reason
        if not reason:
            raise ConfigurationError("no reason is given", "Say why: it stands in the journal.")
        if not groups.total or asked.number("typed", -1, most=10**12) != groups.total:
            raise ConfigurationError(
                (
                    "1 message would be moved, and this number was not typed"
                    if groups.total == 1
                    else f"{groups.total:,} messages would be moved, and this number was not typed"
                ),
                "Type it to confirm.",
            )
        _begin(desk, place, filter_, reason, groups.total)
    except RedriveError as error:
        return _page(desk, asked, str(error))
    return RedirectResponse(asked.link("/store"), 303)


def _begin(desk: Desk, place: QueuePlace, filter_: Filter, reason: str, most: int) -> None:
    failed, path = desk.recollection.queue(place), desk.store.new_path(place)
    job = JobRecord(
        str(uuid.uuid4()),
        "expire",
        source_of(failed).name,
        BrokerURL.parse(desk.settings.url).address,
        {"selection": filter_.as_json()},
        reason=reason,
        literal=place.literal,
        planned=most,
        file=str(path),
    )

    def act(work: StoreWork) -> str:
        def note(written: int) -> None:
            work.done = written

        with desk.worker.journal() as journal:
            done = discard_into(failed, journal, job, filter_, most, on_progress=note)
        left = done.written - done.deleted
        moved = (
            f"1 message of {place.name} moved to {path.name}."
            if done.deleted == 1
            else f"{done.deleted:,} messages of {place.name} moved to {path.name}."
        )
        if not left:
            return moved
        held = (
            "1 that it has could not be deleted: somebody else has taken or holds it."
            if left == 1
            else f"{left:,} that it has could not be deleted: somebody else has taken or "
            "holds them."
        )
        return f"{moved} {held}"

    desk.store.do(f"expiring messages of {place.name}", act)


def _moment(asked: Asked) -> datetime:
    """Before when a message has failed that is meant: as the page has shown it, so that what has
    grown old since is not meant besides.

    Raises:
        ConfigurationError: it is no time.
    """
    text = asked.text("before")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            f"{text[:40]!r} is no time",
            "Open the page once more.",
        )
    return moment.astimezone(UTC)


def _counted(desk: Desk, place: QueuePlace, filter_: Filter) -> tuple[Groups, Look]:
    return desk.recollection.answer(place, CausesOf(filter_, desk.memory.book))


def _page(desk: Desk, asked: Asked, problem: str) -> Response:
    check_user(desk)
    place, older_than = asked.place, asked.text("older_than") or OLD
    try:
        before = moment_before(older_than, datetime.now(UTC))
    except ConfigurationError as error:
        older_than, problem = OLD, problem or str(error)
        before = moment_before(older_than, datetime.now(UTC))
    groups, look = _counted(desk, place, failed_before(before))
    largest = groups.largest_first
    return desk.page(
        "expire",
        asked,
        "Expire",
        {
            "place": place,
            "standing": Freshness.of(desk, place, look),
            "older_than": older_than,
            "before": before,
            "count": groups.total,
            "groups": largest[:_MOST_CAUSES],
            "more": max(0, len(largest) - _MOST_CAUSES),
            "problem": problem,
            "may": desk.may(OperatorAct.DISCARD, place),
            "command": expire_command(
                place, older_than, str(desk.store.folder), asked.text("reason") or "…"
            ),
        },
        400 if problem else 200,
    )
