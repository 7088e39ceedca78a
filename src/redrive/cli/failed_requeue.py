"""`redrive failed requeue`: requeues failed messages, after showing which."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import (
    cause_options,
    edit_options,
    guards,
    job_options,
    job_run,
    message_options,
    messages,
    options,
)
from redrive.cli.look_output import asked, check_read, chosen_by_id, planned
from redrive.cli.output import OutputFormat, Printer, TableColumn
from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue, carry_out, plan_order
from redrive.failures.jobs.job_stop import in_words, running_on
from redrive.failures.message.cause import Cause
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failed_queue_base import source_of
from redrive.failures.queue.failed_source import FailedSource
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.rehearsal.rehearsal import rehearsed_in
from redrive.number_text import count_of
from redrive.redaction import in_one_line
from redrive.topology.rates import rate_of

_MOST_GROUPS = 10
_MOST_WAYS = 10


@options.expanded
def requeue(
    queue: options.FailedQueueName,
    where: message_options.Where = None,
    groups: message_options.Group = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Only the message with this id. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    rehearsed: Annotated[
        Path | None,
        typer.Option(
            "--rehearsed",
            metavar="FILE",
            help="Only the messages that would succeed, as this report of `redrive failed try "
            "--output json` says.",
            show_default=False,
        ),
    ] = None,
    limit: message_options.Limit = None,
    rate: options.Rate = None,
    pace_by_depth: Annotated[
        int | None,
        typer.Option(
            "--pace-by-depth",
            metavar="N",
            min=1,
            help="Send only while the queue that they go to has fewer than N ready messages.",
            show_default=False,
        ),
    ] = None,
    to: options.To = None,
    via: options.Via = False,
    unchecked: guards.Unchecked = False,
    *,
    change: edit_options.EditOptions,
    guard: guards.GuardOptions,
    reason: job_options.Reason = "",
    journal: job_options.JournalFile = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    broker: options.SourceOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Requeue failed messages to where they failed.

    That is the main queue of a subscription. A message of another dead-letter queue names its
    queue, and the broker's topology has to agree, or the message stays. Each message gets a fresh
    retry budget. The command shows what it would requeue and asks. Ctrl-C stops it cleanly: the
    rest stays in the failed queue, and `redrive jobs resume` continues. It exits with 1 if a
    message could not be sent, or if --canary or --stop-at stopped it.

    \b
    Example:
      redrive failed requeue ucenter@user --group 3f2a9c1e5b7d --rate 200/s
    """
    printer = Printer(output)
    failed = message_options.failed_queue_of(printer, queue, broker)
    source = source_of(failed)
    filter_ = cause_options.resolved(broker.url, message_options.filter_of(where, groups))
    found: list[FailedMessage] | None = None
    if rehearsed is not None:
        report = rehearsed_in(_bytes_of(rehearsed), str(rehearsed))
        ids = [*(ids or ()), *report.ids]
        reason = reason or report.in_words
    if ids:
        found = chosen_by_id(printer, failed, ids)
        filter_ = replace(filter_, digests=frozenset(one.digest for one in found))
        limit = min(limit or len(found), len(found))  # once these are sent, the look ends
    order = Order(
        filter_,
        limit,
        to,
        None if rate is None else rate_of(rate),
        guard.guards,
        guard.force,
        via=via,
        pace_by_depth=pace_by_depth,
        unchecked=unchecked,
    )
    one_way = to or (None if via else source.main)
    order, found = edit_options.changing(
        order, change, lambda read: _read(printer, failed, read), found
    )
    if found is not None:
        plan = plan_order(failed, order, found)
    elif order.takes_the_first and yes and not dry_run and one_way is not None:
        # No question, no filter: a look would hold the whole queue only to show the causes.
        depth = failed.count()
        plan = Plan(count=min(limit or 0, 0 if depth is None else depth.total))
    else:
        plan = planned(printer, failed, order)
    message_options.check_groups(groups, plan.matching, source.queue)
    if not dry_run and guards.ask_unchecked(printer, plan.left, yes=yes):
        order = replace(order, unchecked=True)
        plan = plan_order(failed, order, found)
    places = job_run.places_of(failed, one_way, plan)
    if dry_run or not plan.count:
        printer.result(job_run.json_of(source.name, plan, None))
    _tell_plan(printer, source, order, plan)
    if not plan.count:
        if plan.matching:
            raise typer.Exit(1)
        return
    guards.tell(printer, places)
    if dry_run:
        return
    if not guards.ask(printer, plan.count, places, guarded=order.guards.are_up, yes=yes):
        printer.note("Nothing was requeued.")
        raise typer.Exit(1)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        other = running_on(opened, source.name)
        if other is not None:
            printer.note(f"{in_words(other)}. This waits for its turn; nothing is sent twice.")
        run = partial(carry_out, failed, order, plan, reason=reason, journal=opened)
        job_run.run_job(printer, failed, order, plan, run)


def _read(printer: Printer, failed: FailedQueue, read: edit_options.Read) -> list[FailedMessage]:
    """Return the messages of a failed queue that `read` chooses."""
    name = source_of(failed).queue
    found, look = asked(printer, failed, name, read)
    check_read(name, look.looked_at, look.missing)
    return found


def _tell_plan(printer: Printer, taken: FailedSource, order: Order, plan: Plan) -> None:
    source = taken.queue
    guards.tell_too_often(printer, plan.too_often)
    guards.tell_left(printer, plan.left)
    if not plan.count:
        why = (
            "is empty"
            if not plan.looked_at
            else f"has no message that matches ({plan.looked_at:,} read)"
            if not plan.matching
            else "has no other message"
        )
        printer.say(f"{source} {why}: nothing to requeue.")
        return
    if not plan.looked_at:
        printer.say(
            f"The {count_of(plan.count, 'oldest message')} of {source} would be requeued to "
            f"{order.to or taken.main}; --dry-run shows which."
        )
        return
    what = (
        count_of(plan.count, "message")
        if plan.is_cut or plan.count == plan.looked_at
        else f"{plan.count:,} of {count_of(plan.looked_at, 'message')}"
    )
    limit = f" (--limit {order.limit})" if plan.is_cut else ""
    where = job_run.where_to(plan)
    printer.say(f"{what} of {source} would be requeued to {where}{limit}:")
    _tell_ways(printer, plan)
    _tell_groups(printer, plan.groups)
    messages.tell_shared_ids(printer, plan.shared_ids)
    printer.say("" if plan.count <= len(plan.first) else f"\nThe first {len(plan.first)} of them:")
    messages.table(printer, plan.first)
    if order.edit() is not None:
        edit_options.tell(printer, plan)


def _tell_ways(printer: Printer, plan: Plan) -> None:
    """Print how many messages go where, if that differs or if other queues get copies."""
    if len(plan.ways) > 1:
        columns = (TableColumn("to", give=True), TableColumn("count", "right"))
        ways = plan.ways.most_common(_MOST_WAYS)
        printer.table(columns, [(in_one_line(str(way)), f"{count:,}") for way, count in ways])
        if len(plan.ways) > _MOST_WAYS:
            printer.say(f"… and {count_of(len(plan.ways) - _MOST_WAYS, 'more queue')}.")
    if any(way.exchange for way in plan.ways):
        printer.say(
            "Every queue that is bound to such an exchange with a matching key gets a copy.",
            "yellow",
        )


def _tell_groups(printer: Printer, groups: Counter[Cause]) -> None:
    columns = (
        TableColumn("group"),
        TableColumn("count", "right"),
        TableColumn("cause", give=True, wrap=True),
    )
    printer.table(
        columns,
        [
            (cause.group_id, f"{count:,}", cause.in_words)
            for cause, count in groups.most_common(_MOST_GROUPS)
        ],
    )
    if len(groups) > _MOST_GROUPS:
        printer.say(f"… and {count_of(len(groups) - _MOST_GROUPS, 'more group')}.")


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{file} can't be read: {error.strerror or error}", "Check its path."
        ) from error
