"""The index answers as the look itself would have, whatever the messages hold."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import framework_messages
from deliveries import failed
from failed_deliveries import failed_deliveries
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.amqp.field_table import Table
from redrive.errors import ConfigurationError
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.columns import BODIES, BY_NAME, COLUMNS, Column, row_of
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Group, Groups
from redrive.failures.queue.canary import Guards
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import plan_of
from redrive.failures.store.database import Database
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.index import MOST_OF_A_BODY
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.kept_messages import IndexUnusable, grouped, matching
from redrive.failures.store.look import Look
from redrive.topology.headers import Delivery

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EXPRESSIONS = (
    "error_type is not null",
    "retries = 0 and size > 3",
    "body is not null",
    "body_text like '%a%'",
    "failed_at < now()",
    "octet_length(body_bytes) = size",
    "headers->>'$.redrive-host' is null",
    "failed::varchar like '%1%'",
    "traceback is null and content_type is not null",
    "headers->>'$.x-orig-routing-key' is not null and retries = 0",
)
some_deliveries = st.lists(failed_deliveries(), max_size=6)
in_a_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=12,
)


def looked_at(deliveries: Sequence[Delivery]) -> list[FailedMessage]:
    return [FailedMessage(delivery) for delivery in deliveries]


def facts_of(groups: Groups) -> tuple[int, int, list[tuple[object, ...]]]:
    return groups.total, groups.other, [_of(group) for group in groups.largest_first]


def _of(group: Group) -> tuple[object, ...]:
    keys = list(group.routing_keys.items())
    times = sorted(group.times)
    return group.key, group.count, group.first_id, group.first, group.last, keys, times


@in_a_folder
@given(deliveries=some_deliveries)
def test_every_byte_comes_back(tmp_path: Path, deliveries: list[Delivery]) -> None:
    kept = keep(index_in(tmp_path), deliveries)
    assert isinstance(kept, IndexedMessages)
    found = [message.delivery for message in kept]
    assert found == deliveries
    assert [one.properties.encode() for one in found] == [
        one.properties.encode() for one in deliveries
    ]


@in_a_folder
@given(deliveries=some_deliveries, column=st.sampled_from(COLUMNS))
@pytest.mark.nightly("the index is compared with the look by what it finds each time")
def test_groups_by_any_column_are_those_of_the_look(
    tmp_path: Path, deliveries: list[Delivery], column: Column
) -> None:
    kept = keep(index_in(tmp_path), deliveries)
    assert facts_of(grouped(kept, column)) == facts_of(grouped(looked_at(deliveries), column))


@in_a_folder
@given(deliveries=some_deliveries, where=st.sampled_from(EXPRESSIONS))
@pytest.mark.nightly("examples are compared each time")
def test_a_filter_means_the_same_messages(
    tmp_path: Path, deliveries: list[Delivery], where: str
) -> None:
    kept = keep(index_in(tmp_path), deliveries)
    with OpenFilter(Filter(where, now=NOW)) as chosen:
        wanted = [one.delivery for one in chosen.of(looked_at(deliveries))]
        assert [one.delivery for one in matching(kept, chosen)] == wanted
        again = kept.matching(Filter())
        groups = grouped(matching(again, chosen), BY_NAME["group_id"])
        assert facts_of(groups) == facts_of(
            grouped(chosen.of(looked_at(deliveries)), BY_NAME["group_id"])
        )


@in_a_folder
@given(deliveries=some_deliveries)
@pytest.mark.nightly("the index is compared with the look by what it finds each time")
def test_a_query_finds_the_same_rows(tmp_path: Path, deliveries: list[Delivery]) -> None:
    sql = "select * from failed"
    with Database(NOW) as database, keep(index_in(tmp_path), deliveries).database(COLUMNS) as kept:
        database.insert(map(row_of, deliveries))
        assert kept.query(sql) == database.query(sql)


@in_a_folder
@given(
    deliveries=some_deliveries,
    twice=st.booleans(),
    where=st.sampled_from((None, "retries = 0", "error_type is not null")),
    to=st.sampled_from((None, "elsewhere")),
    canary=st.sampled_from((0, 20)),
    force=st.booleans(),
)
@pytest.mark.nightly("the index is compared with the look by what it finds each time")
def test_a_plan_is_that_of_the_look(
    tmp_path: Path,
    deliveries: list[Delivery],
    twice: bool,
    where: str | None,
    to: str | None,
    canary: int,
    force: bool,
) -> None:
    more = [replace(one, body=one.body + b"!") for one in deliveries] if twice else []
    kept = keep(index_in(tmp_path), [*deliveries, *more])
    order = Order(Filter(where, now=NOW), to=to, guards=Guards(canary), force=force)
    found, wanted = plan_of(order, kept), plan_of(order, looked_at([*deliveries, *more]))
    assert [one.delivery for one in found.first] == [one.delivery for one in wanted.first]
    assert list(found.groups.items()) == list(wanted.groups.items())
    assert replace(found, first=[]) == replace(wanted, first=[])


def test_a_plan_says_what_stays_and_which_ids_are_shared(tmp_path: Path) -> None:
    often = Table.of({"redrive-count": 9})
    shared = Table.of({"redrive-failure-id": "1", "redrive-count": 1})
    kept = keep(
        index_in(tmp_path), [failed(often), failed(shared, body=b"1"), failed(shared, body=b"2")]
    )
    plan = plan_of(Order(), kept)
    assert (plan.looked_at, plan.count, plan.too_often, plan.shared_ids) == (3, 2, 1, 1)


def test_a_plan_without_a_job_is_about_what_names_an_empty_one_too() -> None:
    plan = plan_of(Order(), looked_at([failed(Table.of({"redrive-job": ""}))]))
    assert (plan.count, plan.came_back) == (1, 0)


def incident() -> list[Delivery]:
    """Forty messages of two causes; every fourth has no time."""
    return [
        failed(
            Table.of(
                {
                    "redrive-failure-id": f"failure-{number:02}",
                    "redrive-error-type": "KeyError" if number % 2 else "ValueError",
                    "redrive-error-message": f"no plan {number}",
                    "redrive-failed-at": (
                        f"2026-02-0{1 + number % 3}T00:00:{number:02}.000Z" if number % 4 else None
                    ),
                }
            ),
            body=b'{"n": %d}' % number,
        )
        for number in range(40)
    ]


@pytest.mark.parametrize("newest", [False, True])
def test_the_first_and_the_newest_are_those_of_the_look(tmp_path: Path, newest: bool) -> None:
    kept = Look("index", messages=keep(index_in(tmp_path), incident()))
    queue = Look("queue", messages=iter(looked_at(incident())))
    with OpenFilter(Filter("error_type = 'KeyError'")) as chosen:
        shown, count = kept.first(7, chosen, newest=newest)
        wanted, _ = queue.first(7, chosen, newest=newest)
    assert ([one.delivery for one in shown], count) == ([one.delivery for one in wanted], 20)


def test_a_group_and_a_filter_choose_together(tmp_path: Path) -> None:
    kept, messages = keep(index_in(tmp_path), incident()), looked_at(incident())
    group = grouped(messages, BY_NAME["group_id"]).largest_first[0].key
    filter_ = Filter("retries = 0 and body->>'$.n' < '3'", groups=(group.group_id[:5],))  # type: ignore[union-attr]
    with OpenFilter(filter_) as chosen:
        wanted = [one.failure_id for one in chosen.of(messages)]
        assert [one.failure_id for one in matching(kept, chosen)] == wanted
    assert wanted


def test_a_filter_by_a_function_is_asked_of_each_message(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    with OpenFilter(Filter(lambda message: message.failure_id.endswith("7"))) as chosen:
        assert len(list(matching(kept, chosen))) == 4


def test_an_id_or_its_beginning_finds_a_message(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    assert [one.failure_id for one in kept.named("failure-17")] == ["failure-17"]
    assert len(list(kept.named("failure-1"))) == 10
    assert not list(kept.named("nobody"))


def test_a_digest_is_looked_for_among_all(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    assert len(list(kept.named("0123456789abcdef"))) == 40


def test_an_expression_that_fails_for_a_message_is_said_to(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    with pytest.raises(ConfigurationError, match="wrong at character 10"):
        kept.matching(Filter("body_text::integer = 1")).count()
    assert keep(index_in(tmp_path), incident()).count() == 40


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_parquet('{file}')",
        "select * from '{file}'",
        "select content from read_text('/etc/hostname')",
        "select place from failed",
        "select cause_message from failed",
        "attach '{file}' as other",
        "copy failed to '{folder}/stolen.csv'",
        "select * from query('select * from read_parquet(''{file}'')')",
        "select * from glob('{folder}/*')",
    ],
)
def test_hostile_sql_reaches_no_file_and_no_other_column(tmp_path: Path, sql: str) -> None:
    index = index_in(tmp_path)
    kept = keep(index, incident())
    hostile = sql.format(file=next(index.folder.glob("*.parquet")), folder=index.folder)
    for ask in (Database.columns_of_query, Database.query):
        with kept.database(COLUMNS) as database, pytest.raises(ConfigurationError):
            ask(database, hostile)
    with pytest.raises(ConfigurationError):
        kept.matching(Filter(f"(({hostile})) is not null")).count()
    assert not list(index.folder.glob("*.csv"))


def test_an_expression_sees_no_other_column(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    with pytest.raises(ConfigurationError, match="place"):
        kept.matching(Filter("place = 0")).count()


def test_a_large_body_is_not_kept_and_its_columns_are(tmp_path: Path) -> None:
    large = failed(body=b"x" * (MOST_OF_A_BODY + 1))
    kept = keep(index_in(tmp_path), [failed(body=b"short"), large])
    assert kept.matching(Filter("size > 1000")).count() == 1
    assert kept.groups(BY_NAME["group_id"]).total == 2
    assert [one.body for one in kept.first(1, newest=False)] == [b"short"]
    assert kept.matching(Filter("content_type is null and headers is not null")).count() == 2
    with kept.database([BY_NAME["app_id"]]) as database:
        assert len(database.query("select app_id from failed")[1]) == 2
    assert kept.matching(Filter("traceback is null")).count() == 2
    with pytest.raises(IndexUnusable, match="64 KiB"):
        list(kept)
    with pytest.raises(IndexUnusable, match="64 KiB"):
        kept.matching(Filter("body is null")).count()
    with pytest.raises(IndexUnusable, match="64 KiB"):
        kept.database([BY_NAME["body_text"]])


def test_who_can_not_look_at_the_queue_gets_messages_without_a_large_body(tmp_path: Path) -> None:
    large = framework_messages.DRAMATIQ
    body = json.dumps({**json.loads(large.body), "args": ["x" * MOST_OF_A_BODY]}).encode()
    deliveries = [failed(body=b"short"), replace(large, body=body, dead_letter_queue=KEPT_QUEUE)]
    index = index_in(tmp_path)
    keep(index, deliveries)
    look = index.find(KEPT_QUEUE)
    assert look is not None
    found = list(IndexedMessages(index, look, gives_bodiless=True))
    whole = [FailedMessage(delivery) for delivery in deliveries]
    assert [one.has_body for one in found] == [True, False]
    columns = [column for column in COLUMNS if column.name not in BODIES]
    assert [[column.read(one) for column in columns] for one in found] == [
        [column.read(one) for column in columns] for one in whole
    ]
    assert [one.digest for one in found] == [one.digest for one in whole]


def test_a_file_that_is_damaged_is_said_to_be_and_deleted(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    kept = keep(index, incident())
    data = next(index.folder.glob("*.parquet"))
    data.write_bytes(b"\0" * data.stat().st_size)
    with pytest.raises(IndexUnusable, match="damaged"):
        kept.groups(BY_NAME["group_id"])
    assert index.find("ucenter@user@failed") is None
    assert not list(index.folder.iterdir())


def test_what_is_asked_again_is_not_changed_by_who_asked_before(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    first, second = kept.groups(BY_NAME["group_id"]), kept.groups(BY_NAME["group_id"])
    known, other = first.largest_first
    known.take(other)
    assert [one.count for one in second.largest_first] == [20, 20]
    assert [one.count for one in kept.groups(BY_NAME["group_id"]).largest_first] == [20, 20]


def test_the_groups_of_an_id_are_those_that_a_look_would_find(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    group = grouped(kept, BY_NAME["group_id"]).largest_first[1]
    assert isinstance(group.key, Cause)
    with OpenFilter(Filter(groups=(group.key.group_id[:6],))) as chosen:
        wanted = grouped(chosen.of(looked_at(incident())), BY_NAME["group_id"])
        assert facts_of(grouped(matching(kept, chosen), BY_NAME["group_id"])) == facts_of(wanted)


def test_messages_beside_one_are_of_its_cause(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    group_id = cause_of(FailedMessage(incident()[3])).group_id
    assert kept.around("failure-03", group_id) == ("failure-01", "failure-05", 2, 20)
    assert kept.around("failure-01", group_id) == ("", "failure-03", 1, 20)
    assert kept.around("failure-39", group_id) == ("failure-37", "", 20, 20)
    assert not kept.around("none", group_id).among


def test_a_fingerprint_is_looked_up_and_not_looked_for(tmp_path: Path) -> None:
    deliveries = [failed(Table.of({}), body=b"%d" % number) for number in range(5)]
    kept = keep(index_in(tmp_path), deliveries)
    id_ = FailedMessage(deliveries[2]).failure_id
    assert [one.body for one in kept.named(id_)] == [b"2"]
    assert len(list(kept.named("ab" * 10))) == 5, "it may be a digest"


def test_a_page_of_messages_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    ids = [one.failure_id for one in kept.first(3, newest=False, skip=4)]
    assert ids == ["failure-04", "failure-05", "failure-06"]


def test_trips_are_counted_by_cause(tmp_path: Path) -> None:
    one = failed(
        Table.of({"redrive-error-type": "KeyError", "redrive-count": 3, "redrive-host": "b"})
    )
    kept = keep(index_in(tmp_path), [one, failed(Table.of({}))])
    cause = cause_of(FailedMessage(one))
    assert kept.trips()[cause.group_id] == (["b"], 1, 3)
    assert len(kept.trips()) == 2


def test_a_question_that_fails_does_not_spoil_the_next(tmp_path: Path) -> None:
    kept = keep(index_in(tmp_path), incident())
    with pytest.raises(ConfigurationError):
        kept.matching(Filter("error('no')")).count()
    assert kept.matching(Filter("true")).count() == 40
