"""`redrive topology migrate`: changes the arguments of queues, which RabbitMQ itself can't do."""

from typing import Annotated

import typer

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer
from redrive.cli.topology_drift import File, connector_for, subscriptions_in, wanted_by
from redrive.errors import ConfigurationError
from redrive.number_text import count_of
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare, declaring
from redrive.pubsub.transfer.migration_run import Migration, MigrationReport
from redrive.topology.delay_policy import Policy
from redrive.topology.diff import (
    Differs,
    Due,
    Observed,
    Retired,
    compare,
    delays_due,
    retired_policies,
    sentence_of,
)
from redrive.topology.migration import check_room, into_failed, is_needed, pauses
from redrive.topology.model import Subscription


@options.expanded
def migrate(
    file: File,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="QUEUE",
            help="Only this subscription. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Change the arguments of live queues.

    The queues get the delay, type and retry mechanism that the file asks for, and no message is
    lost. A temporary queue takes the messages while the queue is deleted and created again.
    Publishers continue; the command prints beforehand what pauses. If it is interrupted, run it
    again: it continues. Don't requeue failed messages to the queue meanwhile.

    \b
    Example:
      redrive topology migrate topology.yaml --queue ucenter@user
    """
    printer = Printer(output)
    connector = connector_for(broker.url, "migrate", file)
    with ManagementAPI(connector.url, broker.management_url) as management:
        observed = management.observe()
        due = [
            subscription
            for subscription in _chosen(file, queues)
            if is_needed(subscription, observed)
        ]
        _refuse_what_is_shared(due)
        if not due:
            printer.result({"dry_run": dry_run, "migrated": []})
            printer.say("Nothing to migrate: each queue has the arguments that the file asks for.")
            return
        _refuse_what_can_not_be(connector, due, observed)
        for subscription in due:
            _announce(printer, subscription, observed)
        if dry_run:
            printer.result(
                {"dry_run": True, "migrated": [subscription.queue for subscription in due]}
            )
            return
        if not printer.confirm(f"Migrate {count_of(len(due), 'subscription')}?", yes=yes):
            printer.note("Nothing was changed.")
            raise typer.Exit(1)
        reports: dict[str, MigrationReport] = {}
        wanted = wanted_by(tuple(due))
        # Before the queues: without its delay, a queue returns failed messages at once.
        for change in delays_due(wanted, observed.policies):
            management.set_policy(change.policy)
        for subscription in due:
            reports[subscription.queue] = Migration(
                connector, management, subscription, printer.note
            ).run()
            declare(connector, subscription)
        for policy in retired_policies(wanted, observed.policies):
            management.remove_policy(policy)
    printer.result(
        {
            "dry_run": False,
            "migrated": [{"queue": queue, **_json(report)} for queue, report in reports.items()],
        }
    )
    for queue, report in reports.items():
        printer.say(
            f"{queue} is migrated: {count_of(report.steps, 'step')}, "
            f"{count_of(report.moved, 'move')}.",
            "green",
        )
        if report.possible_duplicates:
            printer.note(
                f"{count_of(report.possible_duplicates, 'possible duplicate')} in {queue}."
            )


def _chosen(file: File, queues: list[str] | None) -> list[Subscription]:
    known = {subscription.queue: subscription for subscription in subscriptions_in(file)}
    for queue in queues or ():
        if queue not in known:
            raise ConfigurationError(
                f"{file} has no subscription {queue!r}", f"There is {', '.join(known) or 'none'}."
            )
    return [known[queue] for queue in queues] if queues else list(known.values())


def _refuse_what_is_shared(due: list[Subscription]) -> None:
    for subscription in due:
        if subscription.retry_via == "republish":
            raise ConfigurationError(
                f"{subscription.queue!r} can't be migrated to retry_via: republish, whose queues "
                "are shared with PHP and Java services",
                "Only migration to retry_via: dead-letter is possible. Leave it out with --queue.",
            )


def _refuse_what_can_not_be(
    connector: Connector, due: list[Subscription], observed: Observed
) -> None:
    with declaring(connector) as declarer:
        for subscription in due:
            subscription.check_broker(declarer.version)
            depths = [declarer.depth(queue) for queue in into_failed(subscription, observed)]
            check_room(subscription, sum(depth.messages for depth in depths if depth is not None))


def _announce(printer: Printer, subscription: Subscription, observed: Observed) -> None:
    for difference in compare(subscription.topology(), observed):
        match difference:
            case Differs(found) if found.kind == "queue":
                printer.say(
                    f"~ queue {found.name}: {found.argument} is {found.found}, becomes "
                    f"{found.wanted}",
                    "yellow",
                )
            case Due(change):
                printer.say(f"* {change}", "green")
            case Retired(Policy() as policy):
                printer.say(f"x {sentence_of(policy)}", "red")
    for sentence in pauses(subscription, observed):
        printer.say(f"  meanwhile {sentence}")


def _json(report: MigrationReport) -> dict[str, int]:
    return {
        "steps": report.steps,
        "moves": report.moved,
        "twins": report.twins,
        "possible_duplicates": report.possible_duplicates,
    }
