"""`redrive failed query`: SQL over failed messages."""

import json
from contextlib import ExitStack
from typing import Annotated

import typer

from redrive.cli import index_options, message_options, options
from redrive.cli.output import Form, Printer, TableColumn
from redrive.failures.columns import BY_NAME, row_of
from redrive.failures.database import Database
from redrive.failures.kept_messages import KeptMessages


@options.expanded
@index_options.answered
def query(
    source: message_options.QueueOrFile,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT from the table `failed`.")],
    look_at: message_options.LookAt = None,
    *,
    index: index_options.IndexOptions,
    broker: options.SourceOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Query failed messages with SQL.

    The messages are the rows of a table `failed`; `redrive failed columns` lists its columns. The
    SQL is DuckDB's, without access to files or the network. The messages stay in the queue.

    \b
    Example:
      redrive failed query ucenter@user \\
        "select host, count(*) from failed group by all"
    """
    printer = Printer(output)
    sql = sql.strip().removesuffix(";")
    with Database() as parser:
        read = parser.columns_of_query(sql) or (BY_NAME["failure_id"],)
    with ExitStack() as held:
        opened = message_options.Source(printer, source, broker)
        with opened.looking(look_at, index=index) as (messages_, look):
            if isinstance(messages_, KeptMessages):
                database = held.enter_context(messages_.database(read))
            else:
                database = held.enter_context(Database(columns=read))
                database.insert(row_of(message.delivery, read) for message in messages_)
        names, rows = database.query(sql)
    printer.result(
        {"source": opened.name, **message_options.facts_of(look), "columns": names, "rows": rows}
    )
    if not printer.as_json:
        columns = [
            TableColumn(name, "right" if _is_number(rows, name) else "left", give=True)
            for name in names
        ]
        printer.table(columns, [[_cell(row.get(name)) for name in names] for row in rows])
    if look.is_partial:
        printer.say(message_options.not_looked_at(look).strip())


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(rows: list[dict[str, object]], name: str) -> bool:
    return all(isinstance(row.get(name), int | float | None) for row in rows)
