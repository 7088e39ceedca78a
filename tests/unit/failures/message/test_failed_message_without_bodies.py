"""Where bodies are hidden, the index has none, and answers all that does not ask for them."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import framework_messages
from deliveries import failed
from effort import some_of
from failed_deliveries import failed_deliveries
from kept_looks import KEPT_QUEUE, URL, keep, look_at
from kept_looks import kept as kept_of
from redrive.errors import ConfigurationError
from redrive.failures.message.cause import cause_of
from redrive.failures.message.columns import BODIES, BY_NAME, COLUMNS, row_of
from redrive.failures.message.direction import Direction
from redrive.failures.message.failed_message import FailedMessage, told_of, with_told
from redrive.failures.message.mask import Mask, MaskedMessage
from redrive.failures.queue.failure_feed import Copy
from redrive.failures.queue.feed_writer import FeedWriter
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import plan_of
from redrive.failures.store.filter import Filter
from redrive.failures.store.index import Index
from redrive.failures.store.index_changes import changes_since
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.index_writer import IndexWriter
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.headers import Delivery
from redrive.topology.names import ExchangeFamily

MARKER = random.Random(16).randbytes(32)
"""Nothing packs it: where it is written, its bytes are found."""


def index_without_bodies(folder: Path, *, keeps_bodies: bool = False) -> Index:
    return Index(URL, folder / "index", keeps_bodies=keeps_bodies)


def follow(index: Index, *bodies: bytes) -> IndexedMessages:
    """What the index has after a look at the first body, and failures with the others."""
    keep(index, [failed(body=bodies[0])])
    keeper = FeedWriter(index, Connector("amqp://localhost", "test"), ExchangeFamily())
    now = datetime.now(UTC)
    keeper._keep([Copy(FailedMessage(failed(body=body)), now) for body in bodies[1:]], None)
    look = index.find(KEPT_QUEUE)
    assert look is not None
    return IndexedMessages(index, look, changes=changes_since(index, look))


def files_with(marker: bytes, folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if marker in path.read_bytes()]


@pytest.mark.parametrize("keeps_bodies", [True, False])
def test_no_file_has_a_body_where_none_is_kept(tmp_path: Path, keeps_bodies: bool) -> None:
    index = index_without_bodies(tmp_path, keeps_bodies=keeps_bodies)
    bodies = [MARKER + bytes([number]) for number in range(3)]
    assert follow(index, *bodies).count() == 3
    # Those that a look saw, and those that came since: the search finds both where they are kept.
    assert len(files_with(MARKER, tmp_path)) == (2 if keeps_bodies else 0)


def test_what_is_noted_during_a_look_has_no_body_either(tmp_path: Path) -> None:
    with IndexWriter(index_without_bodies(tmp_path)) as writer:
        for _ in range(2):
            writer.note(FailedMessage(failed(body=MARKER)))
        writer._file.flush()
        assert not files_with(MARKER, tmp_path)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=12,
)
@given(deliveries=st.lists(failed_deliveries(), max_size=6))
@pytest.mark.nightly("examples are compared each time")
def test_every_column_but_bodies_is_as_it_was(tmp_path: Path, deliveries: list[Delivery]) -> None:
    columns = [column for column in COLUMNS if column.name not in BODIES]
    kept = keep(index_without_bodies(tmp_path), deliveries)
    messages = list(kept)
    assert [{one.name: one.read(message) for one in columns} for message in messages] == [
        row_of(delivery, columns) for delivery in deliveries
    ]
    assert [one.digest for one in messages] == [FailedMessage(one).digest for one in deliveries]
    assert not any(message.has_body for message in messages)
    assert plan_of(Order(), messages, with_fingerprint=True).noted() == (
        plan_of(Order(), map(FailedMessage, deliveries), with_fingerprint=True).noted()
    )


def kept_without_body(message: FailedMessage) -> FailedMessage:
    told = told_of(message)
    assert "gone" not in told
    return with_told(FailedMessage(replace(message.delivery, body=b"")), told)


@pytest.mark.parametrize("mask", [None, Mask.of(["$.card"])])
def test_its_ids_are_those_that_it_had_with_its_body(mask: Mask | None) -> None:
    message = FailedMessage.of_dead_letter(failed(body=b"gone"))
    again = kept_without_body(message)
    if mask is not None:
        again = MaskedMessage(again, mask)
    assert (again.failure_id, again.digest) == (message.failure_id, message.digest)


def test_its_size_is_still_told(tmp_path: Path) -> None:
    kept = keep(index_without_bodies(tmp_path), [failed(body=b"1234")])
    assert kept.matching(Filter("size = 4")).count() == 1
    assert [message.size for message in kept] == [4]


@pytest.mark.parametrize("mask", [None, Mask.of(["$.card"])])
def test_a_body_that_is_gone_is_not_taken_for_an_empty_one(mask: Mask | None) -> None:
    again = kept_without_body(FailedMessage(failed(body=b"gone")))
    if mask is not None:
        again = MaskedMessage(again, mask)
    with pytest.raises(ConfigurationError, match="was not kept"):
        _ = again.body


@pytest.mark.parametrize("where", ["body is null", "body_text = 'x'", "octet_length(body_bytes)=1"])
def test_whoever_asks_for_a_body_is_told_that_there_is_none(tmp_path: Path, where: str) -> None:
    kept = keep(index_without_bodies(tmp_path), [failed()])
    with pytest.raises(ConfigurationError, match="needs bodies"):
        kept.matching(Filter(where)).count()
    with pytest.raises(ConfigurationError, match="needs bodies"):
        kept.database([BY_NAME["body"]])


@pytest.mark.parametrize("told", ["[]", "{}", "null", json.dumps(["q", "i", "d", None, 1, {}])])
def test_what_is_damaged_is_said_to_be(told: str) -> None:
    with pytest.raises(ValueError):
        with_told(FailedMessage(failed()), told)


def keep_dead_letters(index: Index, queue: str, deliveries: Sequence[Delivery]) -> IndexedMessages:
    """What the index gives of messages in a dead-letter queue that redrive did not make."""
    with IndexWriter(index) as writer:
        for delivery in deliveries:
            writer.note(FailedMessage.of_dead_letter(delivery))
        writer.keep(look_at(index, len(deliveries), queue))
        assert not writer.problem
    return kept_of(index, queue)


@pytest.mark.parametrize(
    ("framework", "queue"),
    [
        *((framework, "dead") for framework in framework_messages.BY_NAME),
        *((framework, "orders_error") for framework in some_of([*framework_messages.BY_NAME])),
    ],
)
def test_what_a_framework_says_in_a_body_is_known_where_none_is_kept(
    tmp_path: Path, framework: str, queue: str
) -> None:
    chance = random.Random(f"{framework} {queue}")
    originals = list(framework_messages.BY_NAME.values())
    own = framework_messages.BY_NAME[framework]
    some = [own, *(framework_messages.chance_message(chance, [own, *originals]) for _ in range(20))]
    deliveries = [replace(one, dead_letter_queue=queue) for one in some]
    columns = [column for column in COLUMNS if column.name not in BODIES]
    kept = keep_dead_letters(index_without_bodies(tmp_path), queue, deliveries)
    whole = [FailedMessage.of_dead_letter(one) for one in deliveries]
    messages = list(kept)
    assert not any(one.has_body for one in messages)
    assert [{one.name: one.read(message) for one in columns} for message in messages] == [
        {one.name: one.read(message) for one in columns} for message in whole
    ]
    assert [one.way_back for one in messages] == [one.way_back for one in whole]
    assert [cause_of(one) for one in messages] == [cause_of(one) for one in whole]
    assert kept.counts() == Counter(cause_of(one).group_id for one in whole)
    planned = plan_of(Order(), messages, with_fingerprint=True)
    assert planned.noted() == plan_of(Order(), whole, with_fingerprint=True).noted()
    assert planned.ways == plan_of(Order(), whole).ways


def test_what_dramatiq_says_in_the_body_alone_is_asked_by_sql(tmp_path: Path) -> None:
    delivery = replace(framework_messages.DRAMATIQ, dead_letter_queue="default.XQ")
    kept = keep_dead_letters(index_without_bodies(tmp_path), "default.XQ", [delivery])
    assert kept.matching(Filter("error_type = 'RuntimeError'")).count() == 1
    assert kept.matching(Filter("traceback like '%/app/tasks.py%'")).count() == 1
    found = kept.plan_counts(Direction(unchecked=True), None, 5)
    assert found.going == 1
    assert [str(route.way) for route in found.routes] == ["default"]
