"""`redrive dlq scan`: lists the dead-letter queues of a broker that redrive did not make."""

from collections.abc import Sequence
from typing import Annotated

import typer

from redrive.cli import completion, dead_letter_output, options
from redrive.cli.output import Printer, RowsFormat
from redrive.errors import ConfigurationError, RedriveError
from redrive.number_text import count_of
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.dead_letter_survey import CountedQueue
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring


@options.expanded
def scan(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Dead-letter queues. Default: all of the virtual host.",
            autocompletion=completion.queues,
            show_default=False,
        ),
    ] = None,
    *,
    broker: options.BrokerOptions,
    output: options.RowsOutput = RowsFormat.TABLE,
) -> None:
    """List the dead-letter queues of a broker.

    It lists those of the virtual host that redrive did not make: the targets of dead-letter
    exchanges, by argument or policy, and queues with names that frameworks use. For each it prints
    how many messages are in it, which queues they come from, and the framework that its name
    suggests. It reads no messages. Retry queues, from which messages come back, are not listed.

    It asks the management API, whose counts are up to five seconds old. "perhaps" means that it
    depends on the message, for example on its routing key. If the API does not answer, the queues
    that you name are counted over AMQP.

    \b
    Examples:
      redrive dlq scan
      redrive dlq scan orders.dlq --output json
    """
    printer = Printer(output)
    connector = Connector(broker.url, default_name("dlq scan"))
    listed, blind = _listed(connector, broker.management_url)
    if blind is not None and not queues:
        problem, _, remedy = str(blind).partition("\n")
        raise ConfigurationError(
            f"can't find the dead-letter queues: {problem.rstrip('.')}",
            f"Name the ones that you know: redrive dlq scan QUEUE… Or: {remedy}",
        ) from blind
    found = listed if not queues else _named(connector, list(dict.fromkeys(queues)), listed)
    found = dead_letter_output.fullest_first(_all_counted(connector, found))
    printer.rows(
        found,
        dead_letter_output.json_of,
        dead_letter_output.columns(in_detail=True),
        lambda rows: {
            "virtual_host": connector.url.virtual_host,
            "management": blind is None,
            "queues": rows,
        },
    )
    _print(printer, found)
    if blind is not None:
        printer.note(
            "Where their messages come from is not known: "
            f"{' '.join(str(blind).split()).rstrip('.')}."
        )
    gone = set(queues or ()) - {one.queue.name for one in found}
    if gone:
        printer.note(f"{count_of(len(gone), 'queue')} missing: {', '.join(sorted(gone))}.")
        raise typer.Exit(1)
    if not found:
        printer.note("No dead-letter queue was found that redrive did not make.")


def _listed(
    connector: Connector, management_url: str | None
) -> tuple[list[CountedQueue], RedriveError | None]:
    """Return the queues that the management API lists; or none, and why."""
    try:
        with ManagementAPI(connector.url, management_url) as management:
            return dead_letter_survey.over_management(management), None
    except RedriveError as error:
        return [], error


def _all_counted(connector: Connector, found: Sequence[CountedQueue]) -> list[CountedQueue]:
    """Return the queues, counted over AMQP if the management API has not counted all of them and
    this user may see them."""
    if all(one.messages is not None for one in found):
        return list(found)
    try:
        with declaring(connector) as declarer:
            return list(dead_letter_survey.counted_over_amqp(declarer, found))
    except RedriveError:
        return list(found)


def _named(
    connector: Connector, queues: Sequence[str], listed: Sequence[CountedQueue]
) -> list[CountedQueue]:
    """Return the queues with these names, as listed by the management API or else as AMQP reports
    them."""
    known = {one.queue.name: one for one in listed}
    others = [name for name in queues if name not in known]
    if others:
        with declaring(connector) as declarer:
            known |= {one.queue.name: one for one in dead_letter_survey.over_amqp(declarer, others)}
    return [known[name] for name in queues if name in known]


def _print(printer: Printer, found: Sequence[CountedQueue]) -> None:
    if printer.for_programs or not found:
        return
    known = [one.messages for one in found if one.messages is not None]
    left = len(found) - len(known)
    unknown = f", {left:,} of them not counted" if left else ""
    printer.say(
        f"{count_of(sum(known), 'message')} in "
        f"{count_of(len(found), 'dead-letter queue')}{unknown}."
    )
    command = next(
        (
            command
            for one in found
            if one.messages != 0 and (command := dead_letter_output.next_command(one.queue))
        ),
        None,
    )
    if command is not None:
        printer.say(f"Next: {command}")
