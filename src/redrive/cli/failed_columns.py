"""`redrive failed columns`: lists the columns that filters and queries can use."""

from redrive.cli import options
from redrive.cli.output import OutputFormat, Printer, TableColumn
from redrive.failures.columns import COLUMNS


def columns(output: options.Output = OutputFormat.TABLE) -> None:
    """List the columns that filters and queries use.

    These are the columns of --where and of `redrive failed query`.

    \b
    Example:
      redrive failed columns
    """
    printer = Printer(output)
    printer.result(
        [
            {
                "name": one.name,
                "type": one.type.value,
                "nullable": one.nullable,
                "description": one.description,
            }
            for one in COLUMNS
        ]
    )
    if not printer.as_json:
        table = (
            TableColumn("column"),
            TableColumn("type"),
            TableColumn("meaning", give=True, wrap=True),
        )
        printer.table(
            table,
            [
                (
                    one.name,
                    one.type.value,
                    f"{one.description}{'; may be null' if one.nullable else ''}",
                )
                for one in COLUMNS
            ],
        )
