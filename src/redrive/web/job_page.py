"""The page of a job: its order, its results, and the actions on it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.approval_rule import (
    check_may_approve,
    check_seen,
    is_same,
    waits_for_none,
)
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.job_stop import ask_to_stop, check_alone
from redrive.failures.jobs.journal_entry import JobEvent, JobStep
from redrive.failures.queue.order import Fact, Order, filter_facts, order_facts
from redrive.failures.store.facet import Facet
from redrive.failures.wording import JobTotals, causes_of, state_in_words
from redrive.redaction import in_one_line
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.headers import JOB
from redrive.web.command_lines import command, requeue_command
from redrive.web.context import ConsoleContext
from redrive.web.html import rate_in_words
from redrive.web.page_request import PageRequest, QueuePlace

RESUMABLE = frozenset((State.WAITING, State.INTERRUPTED, State.STOPPED, State.FAILED))


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show a job."""
    own = context.worker.job(request.text("id"))
    record, is_own, unapproved, stopped_by, events = _known(context, request)
    place = _place_of(record)
    context.permissions.check_look(place)
    may = context.permissions.may(OperatorAct.REQUEUE, place)
    order = _order_of(record)
    is_running_here = own is not None and not own.has_ended
    return context.page(
        "job",
        request,
        _title_of(record),
        {
            "id": request.text("id"),
            "own": own,
            "is_running_here": is_running_here,
            "is_stoppable": record.kind == "requeue" and record.state is State.RUNNING,
            "stopped_by": stopped_by,
            "record": record,
            "state": state_in_words(record.state),
            "sum": JobTotals.of(record),
            "may": may,
            "may_resume": may
            and record.kind == "requeue"
            and record.state in RESUMABLE
            and not record.approved_by
            and not is_running_here,
            "is_own": is_own,
            "unapproved": unapproved,
            "why_not": "" if order is None else context.permissions.why_not(order, place),
            "timeline": timeline_of(record, events),
            "took": took(record, events),
            "facts": [] if order is None else _facts(context, order),
            "chosen": causes_of(record),
            "sent_by_it": sent_by(record),
            "begun_with": begun_with(record),
            "jobs": lambda act: command("jobs", act, request.text("id")),
            "place": place,
            "copy": _copy_of(context, record),
        },
        summary=f"{record.queue}: {record.reason}",
    )


_SAID = {
    JobStep.ASKED: "approval requested",
    JobStep.BEGUN: "started",
    JobStep.RESUMED: "resumed",
    JobStep.CANARY: "canary sent",
    JobStep.STOP: "asked to stop",
}
_BEGINS, _ENDS = (JobStep.BEGUN, JobStep.RESUMED), (JobStep.STOPPED, JobStep.ENDED)


def timeline_of(record: JobRecord, events: Sequence[JobEvent]) -> list[tuple[datetime, str, str]]:
    """Return what has happened to a job: when, what and why, and by whom."""
    if not events:  # an older version ran it
        if record.state is State.WAITING:
            return [(record.begun_at, "written down", record.by)]
        return [
            (record.begun_at, "started", ""),
            (record.changed_at, state_in_words(record.state), ""),
        ]
    return [
        (one.at, _SAID.get(one.step) or ": ".join(filter(None, (one.state, one.problem))), one.by)
        for one in events
    ]


def took(record: JobRecord, events: Sequence[JobEvent]) -> str:
    """Return how long a job's runs took, and its rate; empty if that is unknown."""
    begins = [one.at for one in events if one.step in _BEGINS]
    ends = [one.at for one in events if one.step in _ENDS]
    if not begins:
        return ""
    ends += [record.changed_at] * (len(begins) - len(ends))
    length = sum((max(b - a, timedelta()) for a, b in zip(begins, ends, strict=False)), timedelta())
    rate = rate_in_words(record.sent / max(length.total_seconds(), 0.001))
    runs = "" if len(begins) == 1 else f" in {len(begins):,} runs"
    seconds = timedelta(seconds=max(1, round(length.total_seconds())))
    return f"{format_duration(seconds)}{runs}, {rate} messages a second"


def _copy_of(context: ConsoleContext, record: JobRecord) -> str:
    """Return the name of the file in the store that has the messages of a discard; empty if there
    is none, or its messages can't be restored here."""
    file = Path(record.file)
    is_there = record.kind in ("discard", "expire") and file.parent == context.store.folder
    may = context.settings.may_store and not context.permissions.has_login
    return file.name if is_there and may and file.is_file() else ""


def _title_of(record: JobRecord) -> str:
    sums = JobTotals.of(record)
    again = f", {sums.failed_again:,} failed again" if sums.failed_again else ""
    state = state_in_words(record.state)
    return f"Job {record.id[:8]} {state}: {sums.succeeded:,} of {sums.planned:,} succeeded{again}"


def progress(context: ConsoleContext, request: PageRequest) -> Response:
    """Return the progress of a job that runs here, for its page's script."""
    own = context.worker.job(request.text("id"))
    if own is None:
        return JSONResponse({"ended": True})
    context.permissions.check_look(own.place)
    run = own.progress
    return JSONResponse(
        {
            "ended": own.has_ended,
            "values": {
                "planned": "…" if run.planned is None else f"{run.planned:,}",
                "sent": f"{run.sent:,}",
                "looked_at": f"{run.looked_at:,}",
                "rate": rate_in_words(run.rate),
                "succeeded": f"{run.succeeded:,}",
                "retrying": f"{run.retrying:,}",
                "failed_again": f"{run.failed_again:,}",
                "causes": "; ".join(
                    f"{count:,} × {in_one_line(what)}" for _, what, count in run.causes
                ),
                "notice": run.notices[-1] if run.notices else "",
            },
        }
    )


def stop(context: ConsoleContext, request: PageRequest) -> Response:
    """Stop a job that runs here, or request that from the process that runs it elsewhere; messages
    on the way are settled first."""
    context.settings.check_allowed(OperatorAct.REQUEUE)
    own = context.worker.job(request.text("id"))
    if own is not None:
        context.permissions.check(OperatorAct.REQUEUE, own.place)
        if context.worker.stop(own.id):
            return _back(request)
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        context.permissions.check(OperatorAct.REQUEUE, _place_of(record))
        ask_to_stop(journal, record)
    return _back(request)


def resume(context: ConsoleContext, request: PageRequest) -> Response:
    """Resume a job, with a new canary."""
    context.settings.check_allowed(OperatorAct.REQUEUE)
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
    if record.kind != "requeue" or record.state not in RESUMABLE:
        raise ConfigurationError(
            f"job {record.id} is {state_in_words(record.state)}",
            "There is nothing to resume.",
        )
    place = _place_of(record)
    context.permissions.check(OperatorAct.REQUEUE, place)
    order = _order_of(record)
    if order is not None:
        context.permissions.check_order(order, place)
    context.worker.run(record)
    return _back(request)


def approve(context: ConsoleContext, request: PageRequest) -> Response:
    """Approve a job that somebody else requested, and start it."""
    context.settings.check_allowed(OperatorAct.REQUEUE)
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        place = _place_of(record)
        context.permissions.check(OperatorAct.REQUEUE, place)
        if record.state is not State.ASKED:
            raise waits_for_none(record)
        check_may_approve(record, journal.signed(record))
        check_seen(record, request.text("digest"))
        context.permissions.check_order(Order.from_json(record.order), place)
        check_alone(journal, record.queue)
    context.worker.run(record)
    return _back(request)


def decline(context: ConsoleContext, request: PageRequest) -> Response:
    """Decline a job that is waiting for approval; the person who requested it may do so too."""
    context.settings.check_allowed(OperatorAct.REQUEUE)
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        context.permissions.check(OperatorAct.REQUEUE, _place_of(record))
        journal.decline(record, request.reason)
    return _back(request)


def ask_outcome(context: ConsoleContext, request: PageRequest) -> Response:
    """Check the results of a job's messages by looking at the failed queue."""
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        context.permissions.check_look(_place_of(record))
        context.looks.queue(_place_of(record)).job(record.id, journal).outcome()
    return _back(request)


def _back(request: PageRequest) -> Response:
    return RedirectResponse(request.link("/job", {"id": request.text("id")}), 303)


class _Known(NamedTuple):
    """What the journal knows about a job.

    Args:
        record: the job.
        is_own: whether this user started or requested it.
        unapproved: why this user can't approve it; empty if they can.
        stopped_by: who requested a stop; empty for nobody.
        events: what has happened to it.
    """

    record: JobRecord
    is_own: bool = True
    unapproved: str = ""
    stopped_by: str = ""
    events: Sequence[JobEvent] = ()


def _known(context: ConsoleContext, request: PageRequest) -> _Known:
    """Return what the journal knows about a job."""
    with context.worker.journal() as journal:
        record = journal.job(request.text("id"))
        signed = journal.signed(record)
        unapproved = ""
        try:
            check_may_approve(record, signed)
        except ConfigurationError as error:
            unapproved = str(error)
        stopped_by = journal.stop_asked_by(record)
        events = journal.events(record.id)
        return _Known(record, is_same(record, signed), unapproved, stopped_by, events)


def _place_of(record: JobRecord) -> QueuePlace:
    return QueuePlace(record.queue, record.literal)


def _order_of(record: JobRecord) -> Order | None:
    """Return the order of a requeue; None for other jobs, or if the journal lacks parts of it."""
    if record.kind != "requeue" or not record.order:
        return None
    try:
        return Order.from_json(record.order)
    except (RedriveError, KeyError, TypeError, ValueError):
        return None


def _facts(context: ConsoleContext, order: Order) -> list[Fact]:
    """Return everything an order says, without what this console hides of bodies."""
    hidden = context.settings.hide_bodies
    masked = context.settings.mask is not None
    return [
        Fact(name, "hidden by this console")
        if (hidden and (name == "patch" or name.startswith("edited ")))
        or (masked and name.startswith("edited "))
        else Fact(name, text)
        for name, text in (*filter_facts(order.filter), *order_facts(order))
    ]


def sent_by(record: JobRecord) -> str:
    """Return the filter that matches the failed messages that a job sent."""
    return Facet.named(f"header:{JOB}").term(record.id)


def begun_with(record: JobRecord) -> str:
    """Return the command line that starts the same job; empty if the journal lacks parts of its
    order."""
    order = _order_of(record)
    return "" if order is None else requeue_command(_place_of(record), order, record.reason)
