"""`redrive failed`: looks at the failed queue of a subscription, sends back, deletes."""

import heapq
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from redrive.cli import choosing, grouping, keeping, messages, options, requeueing
from redrive.cli.finding import NothingFound, find_one
from redrive.cli.looking import Look
from redrive.cli.output import Column, Form, Printer, count_of
from redrive.errors import ConfigurationError
from redrive.failures.columns import COLUMNS
from redrive.failures.selection import Chooser
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.message import FailedMessage
from redrive.topology.names import failed_queue

app = typer.Typer(
    help="Look at messages that were given up, send them back, or delete them.", rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback(invoke_without_command=True)
def _failed(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("groups", short_help="Group them by cause.")(grouping.groups)


@app.command("list", short_help="List the failed messages of a queue.")
def list_(
    source: choosing.QueueOrFile,
    where: choosing.Where = None,
    groups: choosing.Group = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many are shown.")] = 20,
    newest: Annotated[bool, typer.Option("--newest", help="Show those that failed last, the newest first; all are looked at.")] = False,
    look_at: choosing.LookAt = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """List the messages of a failed queue, from its head on, which is the oldest; or the newest.

    Looking takes nothing away. While it looks, the messages are held back from other consumers.

    \b
    Example:
      redrive failed list ucenter@user --where "error_type = 'KeyError'"
    """
    printer = Printer(output)
    selection = choosing.selection_of(where, groups)
    if newest and look_at is not None:
        raise ConfigurationError("--newest and --look-at are given together", "Leave out --look-at, which looks at the oldest.")
    with Chooser(selection) as chooser:
        opened = choosing.Source(source, url, exchange, management_url)
        most = limit if selection.is_all and not newest else look_at
        with opened.looking(printer, most, by_time=chooser.is_by_time) as (messages_, look):
            found = _Counted(chooser.of(messages_))
            shown = _newest(found, limit) if newest else list(islice(found, limit))
            for _ in found:
                pass
    printer.result(
        {
            "queue": source,
            **choosing.facts_of(look),
            "matching": None if selection.is_all else found.count,
            "messages": [messages.json_of(message) for message in shown],
        }
    )
    if not printer.as_json:
        if shown:
            messages.table(printer, shown)
        which = "newest" if newest else "oldest"
        printer.say(
            _tally(opened.name, look, len(shown), which)
            if selection.is_all
            else _matches(opened.name, look, len(shown), which, found.count)
        )


@app.command("show", short_help="Show one message in full.")
def show(
    source: choosing.QueueOrFile,
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The failure id, its first characters as `failed list` shows them, or a message id.")
    ],
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Show one failed message: its error, its way, headers, traceback and body.

    It exits with 1 where there is no such message.

    \b
    Example:
      redrive failed show ucenter@user 3f2a9c1e
    """
    printer = Printer(output)
    opened = choosing.Source(source, url, exchange, management_url)
    with opened.looking(printer) as (messages_, look):
        try:
            message = find_one(messages_, id_, opened.name)
        except NothingFound as error:
            if not look.what_is_missing:
                raise
            raise NothingFound(
                f"no message with the id {id_!r} is among the {look.looked_at:,} of {opened.name!r} that could be looked at\n"
                f"{look.what_is_missing} Try again when it is through."
            ) from error
    printer.result(messages.json_of(message))
    if not printer.as_json:
        messages.tell(printer, message)


@app.command("query", short_help="Ask anything of them, in SQL.")
def query(
    source: choosing.QueueOrFile,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT over the table `failed`.")],
    look_at: choosing.LookAt = None,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Ask anything of the failed messages, in SQL.

    The messages are the rows of a table `failed`, with the columns that `redrive failed columns` lists. It is DuckDB's SQL, and reaches no
    file and no network. Looking takes nothing away.

    \b
    Example:
      redrive failed query ucenter@user \\
        "select host, count(*) from failed group by all"
    """
    from redrive.failures.columns import BY_NAME, row_of
    from redrive.failures.database import Database

    printer = Printer(output)
    sql = sql.strip().removesuffix(";")
    with Database() as parser:
        read = parser.columns_of_query(sql) or (BY_NAME["failure_id"],)
    with Database(columns=read) as database:
        opened = choosing.Source(source, url, exchange, management_url)
        with opened.looking(printer, look_at) as (messages_, look):
            database.insert(row_of(message.delivery, read) for message in messages_)
        names, rows = database.query(sql)
    printer.result({"source": opened.name, **choosing.facts_of(look), "columns": names, "rows": rows})
    if not printer.as_json:
        columns = [Column(name, "right" if _is_number(rows, name) else "left", give=True) for name in names]
        printer.table(columns, [[_cell(row.get(name)) for name in names] for row in rows])
    if look.is_partial:
        printer.say(choosing.not_looked_at(look).strip())


@app.command("columns", short_help="List what can be asked of them.")
def columns_(output: options.Output = Form.TABLE) -> None:
    """List the columns that --where and `failed query` know.

    \b
    Example:
      redrive failed columns
    """
    printer = Printer(output)
    printer.result(
        [{"name": one.name, "type": one.type.value, "nullable": one.nullable, "description": one.description} for one in COLUMNS]
    )
    if not printer.as_json:
        table = (Column("column"), Column("type"), Column("what it is", give=True, wrap=True))
        printer.table(table, [(one.name, one.type.value, f"{one.description}{'; may be null' if one.nullable else ''}") for one in COLUMNS])


app.command("requeue", short_help="Send messages back to their main queue.")(requeueing.requeue)
app.command("snapshot", short_help="Copy them to a file.")(keeping.snapshot)
app.command("discard", short_help="Delete some, after writing them to a file.")(keeping.discard)
app.command("expire", short_help="Move old ones to a file.")(keeping.expire)
app.command("restore", short_help="Bring the messages of a file back.")(keeping.restore)


@app.command("purge", short_help="Delete all of them, for good.")
def purge(
    queue: options.Queue,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    url: options.Url = options.DEFAULT_URL,
    exchange: options.Exchange = options.DEFAULT_EXCHANGE,
    output: options.Output = Form.TABLE,
) -> None:
    """Delete all messages of a failed queue, for good.

    It shows how many there are, and asks. Nothing brings them back.

    \b
    Example:
      redrive failed purge ucenter@user
    """
    printer = Printer(output)
    failed = FailedQueue(url, queue, exchange)
    count = failed.depth()
    name = failed_queue(queue)
    if dry_run or not count:
        printer.result({"queue": queue, "messages": count, "deleted": 0})
        printer.say(f"{count_of(count, 'message')} of {name} would be deleted for good." if count else f"{name} is empty.")
        return
    if not printer.confirm(f"Delete {count_of(count, 'message')} of {name} for good?", yes=yes):
        printer.note("Nothing was deleted.")
        raise typer.Exit(1)
    deleted = failed.purge()
    printer.result({"queue": queue, "messages": count, "deleted": deleted})
    printer.say(f"{count_of(deleted, 'message')} deleted from {name}.")


class _Counted:
    """Messages, and how many came."""

    def __init__(self, messages: Iterator[FailedMessage]) -> None:
        self._messages = messages
        self.count = 0

    def __iter__(self) -> Iterator[FailedMessage]:
        for message in self._messages:
            self.count += 1
            yield message


def _newest(found: Iterable[FailedMessage], limit: int) -> list[FailedMessage]:
    """Those that failed last, the newest first; what does not say when, last, by its place in the queue."""
    latest = heapq.nlargest(limit, enumerate(found), key=lambda numbered: (_when(numbered[1]), numbered[0]))
    return [message for _, message in latest]


def _when(message: FailedMessage) -> float:
    return message.failed_at.timestamp() if message.failed_at is not None else float("-inf")


def _tally(name: str, look: Look, shown: int, which: str) -> str:
    if not look.total:
        return f"{name} is empty." if look.missing == 0 else f"Nothing of {name} could be looked at."
    if shown >= look.total:
        return f"{count_of(look.total, 'message')} in {name}."
    return f"The {shown:,} {which} of {count_of(look.total, 'message')} in {name}; --limit {look.total} shows all."


def _matches(name: str, look: Look, shown: int, which: str, count: int) -> str:
    more = f", the {shown:,} {which} shown; --limit {count} shows all" if shown < count else ""
    verb = "matches" if count == 1 else "match"
    if look.is_partial:
        return (
            f"{count:,} of the {look.looked_at:,} oldest messages in {name} {verb}{more}; "
            f"{look.total - look.looked_at:,} newer were not looked at: leave out --look-at."
        )
    return f"{count:,} of {count_of(look.looked_at, 'message')} in {name} {verb}{more}."


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(rows: list[dict[str, object]], name: str) -> bool:
    return all(isinstance(row.get(name), int | float | None) for row in rows)
