"""What fails is followed as it happens: by a tap, by a history stream, and through what befalls
either; while nobody acts, no failed queue is touched."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contract.plain import RawProperties, plain_channel
from contract.support import Recorder, Service, retrying
from effort import effort
from redrive import FailedQueue
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.failures.queue.failure_feed import FailureFeed
from redrive.failures.queue.feed_writer import FeedWriter
from redrive.failures.queue.message_source import answer_of
from redrive.failures.store.index import Index
from redrive.failures.store.look import CachePolicy, Look
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import BrokerURL
from redrive.topology import history
from redrive.topology.durations import duration_of
from redrive.topology.model import Queue
from redrive.topology.names import ExchangeFamily
from waiting import DEADLINE, wait_for_count, wait_until

pytestmark = pytest.mark.versions("streams")

QUEUE = "shop@orders"
FAMILY = ExchangeFamily()
PUBLISHERS = 20
"""Each waits for a confirm before its next message: one alone takes minutes on a slow disk."""
KEPT = CachePolicy(duration_of("3650d"), or_look=False)


@pytest.fixture
def service(rabbitmq_url: str) -> Service:
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(0))
    service.declare()
    return service


@pytest.fixture
def index(rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Index(BrokerURL.parse(rabbitmq_url))


def fail(url: str, *ids: str) -> None:
    """Sets messages aside as a subscriber does."""
    with plain_channel(url) as channel:
        for id_ in ids:
            headers = Table.of(
                {
                    "redrive-failure-id": id_,
                    "redrive-error-type": "KeyError",
                    "redrive-error-message": f"no {id_}",
                    "x-death": [{"queue": QUEUE, "reason": "rejected", "count": 3}],
                }
            )
            raw = Properties(headers=headers, delivery_mode=2, message_id=id_).encode()
            channel.basic_publish("master.failed", QUEUE, id_.encode(), RawProperties(raw))


@contextlib.contextmanager
def following(url: str, offset: int | None = None) -> Iterator[FailureFeed]:
    feed = FailureFeed(Connector(url, "test feed"), FAMILY, offset=offset)
    feed.start()
    try:
        wait_until(lambda: feed.state.is_following, "it follows")
        yield feed
    finally:
        feed.close()


def wait_for(feed: FailureFeed, *ids: str) -> None:
    """Waits until these, and no others, were followed."""
    seen: list[str] = []

    def all_are_there() -> bool:
        seen.extend(message.failure_id for message, _ in feed.take()[0])
        return set(ids) <= set(seen)

    wait_until(all_are_there, "they were followed")
    assert sorted(set(seen)) == sorted(ids)


def declare_history(url: str) -> None:
    with declaring(Connector(url, "test")) as declarer:
        declarer.declare(history.history_queue(FAMILY))
        declarer.declare(history.history_binding(FAMILY))


def cut(url: str, name: str) -> None:
    """Deletes a queue, which ends its consumers."""
    with declaring(Connector(url, "test")) as declarer:
        declarer.delete(Queue(name))


def test_a_tap_shows_what_fails_from_then_on(service: Service) -> None:
    fail(service.url, "before")
    with following(service.url) as feed:
        assert feed.state.source == "a tap"
        fail(service.url, "one", "two")
        wait_for(feed, "one", "two")


def test_a_copy_by_a_tap_is_the_whole_message(service: Service) -> None:
    with following(service.url) as feed:
        fail(service.url, "one")
        copies = wait_until(lambda: feed.take()[0], "it was followed")
    (message,) = (copy.message for copy in copies)
    assert message.failed_queue == f"{QUEUE}@failed"
    assert "x-death" in message.headers
    (held,) = FailedQueue(service.url, QUEUE).browse()
    assert (message.digest, message.body) == (held.digest, held.body)


def test_a_history_shows_what_failed_while_nobody_followed(service: Service) -> None:
    declare_history(service.url)
    with following(service.url) as feed:
        assert feed.state.source == "master.failed.history"
        fail(service.url, "one")
        wait_for(feed, "one")
        _, offset = feed.take()
    assert offset is not None
    fail(service.url, "two", "three")
    with following(service.url, offset=offset) as feed:
        wait_for(feed, "two", "three")


def test_a_history_that_is_deleted_is_replaced_by_a_tap(service: Service) -> None:
    declare_history(service.url)
    with following(service.url) as feed:
        cut(service.url, history.history_of(FAMILY))
        wait_until(
            lambda: feed.state.is_following and feed.state.source == "a tap", "it follows by a tap"
        )
        fail(service.url, "after")
        wait_for(feed, "after")


def test_a_tap_that_is_deleted_is_made_anew_and_it_is_known_since_when(service: Service) -> None:
    with following(service.url) as feed:
        since = feed.state.since
        cut(service.url, feed._tap.name)
        wait_until(
            lambda: feed.state.is_following and feed.state.since != since, "it follows again"
        )
        fail(service.url, "after")
        wait_for(feed, "after")


def test_where_nobody_has_declared_the_family_it_is_said(rabbitmq_url: str) -> None:
    feed = FailureFeed(Connector(rabbitmq_url, "test feed"), FAMILY)
    feed.start()
    try:
        wait_until(lambda: "master.failed" in feed.state.problem, "it says what is missing")
        assert not feed.state.is_following
    finally:
        feed.close()


def test_outcomes_are_told_as_subscribers_tell_them(service: Service) -> None:
    fail(service.url, "one", "two")
    with following(service.url) as feed:
        recorder = Recorder(lambda message: None)
        with service.subscriber(recorder):
            job = FailedQueue(service.url, QUEUE).requeue()
            wait_until(
                lambda: (told := feed.outcome(job.job)) is not None and told.succeeded == 2,
                "both are known to have succeeded",
            )


def look(url: str) -> None:
    answer_of(FailedQueue(url, QUEUE), list, recall=CachePolicy(duration_of(0)))


def known(url: str) -> list[str]:
    def ids(look: Look) -> list[str]:
        return [message.failure_id for message in look.messages]

    return answer_of(FailedQueue(url, QUEUE), ids, recall=KEPT)[0]


def known_count(url: str) -> int:
    return answer_of(FailedQueue(url, QUEUE), lambda look: look.kept.count(), recall=KEPT)[0]


@contextlib.contextmanager
def keeping(url: str, index: Index) -> Iterator[FeedWriter]:
    keeper = FeedWriter(index, Connector(url, "test feed"), FAMILY)
    keeper.start()
    try:
        wait_until(lambda: keeper.state.is_following, "it follows")
        yield keeper
    finally:
        keeper.close()


def test_what_fails_stands_in_the_index_without_another_look(
    service: Service, index: Index
) -> None:
    fail(service.url, "before")
    look(service.url)
    with keeping(service.url, index):
        fail(service.url, "one", "two")
        wait_until(lambda: known(service.url) == ["before", "one", "two"], "all three are known")
        FailedQueue(service.url, QUEUE).discard("failure_id in ('before', 'one')")
        assert known(service.url) == ["two"]
        look(service.url)
        fail(service.url, "three")
        wait_until(lambda: known(service.url) == ["two", "three"], "the new look is followed")
    assert known(service.url) == ["two", "three"]


@pytest.mark.timeout(600)
def test_thousands_of_failures_are_each_there_once(service: Service, index: Index) -> None:
    look(service.url)
    ids = [f"id-{number}" for number in range(effort(3_000, nightly=12_000))]
    with keeping(service.url, index):
        with ThreadPoolExecutor(PUBLISHERS) as pool:
            shares = (ids[first::PUBLISHERS] for first in range(PUBLISHERS))
            list(pool.map(lambda share: fail(service.url, *share), shares))
        wait_for_count(lambda: known_count(service.url), len(ids), "are known", DEADLINE)
        assert sorted(known(service.url)) == sorted(ids)
        assert len(list(index.folder.glob("*.feed"))) == 1


def test_one_process_follows_for_all_and_another_takes_over(service: Service, index: Index) -> None:
    look(service.url)
    second = FeedWriter(index, Connector(service.url, "second feed"), FAMILY)
    with keeping(service.url, index):
        second.start()
        wait_until(lambda: "another console" in second.state.source, "it leaves it to the first")
        fail(service.url, "one")
        wait_until(lambda: known(service.url) == ["one"], "it is known")
    try:
        wait_until(lambda: second.state.source == "a tap", "it takes over")
        fail(service.url, "two")
        wait_until(lambda: known(service.url) == ["one", "two"], "it is known, too")
    finally:
        second.close()


def test_while_it_follows_no_failed_message_is_held_and_no_delivery_counted(
    service: Service, index: Index
) -> None:
    fail(service.url, *(f"id-{number}" for number in range(50)))
    look(service.url)
    failed = FailedQueue(service.url, QUEUE)
    before = counted(failed)
    with keeping(service.url, index):
        fail(service.url, "one")
        wait_until(lambda: len(known(service.url)) == 51, "it is known")
        with declaring(Connector(service.url, "test")) as declarer:
            depth = declarer.depth(f"{QUEUE}@failed")
        assert depth is not None
        assert (depth.messages, depth.consumers) == (51, 0)
    # The look that asks is the only one that was made since.
    assert counted(failed)[:50] == [count + 1 for count in before]


def counted(failed: FailedQueue) -> list[int]:
    """How often each message was delivered before, as the broker counts."""
    return [int(str(one.headers.get("x-delivery-count", 0))) for one in failed.browse()]
