"""`redrive failed query`: runs SQL on failed messages."""

import json
from collections.abc import Callable
from typing import Annotated

import typer

from redrive.cli import index_options, message_options, options
from redrive.cli.output import Printer, RowsFormat, TableColumn
from redrive.failures.queue.message_source import checked_query


@options.expanded
@index_options.answered
def query(
    source: message_options.QueueOrFile,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT from the table `failed`.")],
    look_at: message_options.LookAt = None,
    *,
    index: index_options.IndexOptions,
    broker: options.SourceOptions,
    output: options.RowsOutput = RowsFormat.TABLE,
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
    sql, columns = checked_query(sql)
    opened = message_options.Source(printer, source, broker)
    (names, rows), look = opened.ask(lambda look: look.query(sql, columns), look_at, index=index)

    def cells(name: str) -> Callable[[dict[str, object]], str]:
        return lambda row: _cell(row.get(name))

    printer.rows(
        rows,
        lambda row: {name: row.get(name) for name in names} if output is RowsFormat.CSV else row,
        {
            TableColumn(name, "right" if _is_number(rows, name) else "left", give=True): cells(name)
            for name in names
        },
        lambda rows: {"source": opened.name, **look.as_json(), "columns": names, "rows": rows},
    )
    if look.is_partial:
        printer.say(message_options.not_looked_at(look).strip())


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(rows: list[dict[str, object]], name: str) -> bool:
    return all(isinstance(row.get(name), int | float | None) for row in rows)
