"""The page that plans a requeue and starts it."""

from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.jobs.approval import ask_as_planned
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.job_stop import check_alone
from redrive.failures.message.mask import check_patch
from redrive.failures.queue.canary import Guards, Unknown
from redrive.failures.queue.failed_queue_base import whereabouts_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.outcome_watch import MessageCounts
from redrive.failures.queue.plan import Plan
from redrive.failures.rehearsal.rehearsal import rehearsed_in
from redrive.failures.store.look import Look
from redrive.number_text import count_of
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import requeue_command, try_command
from redrive.web.context import ConsoleContext
from redrive.web.filter_bar import where_of
from redrive.web.job_page import RESUMABLE
from redrive.web.look_questions import PlanOf
from redrive.web.page_request import PageRequest, QueuePlace

MANY = 1000
"""Above this number of messages, the user must type the number to confirm."""
CANARY, RATE, STOP_AT = 20, 200, 5
"""Safe defaults: the size of the canary, messages per second, and the percentage of failures at
which to stop."""
_OLD = timedelta(minutes=15)
_LATELY = timedelta(days=7)
"""How long a plan mentions an earlier requeue that did not finish."""
_MOST_UNFINISHED = 3
_MOST_REHEARSED = 500


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the plan of a requeue, according to the last look."""
    return _page(context, request, "")


def begin(context: ConsoleContext, request: PageRequest) -> Response:
    """Start the requeue, and show its job."""
    place = request.place
    context.permissions.check(OperatorAct.REQUEUE, place)
    _check_alone(context, place)
    try:
        reason = request.reason
        order, plan, _ = _planned(context, request)
        _check_confirmed(request, plan)
        id_ = context.worker.begin(place, context.looks.queue(place), order, plan, reason)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/job", {"id": id_}), 303)


def ask(context: ConsoleContext, request: PageRequest) -> Response:
    """Request somebody else's approval, and show the job that is waiting for it."""
    place = request.place
    context.permissions.check(OperatorAct.REQUEUE, place)
    try:
        reason = request.reason
        order, plan, _ = _planned(context, request)
        _check_confirmed(request, plan)
        plan, _ = context.looks.answer(place, PlanOf(order, to_ask=True))
        with context.worker.journal() as journal:
            record = ask_as_planned(context.looks.queue(place), journal, order, plan, reason=reason)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/job", {"id": record.id}), 303)


def take_report(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the plan of what would succeed, according to the report of a rehearsal."""
    place = request.place
    try:
        report = rehearsed_in(request.text("report"), "the report")
        if report.queue != place.name:
            raise ConfigurationError(
                f"the report is of the queue {report.queue!r:.200}",
                f"Give one of {place.name!r:.200}, or open that queue's plan.",
            )
    except ConfigurationError as error:
        return _page(context, request, str(error))
    said = {"reason": report.in_words, "rehearsed": report.in_words}
    values = {**place.asks, **said, "where": report.where}
    return _page(context, PageRequest(values, request.root), "")


def order_of(context: ConsoleContext, request: PageRequest, limit: int | None = None) -> Order:
    """Return the order that a form describes."""
    patch = request.text("patch") or None
    if patch is not None and not context.settings.may_edit:
        raise ConfigurationError(
            "this console does not allow edits to bodies",
            "Start it with --allow requeue,edit.",
        )
    if patch is not None and context.settings.hide_bodies:
        raise ConfigurationError(
            "this console hides bodies, so it can't show what a patch changes",
            "Start it without --hide-bodies, or use the command line.",
        )
    if context.settings.mask is not None and patch is not None:
        # The effects of a patch on bodies could reveal masked values.
        check_patch(context.settings.mask, patch)
    rate = request.number("rate", RATE, most=1_000_000)
    stop_at = request.number("stop_at", STOP_AT, most=100)
    unknown = Unknown.GO_ON if request.text("unknown") == Unknown.GO_ON.value else Unknown.STOP
    return Order(
        context.filter_of(request),
        limit,
        to=request.text("to") or None,
        rate=float(rate) or None,
        guards=Guards(
            request.number("canary", CANARY, most=1_000_000),
            stop_at=None if stop_at == 100 else stop_at / 100,
            unknown=unknown,
        ),
        patch=patch,
        pace_by_depth=request.number("pace", 0, most=10**9) or None,
        unchecked=bool(request.text("unchecked")),
    )


def _planned(context: ConsoleContext, request: PageRequest) -> tuple[Order, Plan, Look]:
    """Return the order, limited to the planned number of messages, with its plan and the look."""
    order = order_of(context, request)
    plan, look = context.looks.answer(request.place, PlanOf(order))
    return order_of(context, request, max(1, plan.count)), plan, look


def _check_confirmed(request: PageRequest, plan: Plan) -> None:
    """Require a reason, the number that was planned and, for more than 1,000 messages or a patch,
    that number typed by the user."""
    if not plan.count:
        raise ConfigurationError("there is nothing to requeue", "Refresh the queue.")
    request.check_reason()
    if request.number("planned", -1, most=10**12) != plan.count:
        raise ConfigurationError(
            f"the plan has changed: it now has {count_of(plan.count, 'message')}",
            "Check it, then start again.",
        )
    if plan.count > MANY or request.text("patch"):
        request.check_typed(plan.count, "requeued")


def _check_alone(context: ConsoleContext, place: QueuePlace) -> None:
    """Check that no other requeue of this queue is running."""
    with context.worker.journal() as journal:
        check_alone(journal, place.name)


def _page(context: ConsoleContext, request: PageRequest, problem: str) -> Response:
    place = request.place
    try:
        order, plan, look = _planned(context, request)
    except ConfigurationError as error:
        if not problem:
            raise
        # The input is invalid: show the plan with the defaults, and the error.
        kept = {
            name: request.text(name)
            for name in ("queue", "literal", "group", "where", "reason", "rehearsed")
        }
        request = PageRequest({name: value for name, value in kept.items() if value}, request.root)
        order, plan, look = _planned(context, request)
        problem = str(error)
    return context.page(
        "plan",
        request,
        f"Plan: {plan.count:,} of {place.name}",
        {
            "place": place,
            "standing": context.queue_states.state(place, look),
            "is_old": look.as_of is None or _age_of(look) > _OLD,
            "order": order,
            "where": where_of(request),
            "plan": plan,
            "places": _places(context, place, order, plan),
            "problem": problem,
            "unfinished": _unfinished(context, place),
            "asked": context.waiting_for_approval(place),
            "control": context.queue_states.control_of(place),
            "many": MANY,
            "canary": min(order.guards.canary, plan.count),
            "rate": int(order.rate or 0),
            "pace": order.pace_by_depth or 0,
            "stop_at": 100 if order.guards.stop_at is None else round(order.guards.stop_at * 100),
            "goes_on": order.guards.unknown is Unknown.GO_ON,
            "may": context.permissions.may(OperatorAct.REQUEUE, place),
            "may_edit": not context.settings.hide_bodies
            and context.permissions.may(OperatorAct.EDIT, place),
            "rehearsal": try_command(place, order),
            "rehearsed": request.text("rehearsed")[:_MOST_REHEARSED],
            "command": requeue_command(place, order, request.text("reason") or "…"),
        },
        400 if problem else 200,
    )


def _unfinished(context: ConsoleContext, place: QueuePlace) -> list[JobRecord]:
    """Return the queue's recent requeues that did not finish and can be resumed."""
    since = datetime.now(UTC) - _LATELY
    return [
        job
        for job in context.journal_cache.known.jobs
        if (job.queue, job.literal) == (place.name, place.literal)
        and job.kind == "requeue"
        and job.state in RESUMABLE - {State.WAITING}
        and job.changed_at > since
        and job.sent + job.not_sent < job.planned
    ][:_MOST_UNFINISHED]


def _age_of(look: Look) -> timedelta:
    assert look.as_of is not None
    return datetime.now(UTC) - look.as_of


def _places(
    context: ConsoleContext, place: QueuePlace, order: Order, plan: Plan
) -> list[MessageCounts]:
    """Return the counts and consumers of the destination queues; empty if the broker can't be
    asked."""
    failed = context.looks.queue(place)
    try:
        if order.to is not None:
            return [whereabouts_of(failed, order.to)]
        judge = plan.direction.judge
        return [whereabouts_of(failed, queue, judge) for queue in plan.queues[:5]]
    except RedriveError:
        return []
