"""`redrive doctor`: finds problems on the broker and prints their fixes."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, cast, get_args

import typer

from redrive.cli import completion, options
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError, RedriveError
from redrive.number_text import count_of
from redrive.pubsub.admin.amqp_survey import (
    PublishersBlocked,
    facts_over_amqp,
    merged,
    missing_rights,
)
from redrive.pubsub.admin.dead_letter_survey import stuck
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import facts_over_management
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology import names
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.doctor.diagnosis import (
    Question,
    diagnose,
    diagnose_upgrade,
    holds_back,
    would_gain,
)
from redrive.topology.doctor.facts import Facts
from redrive.topology.doctor.finding import Finding
from redrive.topology.doctor.permissions import Right, Role, lacking, least_rights
from redrive.topology.durations import duration_of
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily, check_queue_name, check_routing_key

_ROLES: tuple[Role, ...] = get_args(Role)


@options.expanded
def doctor(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Main queues. Default: all that have a retry or a failed queue.",
            autocompletion=completion.queues,
            show_default=False,
        ),
    ] = None,
    routing_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--routing-key",
            metavar="PATTERN",
            help="A pattern that the subscription asks for, to find bindings that it no longer "
            "wants; needs exactly one QUEUE. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    handler_time: Annotated[
        str | None,
        typer.Option(
            "--handler-time",
            metavar="DURATION",
            help="How long a handler may run (30s, 45m), to compare with the broker's consumer "
            "timeout.",
            show_default=False,
        ),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help=f"A role whose permissions to check for the user of --url: {', '.join(_ROLES)}. "
            "Can be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    upgrade_to: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="VERSION",
            help="Also find what will be a problem once the broker is upgraded to this version: "
            "4.3, or 4.3.6.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Find problems and print their fixes.

    For each problem it prints what was found, what it means and the command that fixes it. It
    checks the queues and this user's permissions over AMQP, and bindings, policies and consumers
    through the management API. If a queue is dead-lettering messages, it watches for up to a minute
    whether their number falls. It changes nothing, and exits with 1 if it finds a problem.

    \b
    Examples:
      redrive doctor
      redrive doctor ucenter@user --routing-key 'user.*' --handler-time 45m
      redrive doctor ucenter@user --role publisher
      redrive doctor --for 4.3
    """
    printer = Printer(output)
    connector = Connector(broker.url, default_name("doctor"))
    family = broker.family
    duration = None if handler_time is None else duration_of(handler_time)
    wanted_roles = _roles_of(roles or [])
    version = None if upgrade_to is None else BrokerVersion.named(upgrade_to)
    _check(queues or [], routing_keys or [])
    with declaring(connector) as declarer:
        listed, blind = _listed(connector, broker.management_url, declarer.version)
        names_ = list(dict.fromkeys(queues or _all_of(printer, listed, blind)))
        questions = [
            Question(name, family, tuple(routing_keys) if routing_keys else None, duration)
            for name in names_
        ]
        places = [place for question in questions for place in question.places]
        seen = facts_over_amqp(
            declarer, connector.url.virtual_host, (family.main, family.retry, family.failed), places
        )
    facts = seen if listed is None else merged(seen, listed)
    unwatched = ""
    if listed is not None:
        facts, unwatched = _watched(printer, connector, broker.management_url, facts, places)
    lacking_, unchecked = _permissions(connector, names_, family, wanted_roles, facts)
    findings = [*diagnose(facts, questions, others=not queues), *lacking_]
    later = [] if version is None else diagnose_upgrade(facts, version, questions)
    if printer.for_programs:
        printer.result(
            {
                "broker": str(facts.version),
                "virtual_host": facts.virtual_host,
                "queues": names_,
                "management": listed is not None,
                "unknown": facts.unknown or None,
                "findings": [asdict(finding) for finding in findings],
                "after_upgrade": [asdict(finding) for finding in later],
                "would_gain": would_gain(facts, questions),
            }
        )
    else:
        _print(printer, findings, names_, facts)
        if version is not None:
            _print_upgrade(printer, later, version)
        _tell_who_would_gain(printer, would_gain(facts, questions))
    if blind:
        printer.note(f"Bindings, policies and consumers were not checked: {blind}.")
    if facts.unknown:
        printer.note(f"Not everything was checked: {facts.unknown}.")
    if unwatched:
        printer.note(f"Stuck dead-lettering was not checked: {unwatched}.")
    if unchecked:
        printer.note(f"Permissions were not checked: {unchecked}.")
    raise typer.Exit(1 if findings or later else 0)


def _roles_of(given: Sequence[str]) -> tuple[Role, ...]:
    for role in given:
        if role not in _ROLES:
            raise ConfigurationError(
                f"there is no role {role!r}", f"Give one of {', '.join(_ROLES)}."
            )
    return cast(tuple[Role, ...], tuple(dict.fromkeys(given))) or _ROLES


def _check(queues: Sequence[str], routing_keys: Sequence[str]) -> None:
    for queue in queues:
        check_queue_name(queue)
    for key in routing_keys:
        check_routing_key(key)
    if routing_keys and len(queues) != 1:
        raise ConfigurationError(
            f"--routing-key needs one queue, and {count_of(len(queues), 'queue')} were given",
            "Name the queue that it belongs to.",
        )


def _listed(
    connector: Connector, management_url: str | None, version: BrokerVersion
) -> tuple[Facts | None, str]:
    """Return what the management API reports; or None, and why."""
    try:
        with ManagementAPI(connector.url, management_url) as management:
            return facts_over_management(management, version, connector.url.virtual_host), ""
    except RedriveError as error:
        return None, " ".join(str(error).split()).rstrip(".")


def _watched(
    printer: Printer,
    connector: Connector,
    management_url: str | None,
    facts: Facts,
    places: Sequence[str],
) -> tuple[Facts, str]:
    """Return the facts, with what is stuck in these queues and on delay ladders; and why that is
    unknown, if it is."""
    delays = {
        name: queue.delay
        for name, queue in facts.queues.items()
        if name in places or names.is_of_a_ladder(name)
    }
    try:
        with (
            ManagementAPI(connector.url, management_url) as management,
            printer.bar() as bar,
        ):
            found = stuck(
                management,
                delays,
                lambda waited, longest: bar.show(
                    "watching dead-lettering, in seconds", int(waited), int(longest)
                ),
            )
    except RedriveError as error:
        return facts, " ".join(str(error).split()).rstrip(".")
    queues = {
        name: replace(queue, stuck=found.get(name, 0)) for name, queue in facts.queues.items()
    }
    return replace(facts, queues=queues), ""


def _all_of(printer: Printer, listed: Facts | None, blind: str) -> list[str]:
    """Return the existing subscriptions, without queues whose names no subscription can have."""
    if listed is None:
        raise ConfigurationError(
            f"can't list the queues: {blind}",
            "Name the queues: redrive doctor QUEUE…",
        )
    found = []
    for name in names.main_queues(listed.queues):
        try:
            check_queue_name(name)
        except ConfigurationError as error:
            printer.note(f"Not checked: {error.problem}.")
        else:
            found.append(name)
    return found


def _permissions(
    connector: Connector,
    queues: Sequence[str],
    family: ExchangeFamily,
    roles: Sequence[Role],
    facts: Facts,
) -> tuple[list[Finding], str]:
    """Return the rights that this user lacks; and why they are unknown, if they are. The default
    topology is used, since permissions don't depend on the delay."""
    if facts.alarms:
        return [], "the broker blocks publishers, and write permissions are checked by publishing"
    found: list[Finding] = []
    try:
        with connector.blocking() as connection:
            for queue in queues:
                subscription = Subscription(
                    queue,
                    exchanges=family,
                    retry_via="broker" if holds_back(facts, queue) else "dead-letter",
                )
                missing: dict[Role, list[Right]] = {
                    role: missing_rights(connection, least_rights(role, subscription))
                    for role in roles
                }
                found += lacking(
                    connector.url.username, connector.url.virtual_host, subscription, missing
                )
    except PublishersBlocked as blocked:
        return [], f"{blocked}, and blocks publishers"
    return found, ""


def _print(
    printer: Printer, findings: Sequence[Finding], queues: Sequence[str], facts: Facts
) -> None:
    looked_at = (
        f"{count_of(len(queues), 'subscription')} on RabbitMQ {facts.version}, virtual "
        f"host {facts.virtual_host}"
    )
    _print_each(printer, findings)
    if not queues and findings:
        printer.say(
            f"{count_of(len(findings), 'problem')} in virtual host {facts.virtual_host}, on "
            f"RabbitMQ {facts.version}. It has no subscription of redrive.",
            "bold",
        )
    elif not queues:
        printer.say(
            f"There is no subscription: no queue of virtual host {facts.virtual_host} has a retry "
            "or a failed queue."
        )
    elif findings:
        printer.say(f"{count_of(len(findings), 'problem')} in {looked_at}.", "bold")
    else:
        printer.say(f"No problem found in {looked_at}.", "green")


def _tell_who_would_gain(printer: Printer, queues: Sequence[str]) -> None:
    """Print which subscriptions need no retry queue on this broker; having one is not a problem."""
    if queues:
        printer.note(
            f"This broker can hold failed messages back by itself, with fewer moves: "
            f"{', '.join(queues)}. Put retry_via: broker into the topology file (redrive topology "
            "init writes one), then: redrive topology migrate FILE. From then on, subscribers need "
            'retry_via="broker".'
        )


def _print_upgrade(printer: Printer, findings: Sequence[Finding], version: BrokerVersion) -> None:
    if not findings:
        printer.say(f"No further problem found for RabbitMQ {version}.", "green")
        return
    printer.say()
    printer.say(f"Once the broker is RabbitMQ {version}:", "bold")
    printer.say()
    _print_each(printer, findings)
    printer.say(f"{count_of(len(findings), 'problem')} to fix before the upgrade.", "bold")


def _print_each(printer: Printer, findings: Sequence[Finding]) -> None:
    for number, finding in enumerate(findings, 1):
        printer.say(f"{number}. {finding.where}: {finding.kind}", "bold red")
        printer.say(f"   found:  {finding.problem}.")
        printer.say(f"   means:  {finding.meaning}")
        printer.say(f"   fix:    {finding.remedy}")
        printer.say()
