"""The filter language: what it means, what it refuses, and that it reaches nothing else."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import NOW, NOW_TEXT, failed, table
from failed_deliveries import failed_deliveries
from redrive.errors import ConfigurationError
from redrive.failures.message.cause import cause_of
from redrive.failures.message.columns import COLUMNS, row_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.store.database import Database
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.topology.headers import Delivery

OURS = failed(
    table(
        redrive_error_type="KeyError",
        redrive_error_message="no 'a'",
        redrive_failed_at=NOW_TEXT,
        redrive_failure_id="one",
        tenant="acme",
    ),
    body=b'{"country": "DE", "size": 42}',
)
FOREIGN = failed(body=b"hello")
DAMAGED = failed(table(redrive_failed_at="soon", redrive_retries=-1), body=b'"\\ud800"')
MESSAGES = [FailedMessage(delivery) for delivery in (OURS, FOREIGN, DAMAGED)]
OURS_DIGEST = MESSAGES[0].digest
HOUR = timedelta(hours=1)


def meant(where: str, now: datetime = NOW + HOUR) -> list[bool]:
    """Which of `MESSAGES` an expression means."""
    with OpenFilter(Filter(where, now=now)) as open_filter:
        return open_filter(MESSAGES)


@pytest.mark.parametrize(
    "where",
    [
        (
            "error_type = 'KeyError' and body->>'$.country' = 'DE' "
            "and failed_at > now() - interval 2 hours"
        ),
        "ERROR_TYPE = 'KeyError'",
        "failed.\"error_type\" like 'Key%'",
        "(body->>'$.size')::int > 41",
        "headers->>'$.tenant' = 'acme'",
        "failed_at is not null",
        "size > 20 -- in bytes",
        "failed_at = timestamptz '2024-05-17 10:30:15.25+02'",
        "failed_at < current_timestamp",
        "failed_at::date = current_date",
        "contains(body_text, 'DE')",
        'body_bytes = \'{"country": "DE", "size": 42}\'::blob',
    ],
)
def test_an_expression_picks_the_messages_that_it_is_true_of(where: str) -> None:
    assert meant(where) == [True, False, False]


def test_what_is_not_known_is_picked_by_asking_for_null() -> None:
    assert meant("error_type is null") == [False, True, True]
    assert meant("body is null") == [False, True, True]
    assert meant("error_type <> 'KeyError'") == [False, False, False]


def test_the_time_stands_still_at_the_time_of_the_selection() -> None:
    assert meant("failed_at > now() - interval 2 hours", NOW + 3 * HOUR) == [False, False, False]
    assert meant("failed_at > now() - interval 4 hours", NOW + 3 * HOUR) == [True, False, False]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("error_typ = 'x'", "at character 1"),
        ("error_typ = 'x'", "there is no column error_typ (similar: error_type"),
        ("error_type = KeyError", "a text is in single quotes: 'KeyError'"),
        ("error_type = 'x' and and", "at character 22, 'and'"),
        ("retries > 'many'", "at character 11"),
        ("nofunction(1)", "nofunction"),
        ("retries = 0 and\n  foo = 1", "at character 19, 'foo = 1'"),
        ("", "empty"),
        ("   ", "empty"),
        ("true) or (true", "at character 5"),
        ("true order by 1", "more than one expression"),
        ("true; drop table failed", "SELECT"),
        ("true; select 1", "2 statements"),
        ("1, 2", "more than one expression"),
        ("true union select true", "more than one expression"),
        ("true from failed", "more than one expression"),
        ("exists (select 1)", "a subquery"),
        ("retries = ?", "a parameter"),
        ("sum(retries) > 1", "aggregates"),
        ("row_number() over () > 1", "window"),
        ("'\ud800' = ''", "UTF-8"),
    ],
)
def test_an_expression_that_can_not_be_used_is_refused_and_where_it_is_wrong_is_said(
    where: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        meant(where)
    assert told in refused.value.problem
    assert len(str(refused.value).splitlines()) == 2


def test_an_expression_that_can_not_be_said_of_a_message_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="convert"):
        meant("body_text::int > 3")


def ask(database: Database, sql: str) -> None:
    """What the command does with a query."""
    database.columns_of_query(sql)
    database.query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/*')",
        "from duckdb_secrets()",
        "copy failed to '/tmp/out.csv'",
        "attach '/tmp/x.duckdb'",
        "install httpfs",
        "load httpfs",
        "set memory_limit = '1TB'",
        "set enable_external_access = true",
        "pragma database_list",
        "create table x (a int)",
        "drop table failed",
        "insert into failed (size) values (1)",
        "export database '/tmp/x'",
        "select getenv('HOME')",
    ],
)
def test_a_query_reaches_nothing_but_the_failed_messages(sql: str) -> None:
    with Database() as database, pytest.raises(ConfigurationError):
        ask(database, sql)


def test_a_query_gives_rows_of_json_values_in_its_order() -> None:
    with Database(NOW) as database:
        database.insert(row_of(message.delivery) for message in MESSAGES * 1000)
        names, rows = database.query(
            "select size, count(*) as n, max(failed_at) as last, now() from failed group by size "
            "order by size desc"
        )
    assert names == ["size", "n", "last", "now()"]
    assert rows == [
        {
            "size": 29,
            "n": 1000,
            "last": "2024-05-17 08:30:15.25+00",
            "now()": "2024-05-17 08:30:15.25+00",
        },
        {"size": 8, "n": 1000, "last": None, "now()": "2024-05-17 08:30:15.25+00"},
        {"size": 5, "n": 1000, "last": None, "now()": "2024-05-17 08:30:15.25+00"},
    ]


def test_a_query_without_rows_has_its_columns() -> None:
    with Database() as database:
        assert database.query("select size, body from failed") == (["size", "body"], [])


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select count(*) from failed", set()),
        (
            "select error_type, count(*) from failed where size > 3 group by all",
            {"error_type", "size"},
        ),
        ("select body->>'$.a' from failed", {"body"}),
        ("with x as (select headers from failed) select 1 from x", {"headers"}),
    ],
)
def test_only_the_columns_that_a_query_speaks_of_are_read(sql: str, names: set[str]) -> None:
    with Database() as database:
        assert {column.name for column in database.columns_of_query(sql)} == names


@pytest.mark.parametrize(
    "sql",
    [
        "select * from failed",
        "from failed",
        "select columns('.*') from failed",
        "select failed from failed",
    ],
)
def test_a_query_that_names_no_columns_reads_all(sql: str) -> None:
    with Database() as database:
        assert database.columns_of_query(sql) == COLUMNS


@given(st.lists(failed_deliveries(), max_size=5))
def test_whatever_a_peer_sends_can_be_asked(deliveries: list[Delivery]) -> None:
    where = (
        "body->>'$.a' is null and headers->>'$.a' is null and failed_at is distinct from "
        "now() "
        "and COLUMNS(*) is null"
    )
    with Database() as database:
        rows = [row_of(delivery) for delivery in deliveries]
        assert database.insert(rows) == len(rows)
        database.query("select * from failed")
        assert len(database.meant("body->>'$.a' is null", rows, database.columns_of(where))) == len(
            rows
        )


def test_ids_groups_and_an_expression_all_have_to_be_true() -> None:
    group = cause_of(MESSAGES[0]).group_id
    for filter_, expected in (
        (Filter(), [True, True, True]),
        (Filter(digests={MESSAGES[0].digest, "another"}), [True, False, False]),
        (Filter(groups=[group]), [True, False, False]),
        (Filter(groups=[group[:4]]), [True, False, False]),
        (Filter("size = 5", groups=[group]), [False, False, False]),
        (
            Filter("size = 29", groups=[group], digests={MESSAGES[0].digest}),
            [True, False, False],
        ),
    ):
        with OpenFilter(filter_) as open_filter:
            assert open_filter(MESSAGES) == expected
            assert list(open_filter.of(MESSAGES)) == [
                message for message, chosen in zip(MESSAGES, expected, strict=True) if chosen
            ]


def test_a_filter_may_be_a_function() -> None:
    with OpenFilter(Filter(lambda message: message.body == b"hello")) as open_filter:
        assert open_filter(MESSAGES) == [False, True, False]
    with OpenFilter(Filter(lambda _: True, digests={OURS_DIGEST})) as open_filter:
        assert open_filter(MESSAGES) == [True, False, False]


def test_a_function_that_is_async_is_refused() -> None:
    async def is_meant(message: FailedMessage) -> bool:
        return True

    with pytest.raises(ConfigurationError, match="`where` is an async function"):
        OpenFilter(Filter(is_meant))  # type: ignore[arg-type]


def test_an_expression_without_duckdb_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "redrive.failures.store.database")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigurationError, match=r"needs DuckDB.*\n.*redrive\[cli\]"):
        OpenFilter(Filter("size > 1"))


def test_a_filter_of_more_groups_than_anybody_reads_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="can name at most 1,000 groups, not 1,001"):
        Filter(groups=["abc"] * 1001)


def test_a_filter_survives_the_journal() -> None:
    filter_ = Filter("size > 1", frozenset({"a", "b"}), ("g",), datetime(2024, 1, 1, tzinfo=UTC))
    assert Filter.from_json(filter_.as_json()) == filter_
    assert Filter().is_all
    assert not filter_.is_all


def test_a_database_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Database() as database:
        database.insert([row_of(OURS)])
    assert list(tmp_path.iterdir()) == []
