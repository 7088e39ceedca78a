"""One expression picks the same messages on DuckDB and on Spark."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redrive.failures.columns import COLUMNS, Row
from redrive.failures.database import Database
from redrive.spark_reprocess.matching import register
from redrive.spark_reprocess.where import spark_sql_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000
NOW = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)
TYPES = ("TimeoutError", "shop.PaymentError", "KeyError", "it's", "a\\b", "50%", "a_b", "Straße", "ΟΔΟΣ İ", "", None)
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
MESSAGES = ("card 4711 was refused", "no answer\nin 30 s", "CARD refused", "a.b", "x" * 300, "\u2028", "😀", "", None)
USED = ("failure_id", "error_type", "error_message", "retries", "size", "failed_at", "headers", "body")

KINDS = {"retries": "bigint", "size": "bigint", "failed_at": "timestamp"}


def _rows() -> list[Row]:
    rows: list[Row] = []
    for number in range(ROWS):
        body = {"id": number % 50, "name": TYPES[number % len(TYPES)], "order": {"total": number % 13 + 0.5, "open": number % 2 == 0}}
        body["odd"] = ODD[number % len(ODD)]
        row: Row = {column.name: None for column in COLUMNS}
        row |= {
            "failure_id": f"f{number}",
            "queue": "shop@orders",
            "error_type": TYPES[number % len(TYPES)],
            "error_message": MESSAGES[number // 3 % len(MESSAGES)],
            "retries": number % 5,
            "size": number % 1000,
            "failed_at": None if number % 11 == 0 else NOW - timedelta(minutes=number % 3000, microseconds=number % 7),
            "headers": json.dumps({"x-tenant": f"t{number % 4}", "tries": number % 3}),
            "body": None if number % 17 == 0 else json.dumps(body),
        }
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def duckdb_rows() -> "list[Row]":
    return _rows()


@pytest.fixture(scope="module")
def frame(spark: "SparkSession", duckdb_rows: "list[Row]") -> "DataFrame":
    schema = ", ".join(f"{name} {KINDS.get(name, 'string')}" for name in USED)
    made = spark.createDataFrame([tuple(row[name] for name in USED) for row in duckdb_rows], schema).coalesce(1).persist()
    assert made.count() == ROWS
    register(spark)
    return made


_texts = st.sampled_from([text.replace("'", "''") for text in (*TYPES, *MESSAGES) if text is not None])
_patterns = st.sampled_from(["card%", "%refused", "%\\%", "50%", "a_b", "%''%", "%e%", "", "_", "%\\b", "%οδοσ%", "%σ i", "%ΣΣ%", "%İ"])
_regular = st.sampled_from(
    [
        "card",
        "^card \\d+",
        "refused$",
        "[a-c]\\.b",
        "no.answer",
        "answer.in",
        "a|b",
        "x{3,}",
        "s$",
        "^$",
        ".",
        "\\d{4}",
        "e+?",
        "\\.+b",
        "(?i)CARD",
        "(a|b)+",
        "^.$",
        "(?s)answer.in",
    ]
)
_numbers = st.sampled_from(["0", "1", "3", "-1", "999", "2.5", "1e2"])
_times = st.sampled_from(
    [
        "now()",
        "now() - interval 1 hour",
        "now() - interval '2' day",
        "timestamptz '2024-05-16 12:00:00+02:00'",
        "'2024-05-17'",
        "'2024-05-17 07:59:00'",
    ]
)
_compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"])
_text_values = st.sampled_from(
    [
        "error_type",
        "error_message",
        "lower(error_message)",
        "lower(error_type)",
        "coalesce(error_type, '')",
        "(body->>'name')",
        "(headers->>'x-tenant')",
        "(body->>'id')",
    ]
)
_nullable = st.sampled_from(["error_type", "failed_at", "body", "(body->>'nothing')"])
_leaves = st.one_of(
    st.builds("{} {} '{}'".format, _text_values, _compare, _texts),
    st.builds("{} {} {}".format, st.sampled_from(["retries", "size", "length(error_message)"]), _compare, _numbers),
    st.builds("failed_at {} {}".format, _compare, _times),
    st.builds("{} {} '{}'".format, _text_values, st.sampled_from(["like", "not like", "ilike"]), _patterns),
    st.builds("regexp_matches({}, '{}')".format, _text_values, _regular),
    st.builds("{}({}, '{}')".format, st.sampled_from(["contains", "starts_with", "ends_with", "prefix", "suffix"]), _text_values, _texts),
    st.builds("{} in ('{}', '{}')".format, _text_values, _texts, _texts),
    st.builds("retries between {} and {}".format, _numbers, _numbers),
    st.builds("try_cast((body->>'$.order.total') as double) {} {}".format, _compare, _numbers),
    st.builds("try_cast((body->>'odd') as double) {} {}".format, _compare, _numbers),
    st.builds("{} is {}null".format, _nullable, st.sampled_from(["", "not "])),
    st.sampled_from(["(body->'order'->>'open') = 'true'", "true", "not false"]),
)
_both = st.tuples(_leaves, st.sampled_from(["and", "or"]), _leaves).map(lambda found: f"({' '.join(found)})")
_denied = st.one_of(_leaves, _both).map(lambda inner: f"(not {inner})")
ALWAYS = [
    *(f"try_cast((body->>'odd') as double) {sign} {number}" for sign in ("=", "<", ">=") for number in ("5", "1000", "1e300")),
    "try_cast((body->>'odd') as double) is null",
    "lower(error_type) = 'οδοσ i'",
    "error_type ilike '%ΟΔΟΣ%'",
    "error_type ilike 'strasse'",
    "lower(error_type) = 'straße'",
]
expressions = st.one_of(_leaves, _both, _denied, st.tuples(_denied, st.sampled_from(["and", "or"]), _both).map(" ".join))


# All expressions of an example in one Spark job: a job costs more than what it computes.
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(expressions, min_size=90, max_size=90))
def test_the_same_messages_are_picked(frame: "DataFrame", duckdb_rows: "list[Row]", some: list[str]) -> None:
    asked = [*ALWAYS, *some]
    picked = [f"coalesce({spark_sql_of(one, NOW)}, false) as p{number}" for number, one in enumerate(asked)]
    by_spark = frame.selectExpr(*picked).collect()
    with Database(NOW) as database:
        for number, one in enumerate(asked):
            expected = database.picks(one, duckdb_rows, database.columns_of(one))
            found = [bool(row[f"p{number}"]) for row in by_spark]
            wrong = [duckdb_rows[place] for place in range(ROWS) if expected[place] != found[place]]
            assert not wrong, f"{one}: {len(wrong)} rows differ, such as {wrong[0]}"


@pytest.mark.parametrize("pattern", ["(a|b)*c", "(.*a){12}.c", "a.*b.*c", ".*a.+c$", "((a|b)+)+c"])
def test_a_regular_expression_that_would_stop_java_reads_a_long_text_to_its_end(frame: "DataFrame", pattern: str) -> None:
    long = frame.sparkSession.createDataFrame([("ab" * 10_000 + "c",), ("ab" * 10_000,), (None,)], "error_message string")
    found = long.where(spark_sql_of(f"regexp_matches(error_message, '{pattern}')", NOW)).collect()
    assert [row["error_message"][-1] for row in found] == ["c"]
