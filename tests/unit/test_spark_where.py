"""The filter language on Spark: what is passed on, and what is refused with the reason."""

from datetime import UTC, datetime

import pytest

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.where import spark_sql_of

NOW = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("error_type = 'TimeoutError'", "(`error_type` = 'TimeoutError')"),
        ("ERROR_TYPE = 'it''s'", r"(`error_type` = 'it\'s')"),
        (r"error_type = 'a\b'", r"(`error_type` = 'a\\b')"),
        ("retries between 1 and 3", "(`retries` BETWEEN 1 AND 3)"),
        ("retries > -1 and size <= 1e3", "((`retries` > (-1)) AND (`size` <= 1e3D))"),
        ("not reason is null", "(NOT (`reason` IS NULL))"),
        ("error_type in ('A', 'B')", "(`error_type` IN ('A', 'B'))"),
        (r"error_message like '50\%%'", r"(`error_message` LIKE '50\\\\%%')"),
        (
            "error_message not ilike '%card%'",
            "(lower(translate(`error_message`, 'İΣ', 'iσ')) NOT LIKE lower(translate('%card%', 'İΣ', 'iσ')))",
        ),
        ("error_type is not distinct from 'A'", "(`error_type` <=> 'A')"),
        ("failed_at > now() - interval 1 hour", "(`failed_at` > TIMESTAMP '2024-05-17 07:00:00.000000+00:00')"),
        ("failed_at >= '2024-05-17T10:00:00+02:00'", "(`failed_at` >= TIMESTAMP '2024-05-17 08:00:00.000000+00:00')"),
        ("(headers->>'x-tenant') = 'a'", r"(get_json_object(`headers`, '$[\'x-tenant\']') = 'a')"),
        ("(body->>'$.order.id') = '7'", r"(get_json_object(`body`, '$[\'order\'][\'id\']') = '7')"),
        ("regexp_matches(error_message, '^card .*d$')", "redrive_matches(`error_message`, '^card .*d$')"),
        ("starts_with(routing_key, 'order.')", "startswith(`routing_key`, 'order.')"),
        ("length(body_text) > 5 or true", "((char_length(`body_text`) > 5) OR true)"),
    ],
)
def test_what_both_understand_is_passed_on(expression: str, sql: str) -> None:
    assert spark_sql_of(expression, NOW) == sql


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "is empty"),
        ("error_type ==", "can't be read at character"),
        ("error_type = 'A", "can't be read"),
        ("colour = 'red'", "there is no column 'colour'"),
        ("error_type", "is a text, and is to be true or false"),
        ("retries = '3'", "a number on one side and a text on the other"),
        ("retries + 1 = 3", "can't be computed on Spark"),
        ("upper(error_type) = 'A'", "is nothing that can be asked on Spark"),
        ("regexp_matches(error_message, 'a++')", "is wrong: bad repetition operator: ++"),
        (r"regexp_matches(error_message, '\1')", "is wrong: invalid escape sequence"),
        ("error_message ~ 'card'", "~ can't be asked on Spark"),
        ("error_message !~ 'card'", "~ can't be asked on Spark"),
        ("(select 1) = 1", "is nothing that can be asked on Spark"),
        ("select 1", "is nothing that can be asked on Spark"),
        ("error_type = 'a'; drop table failed", "is nothing that can be asked on Spark"),
        ("read_text('/etc/passwd') = 'x'", "calls read_text"),
        ("java_method('java.lang.System', 'exit') = 'x'", "calls java_method"),
        ("reflect('java.lang.System', 'getenv') = 'x'", "calls reflect"),
        ("error_type = $1", "is nothing that can be asked on Spark"),
        ("body = '{}'", "on one side"),
        ("body_bytes = 'a'", "on one side"),
        ("(body->>'a.b') = 'c'", "is no key"),
        ("(body->>0) = 'c'", "asks for"),
        ("(error_type->>'a') = 'c'", "asks a text for a key"),
        ("regexp_matches(error_type, '(a')", "is wrong: missing ): (a"),
        ("regexp_matches(error_type, error_message)", "is to be a text in quotes"),
        ("error_type like 'a!%' escape '!'", "is nothing that can be asked on Spark"),
        ("failed_at > 'yesterday'", "'yesterday' is no time"),
        ("failed_at > now() - interval 1 month", "is no length of time"),
        ("failed_at + interval 1 hour > now()", "can't be computed on Spark"),
        ("cast(size as varchar) = '3'", "can't be asked on Spark"),
        ("retries in (select 1)", "can't be asked on Spark"),
        ("count(*) > 1", "is nothing that can be asked on Spark"),
        ("(" * 2000 + "true" + ")" * 2000, ""),
    ],
)
def test_what_they_would_understand_differently_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        spark_sql_of(expression, NOW)
    assert why in raised.value.problem
    assert raised.value.remedy


def test_a_text_can_not_end_its_quotes() -> None:
    hostile = "x\\'' or 1=1 --"
    sql = spark_sql_of("error_type = '" + hostile.replace("'", "''") + "'", NOW)
    assert sql == "(`error_type` = '" + hostile.replace("\\", "\\\\").replace("'", "\\'") + "')"


@pytest.mark.parametrize("pattern", ["(a|b)*c", "(.*a){12}b", "a.*b.*c", "(?i)card", "a{2", r"\d+\z"])
def test_a_regular_expression_is_passed_on_as_it_is_to_what_reads_it_on_one_machine(pattern: str) -> None:
    sql = spark_sql_of(f"regexp_matches(error_message, '{pattern}')", NOW)
    assert sql == f"redrive_matches(`error_message`, '{pattern}')".replace("\\", "\\\\")
