"""What a former look has kept is recognized in the next one, and not written anew."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deliveries import failed, table
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.amqp.field_table import Table
from redrive.failures.message.cause import cause_of
from redrive.failures.message.failed_message import FailedMessage, cause_known_of
from redrive.failures.store import known_messages
from redrive.failures.store.index import Index
from redrive.failures.store.known_messages import KnownMessages
from redrive.topology.headers import Delivery


def message(number: int, count: int = 0) -> Delivery:
    """A message that was delivered so often before."""
    headers = table(
        tenant="acme", redrive_error_type=f"Error{number % 3}", redrive_error_message=f"no {number}"
    )
    if count:  # a quorum queue then has them in the order of their names
        counted = headers.with_values({"x-delivery-count": count})
        headers = Table(sorted(counted.raw_fields()))
    return failed(headers, body=b'{"number": %d}' % number)


def kept_rows(index: Index) -> list[tuple[object, ...]]:
    """All that is kept of a queue, but what the broker counts."""
    look = index.find(KEPT_QUEUE)
    assert look is not None
    rows = "SELECT * EXCLUDE (properties) FROM read_parquet(?) ORDER BY place"
    with duckdb.connect(":memory:") as database:
        return database.execute(rows, [str(index.folder / look.file)]).fetchall()


def recognized(index: Index, folder: Path, deliveries: Sequence[Delivery]) -> list[bool]:
    """Which messages are recognized from the look that the index has."""
    look = index.find(KEPT_QUEUE)
    assert look is not None
    folder.mkdir()
    with duckdb.connect(":memory:") as database:
        known = KnownMessages(index.folder / look.file, folder, database)
        messages = [FailedMessage(one) for one in deliveries]
        return [known.recognizes(one, place) for place, one in enumerate(messages)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 12), max_size=12))
def test_a_second_look_keeps_what_a_look_without_a_first_one_would(
    tmp_path_factory: pytest.TempPathFactory, before: list[int], now: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("looks")
    after, alone = index_in(folder / "after"), index_in(folder / "alone")
    keep(after, [message(number) for number in before])
    again = [message(number, count=1) for number in now]
    keep(after, again, former=after.find(KEPT_QUEUE))
    keep(alone, again)
    assert kept_rows(after) == kept_rows(alone)


def test_messages_are_recognized_among_those_that_have_gone_and_come(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, [message(number) for number in range(10)])
    now = [0, 2, 3, 3, 7, 70, 71]
    found = recognized(index, tmp_path / "reading", [message(number) for number in now])
    assert found == [True, True, True, False, True, False, False]


def test_a_message_that_is_recognized_knows_its_cause(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, [message(1)])
    look = index.find(KEPT_QUEUE)
    assert look is not None
    one = FailedMessage(message(1))
    with duckdb.connect(":memory:") as database:
        known = KnownMessages(index.folder / look.file, tmp_path, database)
        assert known.recognizes(one, 0)
    assert cause_known_of(one) == cause_of(FailedMessage(message(1)))


@pytest.fixture
def few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little room for messages that are to be recognized."""
    monkeypatch.setattr(known_messages, "_AT_A_TIME", 4)
    monkeypatch.setattr(known_messages, "_MOST_AHEAD", 8)


@pytest.mark.usefixtures("few_ahead")
def test_only_so_many_messages_are_held_to_be_recognized(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, [message(number) for number in range(30)])
    some_gone = [message(number) for number in (0, 1, 6, 7, 13, 14, 15, 20, 27, 28, 29, 40)]
    assert recognized(index, tmp_path / "some", some_gone) == [True] * 11 + [False]
    most_gone = [message(number) for number in (25, 26, 0)]
    assert recognized(index, tmp_path / "most", most_gone) == [False, False, True]


@pytest.mark.usefixtures("few_ahead")
def test_messages_that_are_all_alike_are_held_no_more_than_others(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, [message(1)] * 30)
    look = index.find(KEPT_QUEUE)
    assert look is not None
    with duckdb.connect(":memory:") as database:
        known = KnownMessages(index.folder / look.file, tmp_path, database)
        assert not known.recognizes(FailedMessage(message(2)), 0)
        assert sum(map(len, known._same.values())) < 12
        assert all(known.recognizes(FailedMessage(message(1)), place) for place in range(1, 31))


def test_a_former_look_that_another_process_replaces_meanwhile_is_read_all_the_same(
    tmp_path: Path,
) -> None:
    index = index_in(tmp_path)
    keep(index, [message(1), message(2)])
    former = index.find(KEPT_QUEUE)
    keep(index, [message(3)])
    assert keep(index, [message(1), message(2)], former=former).count() == 2
