"""`redrive declare`: creates the queues of a subscription on the broker, or prints how the broker
differs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from redrive.cli import options
from redrive.cli.output import Cell, OutputFormat, Printer, TableColumn
from redrive.duration_text import format_duration
from redrive.errors import RedriveError
from redrive.number_text import count_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking import declarer
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.delay_policy import Policy
from redrive.topology.diff import (
    Difference,
    Differs,
    Missing,
    Retired,
    Stale,
    compare,
    merged,
    sentence_of,
    stale_bindings,
)
from redrive.topology.durations import duration_of
from redrive.topology.formats import json_of
from redrive.topology.model import Binding, Exchange, Queue, QueueType, RetryVia, Subscription
from redrive.topology.policy import RetryPolicy

_USUAL = RetryPolicy()
_COLUMNS = (TableColumn("object", give=True, wrap=True), TableColumn("state"))
_STYLES = {"exists": "", "differs": "red", "created": "green", "bound": "green"}
_Object = Exchange | Queue | Binding | Policy


@options.expanded
def declare(
    queue: Annotated[
        str,
        typer.Option(
            "--queue", metavar="QUEUE", help="The main queue, by convention service@subscription."
        ),
    ],
    routing_keys: Annotated[
        list[str],
        typer.Option(
            "--routing-key",
            metavar="PATTERN",
            help="What it subscribes to: user.*, order.#. Can be repeated.",
        ),
    ],
    retry_delay: Annotated[
        str,
        typer.Option(
            "--retry-delay",
            metavar="DURATION",
            help="How long a message waits for its next attempt: 500ms, 30s, 5m, 1h30m, 1d.",
        ),
    ] = format_duration(_USUAL.delay),
    max_retries: Annotated[
        int,
        typer.Option(
            "--max-retries",
            metavar="N",
            help="Checked but not stored: each subscriber has its own.",
        ),
    ] = _USUAL.max_retries,
    queue_type: Annotated[
        str,
        typer.Option(
            "--queue-type", metavar="quorum|classic", help="The type of all three queues."
        ),
    ] = "quorum",
    retry_via: Annotated[
        str,
        typer.Option(
            "--retry-via",
            metavar="dead-letter|republish|broker",
            help="How a failed message comes back. republish is for classic queues that PHP or "
            "Java services declare too; broker needs RabbitMQ 4.3, which holds failed messages "
            "back in the main queue.",
        ),
    ] = "dead-letter",
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered",
            help="Keep the order: one consumer, one message at a time; a failed message is retried "
            "before the next one.",
        ),
    ] = False,
    max_failed: Annotated[
        int | None,
        typer.Option(
            "--max-failed",
            metavar="N",
            min=1,
            show_default=False,
            help="How many messages the failed queue holds. Once it is full, failing messages stay "
            "in the main queue.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove bindings of patterns that are no longer given."),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Create the queues of a subscription.

    It creates the exchanges and bindings too. A second run changes nothing. A queue or an exchange
    that exists with other arguments is left alone: the command prints the difference and exits with
    1.

    With --dry-run it only compares, and exits with 1 if something exists that differs.

    \b
    Example:
      redrive declare --queue ucenter@user --routing-key 'user.*' --retry-delay 1m
    """
    printer = Printer(output)
    policy = RetryPolicy(max_retries, duration_of(retry_delay))
    family = broker.family
    # The subscription validates queue_type and retry_via; its errors list the valid values.
    subscription = Subscription(
        queue,
        routing_keys,
        family,
        policy,
        cast(QueueType, queue_type),
        cast(RetryVia, retry_via),
        ordered=ordered,
        max_failed=max_failed,
    )
    for warning in subscription.warnings:
        printer.note(f"Note: {warning}.")
    connector = Connector(broker.url, default_name("declare", queue))
    plan = _plan(connector, subscription, broker.management_url, prune=prune, dry_run=dry_run)
    if dry_run:
        _show(
            printer,
            plan,
            stale="would be removed" if prune else "would stay",
            missing="would be created",
            unseen="not checked",
        )
        raise typer.Exit(1 if plan.differs else 0)
    if plan.differs:
        raise plan.differs[0].mismatch
    if plan.stale and not _may_remove(printer, plan, yes=yes):
        printer.note("Nothing was changed.")
        raise typer.Exit(1)
    declarer.declare(connector, subscription)
    _unbind(connector, plan.stale)
    _show(printer, plan, stale="removed", missing="created", unseen="bound")
    if not prune:
        printer.note(
            "Bindings of patterns that are no longer given stay: AMQP can't list them. --prune "
            "shows and removes them."
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A subscription compared with the broker.

    Args:
        subscription: what should be on the broker.
        version: the broker's version.
        found: the differences.
        dry_run: whether nothing is changed.
        sees_bindings: whether missing bindings are among the differences.
        blind: why bindings could not be compared, if that was tried.
    """

    subscription: Subscription
    version: BrokerVersion
    found: list[Difference]
    dry_run: bool
    sees_bindings: bool = False
    blind: str = ""

    @property
    def differs(self) -> list[Differs]:
        return [difference for difference in self.found if isinstance(difference, Differs)]

    @property
    def stale(self) -> list[Binding]:
        return [difference.binding for difference in self.found if isinstance(difference, Stale)]


def _plan(
    connector: Connector,
    subscription: Subscription,
    management_url: str | None,
    *,
    prune: bool,
    dry_run: bool,
) -> _Plan:
    with declarer.declaring(connector) as opened:
        version = opened.version
    subscription.check_broker(version)
    topology = subscription.topology()
    found = declarer.differences(connector, topology)
    if not prune and not dry_run:
        return _Plan(subscription, version, found, dry_run)
    try:
        with ManagementAPI(connector.url, management_url) as management:
            if dry_run:
                return _Plan(
                    subscription,
                    version,
                    merged(found, compare(topology, management.observe())),
                    dry_run,
                    sees_bindings=True,
                )
            found.extend(map(Stale, stale_bindings(topology, management.bindings())))
    except RedriveError as error:
        if prune:
            raise
        return _Plan(
            subscription, version, found, dry_run, blind=str(error).partition("\n")[0].rstrip(".")
        )
    return _Plan(subscription, version, found, dry_run)


def _may_remove(printer: Printer, plan: _Plan, *, yes: bool) -> bool:
    for binding in plan.stale:
        printer.note(f"No longer wanted: {sentence_of(binding)}")
    return printer.confirm(f"Remove {count_of(len(plan.stale), 'binding')}?", yes=yes)


def _unbind(connector: Connector, stale: list[Binding]) -> None:
    if stale:
        with declarer.declaring(connector) as opened:
            for binding in stale:
                opened.unbind(binding)


def _show(printer: Printer, plan: _Plan, *, missing: str, unseen: str, stale: str) -> None:
    """Print each object with its state, as a table or as JSON."""
    rows = list(_states(plan, missing=missing, unseen=unseen, stale=stale))
    if printer.for_programs:
        printer.result(
            {
                "queue": plan.subscription.queue,
                "broker": str(plan.version),
                "dry_run": plan.dry_run,
                "objects": [
                    {**json_of(what), "state": state, "differences": _arguments(differs)}
                    for what, state, differs in rows
                ],
            }
        )
    else:
        printer.table(
            _COLUMNS,
            [
                (sentence_of(what), Cell(state, _STYLES.get(state, "yellow")))
                for what, state, _ in rows
            ],
        )
        for difference in plan.differs:
            printer.block(str(difference), "red")
    if plan.blind:
        printer.note(f"Bindings were not compared: {plan.blind}.")


def _states(
    plan: _Plan, *, missing: str, unseen: str, stale: str
) -> Iterator[tuple[_Object, str, list[Differs]]]:
    gone = [difference.what for difference in plan.found if isinstance(difference, Missing)]
    for what in plan.subscription.topology().objects:
        differs = (
            []
            if isinstance(what, Binding)
            else [found for found in plan.differs if found.mismatch.name == what.name]
        )
        if what in gone:
            yield what, missing, []
        elif isinstance(what, Binding) and not plan.sees_bindings:
            yield what, unseen, []
        else:
            yield what, "differs" if differs else "exists", differs
    for binding in plan.stale:
        yield binding, stale, []
    for found in plan.found:
        if isinstance(found, Retired):
            yield found.what, "would stay", []


def _arguments(differs: list[Differs]) -> list[dict[str, str]]:
    return [
        {"argument": d.mismatch.argument, "wanted": d.mismatch.wanted, "found": d.mismatch.found}
        for d in differs
    ]
