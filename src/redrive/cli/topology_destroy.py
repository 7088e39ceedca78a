"""`redrive topology destroy`: deletes what a file describes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.cli.topology_drift import File, connector_for, subscriptions_in, wanted_by
from redrive.errors import ConfigurationError, RedriveError
from redrive.number_text import count_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import Declarer, Depth, declaring
from redrive.topology.delay_policy import Policy, queue_of
from redrive.topology.diff import Observed, retired_exchanges, sentence_of
from redrive.topology.file_schema import union_of
from redrive.topology.formats import json_of
from redrive.topology.ladder import ladder_there, others_on_ladder, without_ladder
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology


@options.expanded
def destroy(
    file: File,
    with_messages: Annotated[
        bool,
        typer.Option(
            "--with-messages", help="Delete queues that have messages too, with their messages."
        ),
    ] = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Delete what a file describes.

    It deletes the queues, the policies that set their delays and, if nothing else uses them, the
    exchanges. If one of the queues has a consumer or, without --with-messages, a message, it
    deletes nothing and exits with 1. The delay ladder stays if others use it, or if the management
    API, which alone knows, does not answer.

    \b
    Example:
      redrive topology destroy topology.yaml
    """
    printer = Printer(output)
    connector = connector_for(broker.url, "destroy", file)
    subscriptions = subscriptions_in(file)
    topology, kept = _without_what_others_use(connector, subscriptions, broker.management_url)
    with declaring(connector) as declarer:
        there = {
            queue.name: depth
            for queue in topology.queues
            if (depth := declarer.depth(queue.name)) is not None
        }
        _refuse_where_used(printer, there, with_messages=with_messages)
        messages = sum(depth.messages for depth in there.values())
        for queue in topology.queues:
            if queue.name in there:
                printer.say(
                    f"- {sentence_of(queue)}"
                    + (
                        f" with {count_of(there[queue.name].messages, 'message')}"
                        if messages
                        else ""
                    ),
                    "red",
                )
        for sentence in kept.values():
            printer.note(sentence)
        if dry_run:
            printer.result(
                {
                    "dry_run": True,
                    "queues": list(there),
                    "messages": messages,
                    "kept_ladders": list(kept),
                }
            )
            return
        question = f"Delete {count_of(len(there), 'queue')}" + (
            f" and {count_of(messages, 'message')} for good?" if messages else "?"
        )
        if there and not printer.confirm(question, yes=yes):
            printer.note("Nothing was deleted.")
            raise typer.Exit(1)
        if _without_what_others_use(connector, subscriptions, broker.management_url) != (
            topology,
            kept,
        ):
            raise ConfigurationError(
                "the bindings of the delay ladder changed meanwhile",
                "Nothing was deleted. Run it again to see what would be deleted now.",
            )
        if not with_messages:
            _close_the_ways_in(declarer, topology, there)
        deleted: list[Exchange | Queue | Binding | Policy] = list(
            _delete(declarer, topology, there)
        )
    if any(subscription.retry_via == "broker" for subscription in subscriptions):
        deleted += _delete_policies(printer, connector, broker.management_url, topology)
    printer.result(
        {
            "dry_run": False,
            "deleted": [json_of(what) for what in deleted],
            "kept_ladders": list(kept),
        }
    )
    printer.say(f"{count_of(len(deleted), 'object')} deleted.")
    for exchange in topology.exchanges:
        if exchange not in deleted:
            printer.note(
                f"exchange {exchange.name} was not deleted: something else is bound to it, or it "
                "did not exist."
            )


def _without_what_others_use(
    connector: Connector, subscriptions: tuple[Subscription, ...], management_url: str | None
) -> tuple[Topology, dict[str, str]]:
    """Return what may be deleted, and why the delay ladder of a main exchange stays: all
    subscriptions and publishers of an exchange share its ladder."""
    kept: dict[str, str] = {}
    blind, observed = "", Observed({}, {}, frozenset())
    try:
        with ManagementAPI(connector.url, management_url) as management:
            observed = management.observe()
    except RedriveError as error:
        blind = str(error).partition("\n")[0].rstrip(".")
    families = list(dict.fromkeys(subscription.exchanges for subscription in subscriptions))
    whole = union_of(
        [
            *(ladder_there(family, observed.bindings) for family in families),
            wanted_by(subscriptions),
        ]
    )
    topology = whole = replace(
        whole, exchanges=(*whole.exchanges, *retired_exchanges(whole, observed.exchanges))
    )
    for family in families:
        others = others_on_ladder(whole, family, observed.bindings)
        if others or blind:
            why = (
                f"others use it ({', '.join(others)})"
                if others
                else f"can't tell who uses it: {blind}"
            )
            kept[family.main] = f"The delay ladder of {family.main} stays: {why}."
            topology = without_ladder(topology, family)
    return topology, kept


def _refuse_where_used(printer: Printer, there: dict[str, Depth], *, with_messages: bool) -> None:
    consumed = [name for name, depth in there.items() if depth.consumers]
    if consumed:
        raise ConfigurationError(
            f"{', '.join(consumed)} has consumers", "Stop the subscribers first."
        )
    full = [
        f"{name} ({count_of(depth.messages, 'message')})"
        for name, depth in there.items()
        if depth.messages
    ]
    if full and not with_messages:
        printer.note(
            f"Not empty: {', '.join(full)}. Nothing was deleted; --with-messages deletes queues "
            "with their messages."
        )
        raise typer.Exit(1)


def _close_the_ways_in(declarer: Declarer, topology: Topology, there: dict[str, Depth]) -> None:
    """Unbind the queues and check again: a message that arrived in the meantime must not be deleted
    with its queue."""
    bindings = [binding for binding in topology.bindings if binding.destination in there]
    for binding in bindings:
        declarer.unbind(binding)
    late = [
        name
        for name in there
        if (depth := declarer.depth(name)) is not None and (depth.messages or depth.consumers)
    ]
    if late:
        for binding in bindings:
            declarer.declare(binding)
        raise ConfigurationError(
            f"messages or a consumer arrived at {', '.join(late)} meanwhile",
            "Nothing was deleted. Try again when nobody uses the queues.",
        )


def _delete(
    declarer: Declarer, topology: Topology, there: dict[str, Depth]
) -> Iterator[Exchange | Queue | Binding]:
    # Main queues first: messages that they reject can still be moved until the last moment.
    for queue in reversed(topology.queues):
        if queue.name in there:
            declarer.delete(queue)
            yield queue
    left = [
        exchange
        for exchange in (*topology.exchanges, *topology.pointers)
        if declarer.exists(exchange)
    ]
    deleted: list[Exchange] | None = None
    while deleted is None or deleted:
        # An exchange that routes to another one can be deleted once that one is gone.
        deleted = [exchange for exchange in left if declarer.delete_unused(exchange)]
        left = [exchange for exchange in left if exchange not in deleted]
        yield from deleted


def _delete_policies(
    printer: Printer, connector: Connector, management_url: str | None, topology: Topology
) -> Iterator[Policy]:
    """Delete redrive's policies for the delays of the topology's queues; yield each once it is
    deleted."""
    queues = {queue.name for queue in topology.queues}
    try:
        with ManagementAPI(connector.url, management_url) as management:
            for policy in management.observe().policies:
                if queue_of(policy) in queues:
                    management.remove_policy(policy)
                    yield policy
    except RedriveError as error:
        printer.note(
            "Not all policies that set the delays of these queues could be found and deleted: "
            f"{error}"
        )
