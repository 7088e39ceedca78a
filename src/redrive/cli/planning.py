"""`redrive topology plan`, `apply` and `check`: what a file would change on the broker, and changing it."""

from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.drift import Drift, File, connector_for, look, subscriptions_in
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import TopologyMismatch
from redrive.pubsub.blocking import declare as broker
from redrive.topology.compare import Differs, sentence_of
from redrive.topology.drawing import json_of
from redrive.topology.model import Binding, Exchange

_BY_HAND = "Delete each once nothing uses it (a queue: once it is empty); `redrive topology apply` makes it anew."

Prune = Annotated[bool, typer.Option("--prune", help="Remove bindings that the file does not ask for.")]


def plan(
    file: File,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Show what the file would change on the broker, and change nothing.

    + is what `apply` would make, ~ is what is there with other arguments (`migrate` changes those of a subscription's queues; an exchange
    is deleted by hand and made anew), - is a binding that only `apply --prune` removes, x is what `apply` removes in any case: filters of
    tags that changed, and the ways around a filter. It exits with 1 where something is there that can't be declared as asked.

    \b
    Example:
      redrive topology plan topology.yaml
    """
    printer = Printer(output)
    drift = look(connector_for(url, "plan", file), subscriptions_in(file), management_url, blind=True)
    _show(printer, drift)
    raise typer.Exit(1 if drift.differs else 0)


def check(
    file: File,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Check, for CI, that the broker is as the file says: exit with 1 where anything is missing, different or no longer asked for.

    \b
    Example:
      redrive topology check topology.yaml
    """
    printer = Printer(output)
    drift = look(connector_for(url, "check", file), subscriptions_in(file), management_url, blind=False)
    _show(printer, drift)
    raise typer.Exit(1 if drift.found else 0)


def apply(
    file: File,
    prune: Prune = False,
    yes: options.Yes = False,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Make what the file asks for and is not there, and remove what tags that changed leave behind.

    Where something is there with other arguments, nothing at all is made: it says what differs, and exits with 1. A second run, or
    one after a run that was cut off, makes what is still missing.

    \b
    Example:
      redrive topology apply topology.yaml --prune
    """
    printer = Printer(output)
    connector = connector_for(url, "apply", file)
    drift = look(connector, subscriptions_in(file), management_url, blind=not prune)
    if drift.differs:
        _show(printer, drift)
        raise drift.differs[0].mismatch
    stale = drift.stale if prune else []
    for binding in stale:
        printer.note(f"No longer asked for: {sentence_of(binding)}")
    if stale and not printer.confirm(f"Remove {count_of(len(stale), 'binding')}?", yes=yes):
        printer.note("Nothing was changed.")
        raise typer.Exit(1)
    for subscription in drift.subscriptions:
        broker.declare(connector, subscription)
    with broker.declaring(connector) as declarer:
        for what in _left(drift):
            declarer.delete(what)
        for binding in stale:
            declarer.unbind(binding)
    _show(printer, drift, done=True, pruned=prune)


def _left(drift: Drift) -> list[Exchange]:
    """The old filters, and the pointers to them, that are there once all is declared.

    A pointer that is asked for names the right filter by then.
    """
    wanted = {pointer.name for pointer in drift.topology.pointers}
    return [what for what in drift.retired if isinstance(what, Exchange) and what.name not in wanted]


def _show(printer: Printer, drift: Drift, *, done: bool = False, pruned: bool = False) -> None:
    if drift.blind:
        printer.note(f"Bindings were not compared: {drift.blind}.")
    if printer.as_json:
        printer.result(_json(drift, done=done))
        return
    for what in drift.missing:
        printer.say(f"+ {sentence_of(what)}", "green")
    for differs in drift.differs:
        found = differs.mismatch
        printer.say(f"~ {found.kind} {found.name}: {found.argument} is {found.found}, the file says {found.wanted}", "yellow")
    for binding in drift.stale:
        printer.say(f"- {sentence_of(binding)}", "red")
    for what in drift.retired:
        printer.say(f"x {sentence_of(what)}{_why(what)}", "red")
    printer.say(_summary(drift, done=done, pruned=pruned))
    if drift.by_hand:
        printer.say(f"By hand: neither RabbitMQ nor `migrate` changes {', '.join(_objects_in(drift.by_hand))}. {_BY_HAND}")


def _objects_in(differing: list[Differs]) -> list[str]:
    """The objects that differ, each once."""
    return list(dict.fromkeys(f"{differs.mismatch.kind} {differs.mismatch.name}" for differs in differing))


def _why(what: Exchange | Binding) -> str:
    match what:
        case Binding():
            return ": a way around the filter of tags"
        case Exchange(_, "headers"):
            return ": a filter of tags that are no longer asked for"
        case _:
            return ": it names a filter of tags that are no longer asked for"


def _summary(drift: Drift, *, done: bool, pruned: bool) -> str:
    if not drift.found:
        how_far = "as far as AMQP can tell, " if drift.blind else ""
        return f"Nothing to do: {how_far}the broker (RabbitMQ {drift.version}) is as the file says."
    removed = len(drift.retired) + (len(drift.stale) if pruned else 0)
    parts = (
        (len(drift.missing), "made" if done else "to make"),
        (len(_objects_in(drift.to_migrate)), "to migrate"),
        (len(_objects_in(drift.by_hand)), "to delete by hand and make anew"),
        (removed, "removed" if done else "to remove"),
        (0 if pruned else len(drift.stale), "no longer asked for"),
    )
    return f"{', '.join(f'{number} {what}' for number, what in parts if number)}."


def _json(drift: Drift, *, done: bool) -> dict[str, object]:
    return {
        "broker": str(drift.version),
        "done": done,
        "in_sync": None if drift.blind and not drift.found else not drift.found,
        "make": [json_of(what) for what in drift.missing],
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
