"""`redrive failed columns`: lists the columns that filters and queries can use."""

from redrive.cli import options
from redrive.cli.output import Printer, RowsFormat, TableColumn
from redrive.failures.message.columns import COLUMNS


def columns(output: options.RowsOutput = RowsFormat.TABLE) -> None:
    """List the columns that filters and queries use.

    These are the columns of --where and of `redrive failed query`.

    \b
    Example:
      redrive failed columns
    """
    Printer(output).rows(
        COLUMNS,
        lambda one: {
            "name": one.name,
            "type": one.type.value,
            "nullable": one.nullable,
            "description": one.description,
        },
        {
            TableColumn("column"): lambda one: one.name,
            TableColumn("type"): lambda one: one.type.value,
            TableColumn("meaning", give=True, wrap=True): lambda one: (
                f"{one.description}{'; may be null' if one.nullable else ''}"
            ),
        },
    )
