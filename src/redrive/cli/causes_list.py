"""`redrive causes list`: lists the remarks on causes."""

from redrive.cli import cause_options, job_options, messages, options
from redrive.cli.output import Printer, RowsFormat, TableColumn


@options.expanded
def list_(
    journal: job_options.JournalFile = None,
    *,
    broker: options.BrokerOptions,
    output: options.RowsOutput = RowsFormat.TABLE,
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
    printer.rows(
        remarks,
        lambda one: {
            "id": one.id,
            "at": one.at.isoformat(),
            "who": one.who,
            "user": one.user,
            **one.as_json(),
        },
        {
            TableColumn("remark"): lambda one: one.id[: messages.SHORT_ID],
            TableColumn("said (UTC)", hide=2): lambda one: messages.moment_of(one.at),
            TableColumn("group"): lambda one: one.group,
            TableColumn("what", give=True, wrap=True, least=20): cause_options.words_of,
            TableColumn("cause", give=True, hide=3): lambda one: one.words or "–",
            TableColumn("who", give=True, hide=1): lambda one: one.who,
        },
    )
    if not remarks and not printer.for_programs:
        printer.say("There are no remarks on causes.")
