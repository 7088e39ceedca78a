"""`redrive doctor`: looks at the broker, and says what will hurt."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, cast, get_args

import typer

from redrive.cli import options
from redrive.cli.output import Form, Printer, count_of
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declare import declaring
from redrive.pubsub.blocking.survey import facts_over_amqp, merged, missing_rights
from redrive.pubsub.management import Management
from redrive.pubsub.survey import facts_over_management
from redrive.topology import names
from redrive.topology.broker import BrokerVersion
from redrive.topology.diagnosis import Question, diagnose
from redrive.topology.durations import duration_of
from redrive.topology.facts import Facts
from redrive.topology.finding import Finding
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily, check_queue_name, check_routing_key
from redrive.topology.permissions import Right, Role, lacking, least_rights

_ROLES: tuple[Role, ...] = get_args(Role)


def doctor(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", help="Main queues; without any, all that have a retry or a failed queue.", show_default=False),
    ] = None,
    routing_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--routing-key",
            metavar="PATTERN",
            help="What the subscription asks for, to find bindings that are no longer wanted; with one QUEUE. May be given several times.",
            show_default=False,
        ),
    ] = None,
    handler_time: Annotated[
        str | None,
        typer.Option(
            "--handler-time",
            metavar="DURATION",
            help="How long a handler may run (30s, 45m), to compare with the broker's consumer timeout.",
            show_default=False,
        ),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help=f"What the user of --url is to do: {', '.join(_ROLES)}. May be given several times; without, all of them.",
            show_default=False,
        ),
    ] = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    retry_suffix: options.RetrySuffix = options.DEFAULT_RETRY_SUFFIX,
    failed_suffix: options.FailedSuffix = options.DEFAULT_FAILED_SUFFIX,
    output: options.Output = Form.TABLE,
) -> None:
    """Look at the broker and say what will hurt, what it means, and the command that mends it.

    It looks over AMQP, which shows the named queues and the rights of this user, and over the management API, which shows bindings,
    policies and who consumes. It changes nothing. It exits with 1 where it finds something.

    \b
    Examples:
      redrive doctor
      redrive doctor ucenter@user --routing-key 'user.*' --handler-time 45m
      redrive doctor ucenter@user --role publisher
    """
    printer = Printer(output)
    connector = Connector(url, default_name("doctor"))
    family = ExchangeFamily(exchange, retry_suffix, failed_suffix)
    duration = None if handler_time is None else duration_of(handler_time)
    wanted_roles = _roles_of(roles or [])
    _check(queues or [], routing_keys or [])
    with declaring(connector) as declarer:
        listed, blind = _listed(connector, management_url, declarer.version)
        names_ = list(dict.fromkeys(queues or _all_of(printer, listed, blind)))
        questions = [Question(name, family, tuple(routing_keys) if routing_keys else None, duration) for name in names_]
        places = [place for question in questions for place in question.places]
        seen = facts_over_amqp(declarer, connector.url.virtual_host, (family.main, family.retry, family.failed), places)
    facts = seen if listed is None else merged(seen, listed)
    findings = [*diagnose(facts, questions), *_permissions(connector, names_, family, wanted_roles)]
    if printer.as_json:
        printer.result(
            {
                "broker": str(facts.version),
                "virtual_host": facts.virtual_host,
                "queues": names_,
                "management": listed is not None,
                "findings": [asdict(finding) for finding in findings],
            }
        )
    else:
        _print(printer, findings, names_, facts)
    if blind:
        printer.note(f"Bindings, policies and who consumes could not be seen: {blind}.")
    raise typer.Exit(1 if findings else 0)


def _roles_of(given: Sequence[str]) -> tuple[Role, ...]:
    for role in given:
        if role not in _ROLES:
            raise ConfigurationError(f"the role is {role!r}", f"Choose of {', '.join(_ROLES)}.")
    return cast(tuple[Role, ...], tuple(dict.fromkeys(given))) or _ROLES


def _check(queues: Sequence[str], routing_keys: Sequence[str]) -> None:
    for queue in queues:
        check_queue_name(queue)
    for key in routing_keys:
        check_routing_key(key)
    if routing_keys and len(queues) != 1:
        raise ConfigurationError(f"--routing-key is given with {count_of(len(queues), 'queue')}", "Name the one queue that it is of.")


def _listed(connector: Connector, management_url: str | None, version: BrokerVersion) -> tuple[Facts | None, str]:
    """What the management API tells; or nothing, and why."""
    try:
        with Management(connector.url, management_url) as management:
            return facts_over_management(management, version, connector.url.virtual_host), ""
    except RedriveError as error:
        return None, " ".join(str(error).split()).rstrip(".")


def _all_of(printer: Printer, listed: Facts | None, blind: str) -> list[str]:
    """The subscriptions that are there, without queues that anybody may have given a name that no subscription can have."""
    if listed is None:
        raise ConfigurationError(f"which queues there are can't be asked: {blind}", "Name the queues: redrive doctor QUEUE…")
    found = []
    for name in names.main_queues(listed.queues):
        try:
            check_queue_name(name)
        except ConfigurationError as error:
            printer.note(f"Left out: {error.problem}.")
        else:
            found.append(name)
    return found


def _permissions(connector: Connector, queues: Sequence[str], family: ExchangeFamily, roles: Sequence[Role]) -> list[Finding]:
    """What this user may not do. For a look at it the topology is the usual one: rights have no delay."""
    found: list[Finding] = []
    with connector.blocking() as connection:
        for queue in queues:
            subscription = Subscription(queue, exchanges=family)
            missing: dict[Role, list[Right]] = {role: missing_rights(connection, least_rights(role, subscription)) for role in roles}
            found += lacking(connector.url.username, connector.url.virtual_host, subscription, missing)
    return found


def _print(printer: Printer, findings: Sequence[Finding], queues: Sequence[str], facts: Facts) -> None:
    looked_at = f"{count_of(len(queues), 'subscription')} on RabbitMQ {facts.version}, virtual host {facts.virtual_host}"
    for number, finding in enumerate(findings, 1):
        printer.say(f"{number}. {finding.where}: {finding.kind}", "bold red")
        printer.say(f"   found:  {finding.problem}.")
        printer.say(f"   means:  {finding.meaning}")
        printer.say(f"   mend:   {finding.remedy}")
        printer.say()
    if not queues:
        printer.say(f"No subscription is here: no queue of virtual host {facts.virtual_host} has a retry or a failed queue beside it.")
    elif findings:
        printer.say(f"{count_of(len(findings), 'finding')} in {looked_at}.", "bold")
    else:
        printer.say(f"Nothing found in {looked_at}.", "green")
