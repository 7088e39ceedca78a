"""`redrive causes list`: lists the remarks on causes."""

from redrive.cli import cause_options, job_options, messages, options
from redrive.cli.output import OutputFormat, Printer, TableColumn


@options.expanded
def list_(
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """List the remarks on causes.

    It lists the remarks of everybody who uses this broker, the latest first, without those that
    were undone.

    \b
    Example:
      redrive causes list
    """
    printer = Printer(output)
    with job_options.opened_journal(printer, journal, broker.url) as opened:
        remarks = list(reversed(opened.causes().remarks))
    printer.result(
        [
            {
                "id": one.id,
                "at": one.at.isoformat(),
                "who": one.who,
                "user": one.user,
                **one.as_json(),
            }
            for one in remarks
        ]
    )
    if printer.as_json:
        return
    if not remarks:
        printer.say("There are no remarks on causes.")
        return
    columns = (
        TableColumn("remark"),
        TableColumn("said (UTC)", hide=2),
        TableColumn("group"),
        TableColumn("what", give=True, wrap=True, least=20),
        TableColumn("cause", give=True, hide=3),
        TableColumn("who", give=True, hide=1),
    )
    printer.table(
        columns,
        [
            [
                one.id[: messages.SHORT_ID],
                messages.moment_of(one.at),
                one.group,
                cause_options.words_of(one),
                one.words or "–",
                one.who,
            ]
            for one in remarks
        ],
    )
