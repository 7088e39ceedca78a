"""`redrive topology plan`, `apply` and `check`: show what a file would change on the broker, and
change it."""

from collections.abc import Sequence
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.cli.topology_drift import (
    Drift,
    File,
    connector_for,
    look,
    remove_policies,
    set_delays,
    subscriptions_in,
)
from redrive.errors import TopologyMismatch
from redrive.number_text import count_of
from redrive.pubsub.blocking import declarer
from redrive.topology.delay_policy import Policy
from redrive.topology.diff import Differs, sentence_of
from redrive.topology.formats import json_of
from redrive.topology.model import Binding, Exchange, Queue

_BY_HAND = (
    "Delete each once nothing uses it (a queue: once it is empty); `redrive topology apply` "
    "creates it again."
)

Prune = Annotated[
    bool, typer.Option("--prune", help="Remove bindings that the file does not ask for.")
]


@options.expanded
def plan(
    file: File,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show what a file would change on the broker.

    It changes nothing. Each line begins with a sign: + for what `apply` would create; ~ for what
    exists with other arguments (`migrate` changes those of a subscription's queues; an exchange has
    to be deleted by hand and created again); * for a delay that `apply` changes by policy, while
    the queue is in use; - for a binding that only `apply --prune` removes; x for what `apply`
    always removes: tag filters that changed and the bindings around them, and policies for
    delays that are no longer set by policy. It exits with 1 if something exists with other
    arguments.

    \b
    Example:
      redrive topology plan topology.yaml
    """
    printer = Printer(output)
    drift = look(
        connector_for(broker.url, "plan", file),
        subscriptions_in(file),
        broker.management_url,
        blind=True,
    )
    _show(printer, drift)
    raise typer.Exit(1 if drift.differs else 0)


@options.expanded
def check(
    file: File,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Check that the broker is as a file says.

    For CI: it exits with 1 if anything is missing, different or no longer wanted.

    \b
    Example:
      redrive topology check topology.yaml
    """
    printer = Printer(output)
    drift = look(
        connector_for(broker.url, "check", file),
        subscriptions_in(file),
        broker.management_url,
        blind=False,
    )
    _show(printer, drift)
    raise typer.Exit(1 if drift.found else 0)


@options.expanded
def apply(
    file: File,
    prune: Prune = False,
    yes: options.Yes = False,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Create what a file asks for.

    It creates what is missing, sets delays that the file sets by policy (delay_by: policy), and
    removes the leftovers of tags that changed. If something exists with other arguments it creates
    nothing: it prints the difference and exits with 1. A second run, or one after an interruption,
    creates what is still missing.

    \b
    Example:
      redrive topology apply topology.yaml --prune
    """
    printer = Printer(output)
    connector = connector_for(broker.url, "apply", file)
    drift = look(connector, subscriptions_in(file), broker.management_url, blind=not prune)
    if drift.differs:
        _show(printer, drift)
        raise drift.differs[0].mismatch
    stale = drift.stale if prune else []
    for binding in stale:
        printer.note(f"No longer wanted: {sentence_of(binding)}")
    if stale and not printer.confirm(f"Remove {count_of(len(stale), 'binding')}?", yes=yes):
        printer.note("Nothing was changed.")
        raise typer.Exit(1)
    # Before the queues: without its delay, a queue returns failed messages at once.
    set_delays(connector, broker.management_url, drift.due)
    for subscription in drift.subscriptions:
        declarer.declare(connector, subscription)
    remove_policies(connector, broker.management_url, drift.retired)
    with declarer.declaring(connector) as opened:
        for what in _left(drift):
            opened.delete(what)
        for binding in stale:
            opened.unbind(binding)
    _show(printer, drift, done=True, pruned=prune)


def _left(drift: Drift) -> list[Exchange]:
    """Return the old filters, and the pointers to them, that are left once everything is declared.

    By then, a pointer that the file asks for names the right filter.
    """
    wanted = {pointer.name for pointer in drift.topology.pointers}
    return [
        what for what in drift.retired if isinstance(what, Exchange) and what.name not in wanted
    ]


def _show(printer: Printer, drift: Drift, *, done: bool = False, pruned: bool = False) -> None:
    if drift.blind:
        printer.note(f"Bindings were not compared: {drift.blind}.")
    for subscription in drift.subscriptions:
        for warning in subscription.warnings:
            printer.note(f"Note: {warning}.")
    if printer.for_programs:
        printer.result(_json(drift, done=done))
        return
    for what in drift.missing:
        printer.say(f"+ {sentence_of(what)}", "green")
    for differs in drift.differs:
        found = differs.mismatch
        printer.say(
            f"~ {found.kind} {found.name}: {found.argument} is {found.found}, the file says "
            f"{found.wanted}",
            "yellow",
        )
    for change in drift.due:
        printer.say(f"* {change}", "green")
    for binding in drift.stale:
        printer.say(f"- {sentence_of(binding)}", "red")
    for left in drift.retired:
        printer.say(f"x {sentence_of(left)}{_why(left)}", "red")
    printer.say(_summary(drift, done=done, pruned=pruned))
    if drift.by_hand:
        printer.say(
            "By hand: neither RabbitMQ nor `migrate` can change "
            f"{', '.join(_objects_in(drift.by_hand))}. {_BY_HAND}"
        )


def _objects_in(differing: list[Differs]) -> list[str]:
    """Return the objects that differ, each once."""
    return list(
        dict.fromkeys(f"{differs.mismatch.kind} {differs.mismatch.name}" for differs in differing)
    )


def _why(what: Exchange | Binding | Policy) -> str:
    match what:
        case Policy():
            return ": the delay is no longer set by it"
        case Binding():
            return ": it bypasses the tag filter"
        case Exchange(_, "headers"):
            return ": a tag filter that is no longer wanted"
        case _:
            return ": it names a tag filter that is no longer wanted"


def _summary(drift: Drift, *, done: bool, pruned: bool) -> str:
    if not drift.found:
        how_far = "as far as AMQP can tell, " if drift.blind else ""
        return f"Nothing to do: {how_far}the broker (RabbitMQ {drift.version}) is as the file says."
    removed = len(drift.retired) + (len(drift.stale) if pruned else 0)
    blind = "; all bindings declared" if done and drift.blind else ""
    parts = (
        (_kinds_of(drift.missing), f"{'created' if done else 'to create'}{blind}"),
        (
            count_of(len(drift.due), "delay") if drift.due else "",
            "set by policy" if done else "to set by policy",
        ),
        (_number(len(_objects_in(drift.to_migrate))), "to migrate"),
        (_number(len(_objects_in(drift.by_hand))), "to delete by hand and create again"),
        (_number(removed), "removed" if done else "to remove"),
        (_number(0 if pruned else len(drift.stale)), "no longer wanted"),
    )
    return f"{', '.join(f'{number} {what}' for number, what in parts if number)}."


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _kinds_of(objects: Sequence[Exchange | Queue | Binding]) -> str:
    """Return how many objects of each kind there are; empty if there are none."""
    counts = [
        count_of(number, kind.__name__.lower())
        for kind in (Exchange, Queue, Binding)
        if (number := sum(isinstance(one, kind) for one in objects))
    ]
    return " and ".join(part for part in (", ".join(counts[:-1]), *counts[-1:]) if part)


def _json(drift: Drift, *, done: bool) -> dict[str, object]:
    return {
        "broker": str(drift.version),
        "done": done,
        "in_sync": None if drift.blind and not drift.found else not drift.found,
        "make": [json_of(what) for what in drift.missing],
        "set": [json_of(change.policy) for change in drift.due],
        "migrate": [_json_of(differs.mismatch) for differs in drift.to_migrate],
        "by_hand": [_json_of(differs.mismatch) for differs in drift.by_hand],
        "remove": [json_of(binding) for binding in drift.stale],
        "retire": [json_of(what) for what in drift.retired],
        "bindings_compared": not drift.blind,
    }


def _json_of(mismatch: TopologyMismatch) -> dict[str, str]:
    return {
        "kind": mismatch.kind,
        "name": mismatch.name,
        "argument": mismatch.argument,
        "found": mismatch.found,
        "wanted": mismatch.wanted,
    }
