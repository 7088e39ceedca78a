"""`redrive declare`: makes what a subscription needs on the broker, or says how the broker differs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from redrive.cli import options
from redrive.cli.output import Cell, Column, Form, Printer, count_of
from redrive.errors import RedriveError
from redrive.pubsub.blocking import declare as broker
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.management import Management
from redrive.topology.broker import BrokerVersion
from redrive.topology.compare import Difference, Differs, Missing, Retired, Stale, compare, merged, sentence_of, stale_bindings
from redrive.topology.drawing import json_of
from redrive.topology.durations import duration_of, text_of
from redrive.topology.model import Binding, Exchange, Queue, QueueType, RetryVia, Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy

_USUAL = RetryPolicy()
_COLUMNS = (Column("object", give=True, wrap=True), Column("state"))
_STYLES = {"there": "", "differs": "red", "made": "green", "bound": "green"}
_Object = Exchange | Queue | Binding


def declare(
    queue: Annotated[str, typer.Option("--queue", metavar="QUEUE", help="The main queue, by convention service@subscription.")],
    routing_keys: Annotated[
        list[str],
        typer.Option("--routing-key", metavar="PATTERN", help="What it subscribes to: user.*, order.#. May be given several times."),
    ],
    retry_delay: Annotated[
        str, typer.Option("--retry-delay", metavar="DURATION", help="How long a failed message waits: 500ms, 30s, 5m, 1h30m, 1d.")
    ] = text_of(_USUAL.delay),
    max_retries: Annotated[
        int,
        typer.Option(
            "--max-retries",
            metavar="N",
            help="Checked, but not stored: the broker knows nothing of it. Each subscriber brings its own.",
        ),
    ] = _USUAL.max_retries,
    queue_type: Annotated[str, typer.Option("--queue-type", metavar="quorum|classic", help="The type of all three queues.")] = "quorum",
    retry_via: Annotated[
        str,
        typer.Option(
            "--retry-via",
            metavar="dead-letter|republish",
            help="How a failed attempt gets to the retry queue; republish for classic queues that PHP or Java services declare as well.",
        ),
    ] = "dead-letter",
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One consumer at a time, one message at a time; a failed one is tried again in its place.")
    ] = False,
    max_failed: Annotated[
        int | None,
        typer.Option(
            "--max-failed",
            metavar="N",
            min=1,
            show_default=False,
            help="How many messages the failed queue takes. Over that it refuses, and what fails stays in the main queue.",
        ),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove the bindings of patterns that are no longer asked for.")] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    retry_suffix: options.RetrySuffix = options.DEFAULT_RETRY_SUFFIX,
    failed_suffix: options.FailedSuffix = options.DEFAULT_FAILED_SUFFIX,
    output: options.Output = Form.TABLE,
) -> None:
    """Make the exchanges, queues and bindings of a subscription.

    A second run changes nothing. A queue or an exchange that is there with other arguments is never touched: the command says what
    differs, and exits with 1.

    With --dry-run it only compares. It exits with 1 where something is there that can't be declared as asked.

    \b
    Example:
      redrive declare --queue ucenter@user --routing-key 'user.*' --retry-delay 1m
    """
    printer = Printer(output)
    policy = RetryPolicy(max_retries, duration_of(retry_delay))
    family = ExchangeFamily(exchange, retry_suffix, failed_suffix)
    # The subscription checks these two itself, and says which there are.
    subscription = Subscription(
        queue, routing_keys, family, policy, cast(QueueType, queue_type), cast(RetryVia, retry_via), ordered=ordered, max_failed=max_failed
    )
    connector = Connector(url, default_name("declare", queue))
    plan = _plan(connector, subscription, management_url, prune=prune, dry_run=dry_run)
    if dry_run:
        _show(printer, plan, stale="would be removed" if prune else "would stay", missing="would be made", unseen="not looked at")
        raise typer.Exit(1 if plan.differs else 0)
    if plan.differs:
        raise plan.differs[0].mismatch
    if plan.stale and not _may_remove(printer, plan, yes=yes):
        printer.note("Nothing was changed.")
        raise typer.Exit(1)
    broker.declare(connector, subscription)
    _unbind(connector, plan.stale)
    _show(printer, plan, stale="removed", missing="made", unseen="bound")
    if not prune:
        printer.note("Bindings of patterns that are no longer asked for stay: AMQP can't list them. --prune shows and removes them.")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A subscription against the broker.

    Args:
        subscription: what is asked for.
        version: the broker's.
        found: what differs.
        dry_run: whether it is only looked at.
        sees_bindings: whether missing bindings are among what was found.
        blind: why bindings could not be looked at, where that was tried.
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


def _plan(connector: Connector, subscription: Subscription, management_url: str | None, *, prune: bool, dry_run: bool) -> _Plan:
    with broker.declaring(connector) as declarer:
        version = declarer.version
    subscription.check_broker(version)
    topology = subscription.topology()
    found = broker.differences(connector, topology)
    if not prune and not dry_run:
        return _Plan(subscription, version, found, dry_run)
    try:
        with Management(connector.url, management_url) as management:
            if dry_run:
                return _Plan(subscription, version, merged(found, compare(topology, management.observe())), dry_run, sees_bindings=True)
            found.extend(map(Stale, stale_bindings(topology, management.bindings())))
    except RedriveError as error:
        if prune:
            raise
        return _Plan(subscription, version, found, dry_run, blind=str(error).partition("\n")[0].rstrip("."))
    return _Plan(subscription, version, found, dry_run)


def _may_remove(printer: Printer, plan: _Plan, *, yes: bool) -> bool:
    for binding in plan.stale:
        printer.note(f"No longer asked for: {sentence_of(binding)}")
    return printer.confirm(f"Remove {count_of(len(plan.stale), 'binding')}?", yes=yes)


def _unbind(connector: Connector, stale: list[Binding]) -> None:
    if stale:
        with broker.declaring(connector) as declarer:
            for binding in stale:
                declarer.unbind(binding)


def _show(printer: Printer, plan: _Plan, *, missing: str, unseen: str, stale: str) -> None:
    """Each object with what became of it: one list, for people and for programs."""
    rows = list(_states(plan, missing=missing, unseen=unseen, stale=stale))
    if printer.as_json:
        printer.result(
            {
                "queue": plan.subscription.queue,
                "broker": str(plan.version),
                "dry_run": plan.dry_run,
                "objects": [{**json_of(what), "state": state, "differences": _arguments(differs)} for what, state, differs in rows],
            }
        )
    else:
        printer.table(_COLUMNS, [(sentence_of(what), Cell(state, _STYLES.get(state, "yellow"))) for what, state, _ in rows])
        for difference in plan.differs:
            printer.block(str(difference), "red")
    if plan.blind:
        printer.note(f"Bindings were not compared: {plan.blind}.")


def _states(plan: _Plan, *, missing: str, unseen: str, stale: str) -> Iterator[tuple[_Object, str, list[Differs]]]:
    gone = [difference.what for difference in plan.found if isinstance(difference, Missing)]
    for what in plan.subscription.topology().objects:
        differs = [] if isinstance(what, Binding) else [found for found in plan.differs if found.mismatch.name == what.name]
        if what in gone:
            yield what, missing, []
        elif isinstance(what, Binding) and not plan.sees_bindings:
            yield what, unseen, []
        else:
            yield what, "differs" if differs else "there", differs
    for binding in plan.stale:
        yield binding, stale, []
    for found in plan.found:
        if isinstance(found, Retired):
            yield found.what, "would stay", []


def _arguments(differs: list[Differs]) -> list[dict[str, str]]:
    return [{"argument": d.mismatch.argument, "wanted": d.mismatch.wanted, "found": d.mismatch.found} for d in differs]
