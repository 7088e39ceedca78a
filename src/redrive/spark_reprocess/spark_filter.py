"""The filter language on Spark: the same DuckDB as on one machine, asked in each task, so that an
expression means the same messages on both."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from redrive.failures.columns import BY_NAME
from redrive.failures.database import Database

if TYPE_CHECKING:
    from pyspark.sql import Column

_SMALLEST = BY_NAME["size"]
"""What is read where an expression speaks of no column: a task must see how many rows there are."""


def check_filter(expression: str, now: datetime) -> None:
    """Raises ConfigurationError where an expression can't be used; the message says where it is
    wrong."""
    with Database(now) as database:
        database.columns_of(expression)


def is_chosen(expression: str, now: datetime) -> "Column":
    """A column that is true of the messages that an expression means, and never null.

    Only what the expression speaks of goes to the tasks' Python.

    Args:
        expression: as `redrive failed list --where` takes it.
        now: what `now()` says.

    Raises:
        ConfigurationError: it can't be used; the message says where it is wrong.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    with Database(now) as database:
        columns = database.columns_of(expression)

    def meant(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        with Database(now) as database:
            for rows in batches:
                table = pa.RecordBatch.from_struct_array(rows)
                yield pa.array(database.meant_in(expression, table, columns), pa.bool_())

    asked = [F.col(column.name) for column in columns or (_SMALLEST,)]
    # Its kind is read from the annotations, which pyspark's own types don't know; it warns where it
    # is given.
    chosen: Column = arrow_udf(meant, "boolean")(F.struct(*asked))  # type: ignore[call-overload]
    return chosen
