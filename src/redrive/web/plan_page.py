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
from redrive.failures.outcome_watch import Whereabouts
from redrive.failures.plan import Plan
from redrive.failures.running_job import check_alone
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.topology.rewrite import MOST_REDRIVES
from redrive.web.asked import Asked, QueuePlace
from redrive.web.command_words import requeue_command
from redrive.web.desk import Desk, Freshness
from redrive.web.job_page import RESUMABLE
from redrive.web.look_questions import PlanOf

MANY = 1000
"""More messages than these are sent only where their number was typed."""
CANARY, RATE, STOP_AT = 20, 200, 5
"""What is safe: how many go first, how many a second, and the percentage that may fail."""
_OLD = timedelta(minutes=15)
_LATELY = timedelta(days=7)
"""For how long the plan of another requeue speaks of one that did not get to its end."""
_MOST_UNFINISHED = 3


def show(desk: Desk, asked: Asked) -> Response:
    """The plan of a requeue, of what the last look has found."""
    return _page(desk, asked, "")


def begin(desk: Desk, asked: Asked) -> Response:
    """Begins the requeue, and shows its job.

    Raises:
        ConfigurationError: this console only reads, or a job of this queue is running.
        PermissionDenied: the broker does not let the user.
    """
    place = asked.place
    desk.check(OperatorAct.REQUEUE, place)
    _check_alone(desk, place)
    try:
        reason = asked.reason
        order, plan, _ = _planned(desk, asked)
        _check_confirmed(asked, reason, plan)
        id_ = desk.worker.begin(place, order, reason)
    except RedriveError as error:
        return _page(desk, asked, str(error))
    return RedirectResponse(asked.link("/job", {"id": id_}), 303)


def ask(desk: Desk, asked: Asked) -> Response:
    """Asks for the approval of somebody else, and shows the job that waits for it.

    Raises:
        ConfigurationError: this console only reads.
        PermissionDenied: the broker does not let the user.
    """
    place = asked.place
    desk.check(OperatorAct.REQUEUE, place)
    try:
        reason = asked.reason
        order, plan, _ = _planned(desk, asked)
        _check_confirmed(asked, reason, plan)
        plan, _ = desk.recollection.answer(place, PlanOf(order, to_ask=True))
        with desk.worker.journal() as journal:
            record = ask_as_planned(
                desk.recollection.queue(place), journal, order, plan, reason=reason
            )
    except RedriveError as error:
        return _page(desk, asked, str(error))
    return RedirectResponse(asked.link("/job", {"id": record.id}), 303)


def order_of(desk: Desk, asked: Asked, limit: int | None = None) -> Order:
    """The order that a form gives.

    Args:
        desk: says what is permitted.
        asked: the form.
        limit: how many are sent at most.

    Raises:
        ConfigurationError: a field can't be used.
    """
    patch = asked.text("patch") or None
    if patch is not None and not desk.settings.may_edit:
        raise ConfigurationError(
            "this console changes no bodies",
            "Start it with --allow requeue,edit.",
        )
    if patch is not None and desk.settings.hide_bodies:
        raise ConfigurationError(
            "this console hides bodies, and can't show what a patch changes",
            "Start it without --hide-bodies, or use the command line.",
        )
    if desk.settings.mask is not None and patch is not None:
        # What it changes would be told of the bodies as they are.
        check_patch(desk.settings.mask, patch)
    rate = asked.number("rate", RATE, most=1_000_000)
    stop_at = asked.number("stop_at", STOP_AT, most=100)
    unknown = Unknown.GO_ON if asked.text("unknown") == Unknown.GO_ON.value else Unknown.STOP
    return Order(
        desk.filter_of(asked),
        limit,
        to=asked.text("to") or None,
        rate=float(rate) or None,
        guards=Guards(
            asked.number("canary", CANARY, most=1_000_000),
            stop_at=None if stop_at == 100 else stop_at / 100,
            unknown=unknown,
        ),
        patch=patch,
        pace_by_depth=asked.number("pace", 0, most=10**9) or None,
        unchecked=bool(asked.text("unchecked")),
    )


def _planned(desk: Desk, asked: Asked) -> tuple[Order, Plan, Look]:
    """The order, and what it would send of what the last look has found: so many, and no more."""
    order = order_of(desk, asked)
    plan, look = desk.recollection.answer(asked.place, PlanOf(order))
    return order_of(desk, asked, max(1, plan.count)), plan, look


def _check_confirmed(asked: Asked, reason: str, plan: Plan) -> None:
    """Raises ConfigurationError unless people have said why, and how many."""
    if not plan.count:
        raise ConfigurationError("there is nothing to requeue", "Look at the queue again.")
    if not reason:
        raise ConfigurationError("no reason is given", "Say why: it stands in the journal.")
    if asked.number("planned", -1, most=10**12) != plan.count:
        raise ConfigurationError(
            (
                "the plan has changed: it is of 1 message now"
                if plan.count == 1
                else f"the plan has changed: it is of {plan.count:,} messages now"
            ),
            "Read it once more.",
        )
    needs_number = plan.count > MANY or bool(asked.text("patch"))
    if needs_number and asked.number("typed", -1, most=10**12) != plan.count:
        raise ConfigurationError(
            (
                "1 message would be requeued, and this number was not typed"
                if plan.count == 1
                else f"{plan.count:,} messages would be requeued, and this number was not typed"
            ),
            "Type it to confirm.",
        )


def _check_alone(desk: Desk, place: QueuePlace) -> None:
    """Raises ConfigurationError where somebody else has begun a requeue of this queue."""
    with desk.worker.journal() as journal:
        check_alone(journal, place.name)


def _page(desk: Desk, asked: Asked, problem: str) -> Response:
    place = asked.place
    try:
        order, plan, look = _planned(desk, asked)
    except ConfigurationError as error:
        if not problem:
            raise
        # What was typed can't be used: it is shown with the defaults, and what is wrong with it.
        kept = {name: asked.text(name) for name in ("queue", "literal", "group", "where", "reason")}
        asked = Asked({name: value for name, value in kept.items() if value}, asked.root)
        order, plan, look = _planned(desk, asked)
        problem = str(error)
    return desk.page(
        "plan",
        asked,
        "Plan",
        {
            "place": place,
            "standing": Freshness.of(desk, place, look),
            "is_old": look.as_of is None or _age_of(look) > _OLD,
            "order": order,
            "plan": plan,
            "places": _places(desk, place, order, plan),
            "problem": problem,
            "unfinished": _unfinished(desk, place),
            "many": MANY,
            "most_redrives": MOST_REDRIVES,
            "canary": min(order.guards.canary, plan.count),
            "rate": int(order.rate or 0),
            "pace": order.pace_by_depth or 0,
            "stop_at": 100 if order.guards.stop_at is None else round(order.guards.stop_at * 100),
            "goes_on": order.guards.unknown is Unknown.GO_ON,
            "may": desk.may(OperatorAct.REQUEUE, place),
            "may_edit": not desk.settings.hide_bodies and desk.may(OperatorAct.EDIT, place),
            "command": requeue_command(place, order, asked.text("reason") or "…"),
        },
        400 if problem else 200,
    )


def _unfinished(desk: Desk, place: QueuePlace) -> list[JobRecord]:
    """The requeues of a queue that did not get to their end of late, and could be resumed."""
    since = datetime.now(UTC) - _LATELY
    return [
        job
        for job in desk.memory.known.jobs
        if (job.queue, job.literal) == (place.name, place.literal)
        and job.kind == "requeue"
        and job.state in RESUMABLE
        and job.changed_at > since
        and job.sent + job.not_sent < job.planned
    ][:_MOST_UNFINISHED]


def _age_of(look: Look) -> timedelta:
    assert look.as_of is not None
    return datetime.now(UTC) - look.as_of


def _places(desk: Desk, place: QueuePlace, order: Order, plan: Plan) -> list[Whereabouts]:
    """What is in the queues that messages go to, and who consumes them, as far as the broker says
    it."""
    failed = desk.recollection.queue(place)
    try:
        if order.to is not None:
            return [whereabouts_of(failed, order.to)]
        judge = plan.direction.judge
        return [whereabouts_of(failed, queue, judge) for queue in plan.queues[:5]]
    except RedriveError:
        return []
