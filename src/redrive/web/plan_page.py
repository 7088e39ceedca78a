"""The page of a plan: what a requeue would send, how, and why; and its beginning."""

from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.approval import ask_as_planned
from redrive.failures.canary import Guards, Unknown
from redrive.failures.failed_queue_facts import whereabouts_of
from redrive.failures.job_record import JobRecord
from redrive.failures.look import Look
from redrive.failures.mask import check_patch
from redrive.failures.order import Order
from redrive.failures.outcome_watch import MessageCounts
from redrive.failures.plan import Plan
from redrive.failures.running_job import check_alone
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.rewrite import MOST_REDRIVES
from redrive.web.command_lines import requeue_command
from redrive.web.context import ConsoleContext, LookStatus
from redrive.web.job_page import RESUMABLE
from redrive.web.look_questions import PlanOf
from redrive.web.page_request import PageRequest, QueuePlace

MANY = 1000
"""More messages than these are sent only where their number was typed."""
CANARY, RATE, STOP_AT = 20, 200, 5
"""What is safe: how many go first, how many a second, and the percentage that may fail."""
_OLD = timedelta(minutes=15)
_LATELY = timedelta(days=7)
"""For how long the plan of another requeue speaks of one that did not get to its end."""
_MOST_UNFINISHED = 3


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """The plan of a requeue, of what the last look has found."""
    return _page(context, request, "")


def begin(context: ConsoleContext, request: PageRequest) -> Response:
    """Begins the requeue, and shows its job."""
    place = request.place
    context.check(OperatorAct.REQUEUE, place)
    _check_alone(context, place)
    try:
        reason = request.reason
        order, plan, _ = _planned(context, request)
        _check_confirmed(request, reason, plan)
        id_ = context.worker.begin(place, order, reason)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/job", {"id": id_}), 303)


def ask(context: ConsoleContext, request: PageRequest) -> Response:
    """Asks for the approval of somebody else, and shows the job that waits for it."""
    place = request.place
    context.check(OperatorAct.REQUEUE, place)
    try:
        reason = request.reason
        order, plan, _ = _planned(context, request)
        _check_confirmed(request, reason, plan)
        plan, _ = context.looks.answer(place, PlanOf(order, to_ask=True))
        with context.worker.journal() as journal:
            record = ask_as_planned(context.looks.queue(place), journal, order, plan, reason=reason)
    except RedriveError as error:
        return _page(context, request, str(error))
    return RedirectResponse(request.link("/job", {"id": record.id}), 303)


def order_of(context: ConsoleContext, request: PageRequest, limit: int | None = None) -> Order:
    """The order that a form gives."""
    patch = request.text("patch") or None
    if patch is not None and not context.settings.may_edit:
        raise ConfigurationError(
            "this console changes no bodies",
            "Start it with --allow requeue,edit.",
        )
    if patch is not None and context.settings.hide_bodies:
        raise ConfigurationError(
            "this console hides bodies, and can't show what a patch changes",
            "Start it without --hide-bodies, or use the command line.",
        )
    if context.settings.mask is not None and patch is not None:
        # What it changes would be told of the bodies as they are.
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
    """The order, and what it would send of what the last look has found: so many, and no more."""
    order = order_of(context, request)
    plan, look = context.looks.answer(request.place, PlanOf(order))
    return order_of(context, request, max(1, plan.count)), plan, look


def _check_confirmed(request: PageRequest, reason: str, plan: Plan) -> None:
    """Raises ConfigurationError unless people have said why, and how many."""
    if not plan.count:
        raise ConfigurationError("there is nothing to requeue", "Look at the queue again.")
    if not reason:
        raise ConfigurationError("no reason is given", "Say why: it stands in the journal.")
    if request.number("planned", -1, most=10**12) != plan.count:
        raise ConfigurationError(
            (
                "the plan has changed: it is of 1 message now"
                if plan.count == 1
                else f"the plan has changed: it is of {plan.count:,} messages now"
            ),
            "Read it once more.",
        )
    needs_number = plan.count > MANY or bool(request.text("patch"))
    if needs_number and request.number("typed", -1, most=10**12) != plan.count:
        raise ConfigurationError(
            (
                "1 message would be requeued, and this number was not typed"
                if plan.count == 1
                else f"{plan.count:,} messages would be requeued, and this number was not typed"
            ),
            "Type it to confirm.",
        )


def _check_alone(context: ConsoleContext, place: QueuePlace) -> None:
    """Raises ConfigurationError where somebody else has begun a requeue of this queue."""
    with context.worker.journal() as journal:
        check_alone(journal, place.name)


def _page(context: ConsoleContext, request: PageRequest, problem: str) -> Response:
    place = request.place
    try:
        order, plan, look = _planned(context, request)
    except ConfigurationError as error:
        if not problem:
            raise
        # What was typed can't be used: it is shown with the defaults, and what is wrong with it.
        kept = {
            name: request.text(name) for name in ("queue", "literal", "group", "where", "reason")
        }
        request = PageRequest({name: value for name, value in kept.items() if value}, request.root)
        order, plan, look = _planned(context, request)
        problem = str(error)
    return context.page(
        "plan",
        request,
        "Plan",
        {
            "place": place,
            "standing": LookStatus.of(context, place, look),
            "is_old": look.as_of is None or _age_of(look) > _OLD,
            "order": order,
            "plan": plan,
            "places": _places(context, place, order, plan),
            "problem": problem,
            "unfinished": _unfinished(context, place),
            "many": MANY,
            "most_redrives": MOST_REDRIVES,
            "canary": min(order.guards.canary, plan.count),
            "rate": int(order.rate or 0),
            "pace": order.pace_by_depth or 0,
            "stop_at": 100 if order.guards.stop_at is None else round(order.guards.stop_at * 100),
            "goes_on": order.guards.unknown is Unknown.GO_ON,
            "may": context.may(OperatorAct.REQUEUE, place),
            "may_edit": not context.settings.hide_bodies and context.may(OperatorAct.EDIT, place),
            "command": requeue_command(place, order, request.text("reason") or "…"),
        },
        400 if problem else 200,
    )


def _unfinished(context: ConsoleContext, place: QueuePlace) -> list[JobRecord]:
    """The requeues of a queue that did not get to their end of late, and could be resumed."""
    since = datetime.now(UTC) - _LATELY
    return [
        job
        for job in context.journal_cache.known.jobs
        if (job.queue, job.literal) == (place.name, place.literal)
        and job.kind == "requeue"
        and job.state in RESUMABLE
        and job.changed_at > since
        and job.sent + job.not_sent < job.planned
    ][:_MOST_UNFINISHED]


def _age_of(look: Look) -> timedelta:
    assert look.as_of is not None
    return datetime.now(UTC) - look.as_of


def _places(
    context: ConsoleContext, place: QueuePlace, order: Order, plan: Plan
) -> list[MessageCounts]:
    """What is in the queues that messages go to, and who consumes them, as far as the broker says
    it."""
    failed = context.looks.queue(place)
    try:
        if order.to is not None:
            return [whereabouts_of(failed, order.to)]
        judge = plan.direction.judge
        return [whereabouts_of(failed, queue, judge) for queue in plan.queues[:5]]
    except RedriveError:
        return []
