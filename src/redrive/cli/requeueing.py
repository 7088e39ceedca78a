"""`redrive failed requeue`: sends failed messages back, after saying which."""

import uuid
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import choosing, editing, guards, messages, options, sending
from redrive.cli.finding import find_some
from redrive.cli.grouping import cause_in_words
from redrive.cli.looking import looked_at
from redrive.cli.output import Column, Form, Printer, count_of
from redrive.failures.canary import Unknown
from redrive.failures.cause import Cause
from redrive.failures.journal import Journal
from redrive.failures.order import Order
from redrive.failures.plan import Plan, plan_of
from redrive.failures.record import Job
from redrive.failures.selection import Selection
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.config import BrokerURL
from redrive.pubsub.message import FailedMessage
from redrive.topology.moves import MOST_REDRIVES
from redrive.topology.names import failed_queue

_MOST_GROUPS = 10


def requeue(
    queue: options.Queue,
    where: choosing.Where = None,
    groups: choosing.Group = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this message. May be given several times.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help="How many at most, from the head of the queue; without one, all.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/s", help="How many a second at most: 200/s, or 30/m.", show_default=False)
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="Another queue that they go to, instead of their own.", show_default=False)
    ] = None,
    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch", metavar="FILE", help="Change JSON bodies by a JSON patch (RFC 6902) or merge patch (RFC 7386).", show_default=False
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="MODULE:FUNCTION", help="Change bodies by a function of yours: it gets a FailedMessage.", show_default=False
        ),
    ] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Change the bodies in $EDITOR.")] = False,
    canary: guards.Canary = None,
    watch: guards.Watch = None,
    stop_at: guards.StopAt = None,
    unknown: guards.OnUnknown = Unknown.STOP,
    force: guards.Force = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.", show_default=False)] = "",
    journal: sending.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Send failed messages back to their main queue, each with a fresh retry budget.

    It shows what would be sent, and asks. Ctrl-C finishes what is on its way, and leaves the rest in the failed queue; `redrive jobs
    resume` goes on. It exits with 1 where a message could not be sent, or a guard (--canary, --stop-at) stopped it.

    \b
    Example:
      redrive failed requeue ucenter@user --group 3f2a9c1e5b7d --rate 200/s
    """
    printer = Printer(output)
    failed = FailedQueue(url, queue, exchange, management_url=management_url)
    selection = choosing.selection_of(where, groups)
    found: list[FailedMessage] | None = None
    if ids:
        found = looked_at(printer, failed, failed_queue(queue), lambda messages: find_some(messages, ids, failed_queue(queue)))
        selection = Selection(where, frozenset(one.digest for one in found), selection.groups)
        limit = min(limit or len(found), len(found))  # once these are sent, nothing more is looked at
    order = Order(
        selection,
        limit,
        to,
        None if rate is None else options.rate_of(rate),
        canary or 0,
        guards.seconds_of(watch),
        None if stop_at is None else options.share_of(stop_at),
        force,
        unknown=unknown.value,
    )
    order = editing.changing(order, failed, patch, function, edit)
    if found is not None:
        plan = plan_of(order, found)
    elif order.takes_the_first and yes and not dry_run:
        # Nobody is asked, and nothing is chosen: a look would hold the whole queue only to show the causes.
        depth = failed.count()
        plan = Plan(count=min(limit or 0, 0 if depth is None else depth.total))
    else:
        plan = looked_at(printer, failed, failed_queue(queue), lambda messages: plan_of(order, messages))
    places = [failed.whereabouts(to)]
    if dry_run or not plan.count:
        printer.result(sending.json_of(queue, plan, None, None))
    _tell_plan(printer, queue, order, plan)
    if not plan.count:
        if plan.too_often:
            raise typer.Exit(1)
        return
    guards.tell(printer, places)
    if dry_run:
        return
    if not guards.ask(printer, plan.count, places, guarded=order.is_watched, yes=yes):
        printer.note("Nothing was sent.")
        raise typer.Exit(1)
    job = Job(
        str(uuid.uuid4()),
        "requeue",
        queue,
        BrokerURL.parse(url).address,
        order.as_json(),
        reason=reason,
        planned=plan.count,
        exchanges=failed.exchanges.as_json(),
    )
    with Journal(journal) as opened:
        sending.carry_out(printer, failed, opened, job, order, plan)


def _tell_plan(printer: Printer, queue: str, order: Order, plan: Plan) -> None:
    source = failed_queue(queue)
    if plan.too_often:
        printer.say(
            f"{count_of(plan.too_often, 'message')} stay: sent back {MOST_REDRIVES} times already; --force sends them all the same.",
            "yellow",
        )
    if not plan.count:
        why = (
            "is empty"
            if not plan.looked_at
            else f"has no message that matches ({plan.looked_at:,} looked at)"
            if not plan.too_often
            else "has no other"
        )
        printer.say(f"{source} {why}: there is nothing to send back.")
        return
    if not plan.looked_at:
        printer.say(f"The {count_of(plan.count, 'oldest message')} would go from {source} {_way(queue, order)}; --dry-run says which.")
        return
    what = count_of(plan.count, "message") if plan.count == plan.looked_at else f"{plan.count:,} of {count_of(plan.looked_at, 'message')}"
    printer.say(f"{what} would go from {source} {_way(queue, order)}:")
    _tell_groups(printer, plan.groups)
    messages.tell_shared_ids(printer, plan.shared_ids)
    printer.say("" if plan.count <= len(plan.first) else f"\nThe first {len(plan.first)} of them:")
    messages.table(printer, plan.first)
    if order.edit() is not None:
        editing.tell(printer, plan)


def _way(queue: str, order: Order) -> str:
    return f"back to {queue}" if order.to is None else f"to {order.to}"


def _tell_groups(printer: Printer, groups: Counter[Cause]) -> None:
    columns = (Column("group"), Column("count", "right"), Column("cause", give=True, wrap=True))
    printer.table(columns, [(cause.group_id, f"{count:,}", cause_in_words(cause)) for cause, count in groups.most_common(_MOST_GROUPS)])
    if len(groups) > _MOST_GROUPS:
        printer.say(f"… and {count_of(len(groups) - _MOST_GROUPS, 'more group')}.")
