"""Regular expressions on Spark, matched by DuckDB: RE2 reads any text in linear time, and picks what it picks on one machine.

Java's overflow the stack on a repeated group, and take hours over a hostile text for `a.*b.*c`: with them, one message would stop a job.
"""

from typing import TYPE_CHECKING

import duckdb

from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTION = "redrive_matches"
"""The SQL function: whether a text, the first argument, has a match of a pattern, which is the same in all rows."""


def check_pattern(pattern: str) -> None:
    """Raises ConfigurationError where `pattern` is no regular expression."""
    try:
        with duckdb.connect() as connection:
            connection.execute("SELECT regexp_matches('', ?)", [pattern]).fetchall()
    except duckdb.Error as error:
        reason = " ".join(str(error).split()).partition("Error: ")[2]
        raise ConfigurationError(
            f"the regular expression {pattern!r} is wrong: {reason}", "It is RE2's: https://github.com/google/re2/wiki/Syntax"
        ) from error


def register(spark: "SparkSession") -> None:
    """Makes the function known to a session."""
    import pyarrow
    from pyspark.sql.pandas.functions import arrow_udf

    def matches(texts: pyarrow.Array, patterns: pyarrow.Array) -> pyarrow.Array:
        pattern = patterns[0].as_py() if len(patterns) else ""
        return pyarrow.array(_matches(texts.to_pylist(), pattern), pyarrow.bool_())

    # Its kind is read from the annotations, which pyspark's own types don't know; it warns where it is given.
    spark.udf.register(FUNCTION, arrow_udf(matches, "boolean"))  # type: ignore[call-overload]


def _matches(texts: list[str | None], pattern: str) -> list[bool | None]:
    with duckdb.connect(config={"threads": 1}) as connection:
        sql = "SELECT regexp_matches(text, ?) FROM (SELECT unnest(?::VARCHAR[]) AS text)"
        return [found for (found,) in connection.execute(sql, [pattern, texts]).fetchall()]
