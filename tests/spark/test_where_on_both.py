"""One expression means the same messages on one machine and on Spark."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pytest

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import COLUMNS, Row
from redrive.failures.store.database import Database
from redrive.spark_reprocess.selection import FATE, Fate, Selection
from redrive.spark_reprocess.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS = 3000
NOW = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)
TYPES = (
    "TimeoutError",
    "shop.PaymentError",
    "KeyError",
    "it's",
    "a\\b",
    "50%",
    "a_b",
    "Straße",
    "ΟΔΟΣ İ",
    "",
    None,
)
ODD = (
    " 5 ",
    "1_000",
    "inf",
    "-Infinity",
    "nan",
    "+5",
    ".5",
    "5.",
    "1e3",
    "1e400",
    "1d",
    "0x10",
    "\t7\n",
    "1__0",
    "_1",
    "1e1_0",
    "- 5",
    "+inf",
    "",
)
MESSAGES = (
    "card 4711 was refused",
    "no answer\nin 30 s",
    "CARD refused",
    "a.b",
    "x" * 300,
    "\u2028",
    "😀",
    "",
    None,
)
USED = (
    "failure_id",
    "error_type",
    "error_message",
    "retries",
    "size",
    "failed_at",
    "headers",
    "body",
)

KINDS = {"retries": "bigint", "size": "bigint", "failed_at": "timestamp"}


@cache
def rows_given() -> list[Row]:
    rows: list[Row] = []
    for number in range(ROWS):
        body = {
            "id": number % 50,
            "name": TYPES[number % len(TYPES)],
            "order": {"total": number % 13 + 0.5, "open": number % 2 == 0},
        }
        body["odd"] = ODD[number % len(ODD)]
        row: Row = {column.name: None for column in COLUMNS}
        row |= {
            "failure_id": f"f{number}",
            "queue": "shop@orders",
            "error_type": TYPES[number % len(TYPES)],
            "error_message": MESSAGES[number // 3 % len(MESSAGES)],
            "retries": number % 5,
            "size": number % 1000,
            "failed_at": None
            if number % 11 == 0
            else NOW - timedelta(minutes=number % 3000, microseconds=number % 7),
            "headers": json.dumps({"x-tenant": f"t{number % 4}", "tries": number % 3}),
            "body": None if number % 17 == 0 else json.dumps(body),
        }
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def frame(spark: "SparkSession") -> "DataFrame":
    schema = ", ".join(f"{name} {KINDS.get(name, 'string')}" for name in USED)
    made = (
        spark.createDataFrame([tuple(row[name] for name in USED) for row in rows_given()], schema)
        .selectExpr("*", "'q' as queue", "string(null) as dead_letter_queue", "0L as redrive_count")
        .coalesce(1)
        .persist()
    )
    assert made.count() == ROWS
    return made


# The language is one; what might differ is how Spark hands over nulls, numbers, times and texts.
EXPRESSIONS = [
    "true",
    "now() > failed_at",
    "retries + 1 = 3",
    "error_type = 'it''s'",
    "size > 20 -- in bytes",
    "(body->>'id')::int % 7 = 3",
    "(body->>'name') is null",
    "(headers->>'x-tenant') in ('t1', 't2')",
    "failed_at::date = current_date - 1",
    "extract(epoch from failed_at)::bigint % 2 = 0",
    "failed_at = '2024-05-17 07:59:00'",
    "try_cast((body->>'odd') as double) > 1000",
    "lower(error_type) = 'οδοσ i'",
    "length(error_message) > 100 and strlen(error_message) < 1000",
    "error_message like 'no answer%30 s'",
    "failed_at is distinct from null and not (error_message is null)",
]


def is_chosen(expression: str) -> "Column":
    """Whether a message matches an expression."""
    return Selection(expression, now=NOW, force=True).judged()[FATE] == Fate.CHOSEN


def test_the_same_messages_are_picked(frame: "DataFrame") -> None:
    rows = rows_given()
    # All expressions in one Spark job: a job costs more than what it computes.
    by_spark = frame.select(
        *(is_chosen(one).alias(f"p{number}") for number, one in enumerate(EXPRESSIONS))
    ).collect()
    with Database(NOW) as database:
        for number, one in enumerate(EXPRESSIONS):
            expected = database.meant(one, rows, database.columns_of(one))
            found = [row[f"p{number}"] for row in by_spark]
            wrong = [
                rows_given()[place] for place in range(ROWS) if expected[place] != found[place]
            ]
            assert not wrong, f"{one}: {len(wrong)} rows differ, such as {wrong[0]}"


def test_a_session_in_another_time_zone_reads_times_alike(frame: "DataFrame") -> None:
    session, where = frame.sparkSession, "failed_at < '2024-05-16 22:00' and hour(failed_at) < 5"
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = frame.where(is_chosen(where)).select("failure_id").collect()
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    with Database(NOW) as database:
        chosen = database.meant(where, rows_given(), database.columns_of(where))
    expected = [row["failure_id"] for row, one in zip(rows_given(), chosen, strict=True) if one]
    assert [row["failure_id"] for row in found] == expected
    assert 0 < len(expected) < ROWS


@pytest.mark.parametrize("expression", ["", "colour = 'red'", "true; select 1", "(select 1) = 1"])
def test_what_is_refused_on_one_machine_is_refused_before_spark_is_asked(expression: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Selection(expression, now=NOW).check()
    with pytest.raises(ConfigurationError) as on_one_machine, Database(NOW) as database:
        database.columns_of(expression)
    assert str(refused.value) == str(on_one_machine.value)


def test_an_expression_that_can_not_be_said_of_a_message_is_an_error_in_two_lines(
    frame: "DataFrame",
) -> None:
    with pytest.raises(ConfigurationError, match="Could not convert") as raised, explained():
        frame.where(is_chosen("error_type::int > 3")).count()
    assert len(str(raised.value).splitlines()) == 2
