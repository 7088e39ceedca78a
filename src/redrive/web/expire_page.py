"""The page that moves old failed messages from their queue to a file in the store."""

import uuid
from datetime import UTC, datetime

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.discard_job import discard_into
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.message.groups import Groups
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.store.filter import Filter, failed_before, moment_before
from redrive.failures.store.look import Look
from redrive.number_text import count_of
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import expire_command
from redrive.web.context import ConsoleContext
from redrive.web.look_questions import CausesOf
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.store import StoreWork
from redrive.web.store_page import check_user

OLD = "30d"
"""The default age."""
_MOST_CAUSES = 20


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show what would be moved, according to the last look."""
    return _page(context, request, "")


def begin(context: ConsoleContext, request: PageRequest) -> Response:
    """Start to write the messages to a new file in the store and delete them from the queue, and
    show the progress."""
    check_user(context)
    place = request.place
    context.permissions.check(OperatorAct.DISCARD, place)
    try:
        filter_ = failed_before(_moment(request))
        groups, _ = _counted(context, place, filter_)
        reason = request.check_reason()
        request.check_typed(groups.total, "moved")
        _begin(context, place, filter_, reason, groups.total)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/store"), 303)


def _begin(
    context: ConsoleContext, place: QueuePlace, filter_: Filter, reason: str, most: int
) -> None:
    failed, path = context.looks.queue(place), context.store.new_path(place)
    job = JobRecord(
        str(uuid.uuid4()),
        "expire",
        source_of(failed).name,
        BrokerURL.parse(context.settings.url).address,
        {"selection": filter_.as_json()},
        reason=reason,
        literal=place.literal,
        planned=most,
        file=str(path),
    )

    def act(work: StoreWork) -> str:
        def note(written: int) -> None:
            work.done = written

        with context.worker.journal() as journal:
            done = discard_into(failed, journal, job, filter_, most, on_progress=note)
        left = done.written - done.deleted
        moved = f"{count_of(done.deleted, 'message')} of {place.name} moved to {path.name}."
        if not left:
            return moved
        held = f"{left:,} more could not be deleted: somebody else took or holds them."
        return f"{moved} {held} They are in the file too."

    context.store.do(f"expiring messages of {place.name}", act)


def _moment(request: PageRequest) -> datetime:
    """Return the time that the page showed: older messages are moved, and none that became old
    since."""
    text = request.text("before")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            f"{text[:40]!r} is not a time",
            "Open the page again.",
        )
    return moment.astimezone(UTC)


def _counted(context: ConsoleContext, place: QueuePlace, filter_: Filter) -> tuple[Groups, Look]:
    return context.looks.answer(place, CausesOf(filter_, context.journal_cache.book))


def _page(context: ConsoleContext, request: PageRequest, problem: str) -> Response:
    check_user(context)
    place, older_than = request.place, request.text("older_than") or OLD
    try:
        before = moment_before(older_than, datetime.now(UTC))
    except ConfigurationError as error:
        older_than, problem = OLD, problem or str(error)
        before = moment_before(older_than, datetime.now(UTC))
    groups, look = _counted(context, place, failed_before(before))
    largest = groups.largest_first
    return context.page(
        "expire",
        request,
        "Expire",
        {
            "place": place,
            "standing": context.queue_states.state(place, look),
            "older_than": older_than,
            "before": before,
            "count": groups.total,
            "groups": largest[:_MOST_CAUSES],
            "more": max(0, len(largest) - _MOST_CAUSES),
            "problem": problem,
            "may": context.permissions.may(OperatorAct.DISCARD, place),
            "command": expire_command(
                place, older_than, str(context.store.folder), request.text("reason") or "…"
            ),
        },
        400 if problem else 200,
    )
