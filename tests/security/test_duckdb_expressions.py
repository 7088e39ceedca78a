"""Expressions and queries reach nothing but the failed messages, and end: no file, network, setting
or variable of this process."""

import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from deliveries import failed
from redrive.errors import ConfigurationError
from redrive.failures.message.columns import row_of
from redrive.failures.store import database
from redrive.failures.store.database import Database

SECRET = "hunter2-of-the-operator"

ATTEMPTS: dict[str, list[str]] = {
    "files that are read": [
        "(select content from read_text('{file}')) is not null",
        "(select count(*) from read_blob('{file}')) > 0",
        "(select count(*) from read_csv('{file}')) > 0",
        "(select count(*) from read_csv_auto('{file}')) > 0",
        "(select count(*) from read_json('{file}')) > 0",
        "(select count(*) from read_json_objects('{file}')) > 0",
        "(select count(*) from read_parquet('{file}')) > 0",
        "(select count(*) from parquet_metadata('{file}')) > 0",
        "(select count(*) from sniff_csv('{file}')) > 0",
        "(select count(*) from glob('{folder}/*')) > 0",
        "select * from read_text('{file}')",
        "select * from read_csv('{file}', header = false)",
        "select * from '{file}'",
        'select * from "{file}"',
        "select * from glob('{folder}/*')",
        "from '{file}'",
        "select * from failed, read_text('{file}')",
        "select (select content from read_text('{file}')) from failed",
        "with x as (select * from read_text('{file}')) select * from x",
        "select * from read_duckdb('{file}')",
        "select * from sqlite_scan('{file}', 't')",
        "select * from 'https://127.0.0.1:1/x.parquet'",
        "select * from 's3://bucket/x.parquet'",
        "select * from read_csv('/dev/stdin')",
        "select * from read_text('/proc/self/environ')",
    ],
    "files that are written": [
        "copy failed to '{folder}/out.csv'",
        "copy (select 1) to '{folder}/out.parquet' (format parquet)",
        "copy failed from '{file}'",
        "export database '{folder}/out'",
        "attach '{folder}/out.duckdb'",
        "attach '{folder}/out.duckdb' as other (type sqlite)",
        "create table '{folder}/out' as select 1",
        "create table x as select 1",
        "create view x as select 1",
        "create macro x() as 1",
        "create type x as enum ('a')",
        "checkpoint",
        "select 1; copy (select 1) to '{folder}/out.csv'",
        "true); copy (select 1) to '{folder}/out.csv'; select (true",
        "true) -- ",
        "true /* ",
        "true */ or (true",
        "select write_log('{folder}/out')",
        "pragma enable_profiling = 'json'; pragma profiling_output = '{folder}/out'",
    ],
    "extensions": [
        "install httpfs",
        "load httpfs",
        "force install spatial",
        "install x from '{folder}'",
        "load '{file}'",
        "update extensions",
        "select * from st_read('{file}')",
        "select * from postgres_scan('host=127.0.0.1', 'public', 't')",
        "select * from delta_scan('{folder}')",
    ],
    "settings and secrets": [
        "set enable_external_access = true",
        "set global enable_external_access = true",
        "reset enable_external_access",
        "set lock_configuration = false",
        "set memory_limit = '1TB'",
        "set temp_directory = '{folder}'",
        "set home_directory = '{folder}'",
        "set allowed_paths = ['{file}']",
        "set allowed_directories = ['{folder}']",
        "set log_query_path = '{folder}/out'",
        "pragma enable_external_access",
        "pragma database_list",
        "create secret x (type s3, key_id 'a', secret 'b')",
        "create persistent secret x (type s3, key_id 'a', secret 'b')",
        "select getenv('HOME')",
        "getenv('HOME') is not null",
        "set variable x = 1",
        "use other",
        "call pragma_version()",
    ],
    "variables of this process": [
        "select * from private",
        "select * from node",
        "(select secret from private) = 'a'",
        "select * from python_scan_all_frames",
        "select * from pandas_scan(1)",
        "select * from arrow_scan(1, 2, 3)",
    ],
    "statements in texts": [
        "select * from query('select * from read_text(''{file}'')')",
        "(select count(*) from query('copy (select 1) to ''{folder}/out.csv''')) = 1",
        "select * from query_table('{file}')",
        "select * from query_table(['{file}'])",
        (
            "select * from json_execute_serialized_sql(json_serialize_sql('select * from "
            "read_text(''{file}'')'))"
        ),
        "pragma json_execute_serialized_sql(json_serialize_sql('select 1'))",
        "prepare x as select 1",
        "execute x",
        "begin transaction",
        "pivot failed on error_type",
        "describe failed",
        "summarize '{file}'",
        "explain analyze select * from read_text('{file}')",
        "vacuum",
    ],
    "what can't be parsed": [
        "",
        ";",
        "(",
        ")",
        "'",
        '"',
        "$$",
        "\0",
        "true\0",
        "--",
        "\x1b[2J",
        "\ud800",
        "(" * 20_000 + "true" + ")" * 20_000,
        "not " * 20_000 + "true",
        "-" * 20_001 + "1",
        "[" * 5_000 + "]" * 5_000,
        "size = 1" + " or size = 1" * 3_000,
    ],
}


@pytest.fixture(autouse=True, scope="module")
def _a_name_that_duckdb_would_find_here() -> None:
    # Not where this file is collected: the first table of Arrow imports pandas, if there is one.
    import pyarrow

    globals()["private"] = pyarrow.table({"secret": [SECRET]})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def ask_for_columns(asked: Database, sql: str) -> object:
    return asked.columns_of(sql)


def ask_of_each(asked: Database, sql: str) -> object:
    row = row_of(failed())
    return asked.meant(sql, [row], asked.columns_of(sql))


def ask_of_all(asked: Database, sql: str) -> object:
    asked.columns_of_query(sql)
    return asked.query(sql)


@pytest.mark.parametrize("ask", [ask_for_columns, ask_of_each, ask_of_all])
@pytest.mark.parametrize("kind", ATTEMPTS)
def test_nothing_is_reached_and_nothing_is_left(
    kind: str,
    ask: Callable[[Database, str], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "secret.csv"
    file.write_text(f"secret\n{SECRET}\n")
    before = contents(tmp_path)
    with Database() as asked:
        asked.insert([row_of(failed())])
        for attempt in ATTEMPTS[kind]:
            sql = attempt.replace("{file}", str(file)).replace("{folder}", str(tmp_path))
            try:
                found = repr(ask(asked, sql))
            except ConfigurationError as error:
                found = str(error)
            assert SECRET not in found, sql
            assert contents(tmp_path) == before, sql
        assert asked.query("select count(*) as n from failed")[1] == [{"n": 1}]


# --- what would be computed before a message is read ----------------------------------------------


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("list_sum(range(30000000)) > 1", "range"),
        ("length(repeat('x', 1000000000)) > 1", "repeat"),
        ("length(REPEAT('x', 1e9::bigint)) > 1", "repeat"),
        ("length(repeat('x', 10 * 10000000)) > 1", "repeat"),
        ("length(lpad(error_type, 200000000, 'x')) > 1", "lpad"),
        ("len(generate_series(1, 3000000000, 1)) > 1", "generate_series"),
        ("len([x for x in range(9999999)]) > 1", "range"),
    ],
)
def test_a_constant_that_would_fill_the_memory_is_refused_with_what_asks_for_it(
    expression: str, function: str
) -> None:
    with Database() as asked:
        for ask in (
            asked.columns_of,
            lambda one: asked.columns_of_query(f"select {one} from failed"),
        ):
            with pytest.raises(
                ConfigurationError,
                match=f"asks for {function} of .*, which would be computed before",
            ) as raised:
                ask(expression)
            assert raised.value.remedy == "Give at most 1,000,000."


@pytest.mark.parametrize(
    "expression",
    [
        "size > 5000000000",
        "failed_at > to_timestamp(1715932800)",
        "length(rpad(error_type, 5, '99999999')) = 5",
        "list_sum(range(1000)) > 1",
        "(body->>'id')::bigint between 10000000 and 20000000",
    ],
)
def test_a_large_number_elsewhere_is_nothing_special(expression: str) -> None:
    with Database() as asked:
        asked.columns_of(expression)


def test_what_is_computed_for_too_long_is_interrupted_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted = threading.Event()

    class Endless:
        """A DuckDB that computes until it is interrupted."""

        def __init__(self, real: duckdb.DuckDBPyConnection) -> None:
            self._real = real
            self.interrupt = interrupted.set
            self.close = real.close

        def execute(self, sql: str, *values: object) -> duckdb.DuckDBPyConnection:
            if not sql.startswith("EXPLAIN"):
                return self._real.execute(sql, *values)
            assert interrupted.wait(60)
            raise duckdb.InterruptException("Interrupted!")

    monkeypatch.setattr(database, "_CHECK_SECONDS", 0.01)
    with Database() as asked:
        monkeypatch.setattr(asked, "_duckdb", Endless(asked._duckdb))
        with pytest.raises(
            ConfigurationError,
            match="'size > 1' takes too long to compute, before any message is read",
        ):
            asked.columns_of("size > 1")
