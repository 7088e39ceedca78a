"""Messages wait for different times, each for its own, and nobody else sees them meanwhile."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from contract.plain import depth, plain_channel
from contract.support import (
    OutOfStock,
    Recorder,
    Service,
    always_fails,
    both_types,
    fails_first,
    retrying,
)
from redrive import ConfigurationError, ErrorRule, ExchangeFamily, Message, Retry, RetryPolicy
from waiting import DEADLINE, wait_until

TICK = timedelta(milliseconds=50)
FAMILY = ExchangeFamily(tick=TICK)
WAITING = {"exchange": FAMILY}


def ticks(count: int) -> timedelta:
    return count * TICK


class Stopwatch:
    """A handler that notes when each message came, and then does as it is told."""

    def __init__(self, act: Callable[[Message], object] = lambda _: None) -> None:
        self._act = act
        self._lock = threading.Lock()
        self.moments: list[tuple[str, float]] = []

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.moments.append((message.body.decode(), time.monotonic()))
        self._act(message)

    def waits(self) -> list[float]:
        """The seconds between one and the next."""
        return [later - earlier for (_, earlier), (_, later) in itertools.pairwise(self.moments)]


def fails_and_waits(after: timedelta) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        if message.retries == 0:
            raise Retry("not yet", after=after)

    return handle


@both_types
def test_each_retry_waits_for_its_own_delay(service: Service) -> None:
    watch = Stopwatch(always_fails)
    policy = RetryPolicy(
        max_retries=4, delay=ticks(4), backoff=[ticks(2), ticks(4), ticks(6), ticks(10)]
    )
    with service.subscriber(watch, retry=policy, **WAITING):
        service.publish(exchange=FAMILY)
        (failed,) = service.wait_for_failed()

    assert failed.retries == 4
    assert failed.routing_key == "order.paid"
    assert failed.exchange == "master"
    for wait, least in zip(watch.waits(), [0.1, 0.2, 0.3, 0.5], strict=True):
        assert wait >= least - 0.01


@pytest.mark.versions("how the broker counts deaths")
@both_types
def test_a_message_that_always_fails_down_the_ladder_is_tried_as_often_as_its_budget_says(
    service: Service,
) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(
        handler, retry=RetryPolicy(max_retries=25, backoff=ticks(1)), **WAITING
    ):
        service.publish(exchange=FAMILY)
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == list(range(26))
    assert {attempt.routing_key for attempt in handler.attempts} == {"order.paid"}
    assert failed.retries == 25


def test_no_message_waits_behind_another_with_a_longer_delay(service: Service) -> None:
    longest, delays = 2400, [400, 200, 20]  # so far apart that a broker may stall for seconds
    due: dict[str, float] = {}
    watch = Stopwatch()
    with service.subscriber(watch, **WAITING), service.publisher(exchange=FAMILY) as publisher:
        for delay in (longest, *delays):  # the longest declares the ladder
            due[str(delay)] = time.monotonic() + ticks(delay).total_seconds()
            publisher.publish(str(delay), "order.paid", delay=ticks(delay))
        wait_until(lambda: len(watch.moments) == len(delays), "all but the longest are delivered")

    arrived = dict(watch.moments)
    for longer, delay in itertools.pairwise((longest, *delays)):
        assert due[str(delay)] <= arrived[str(delay)] < due[str(longer)]


def test_a_handler_says_how_long_its_message_waits(service: Service) -> None:
    watch = Stopwatch(fails_and_waits(ticks(8)))
    with service.subscriber(watch, **WAITING):
        service.publish(exchange=FAMILY)
        wait_until(lambda: len(watch.moments) == 2, "it came again")

    assert watch.waits()[0] >= 0.39


def test_a_handler_that_asks_for_a_delay_beyond_the_ladder_fails_with_its_end(
    service: Service,
) -> None:
    with service.subscriber(fails_and_waits(timedelta(days=200)), retry=retrying(0), **WAITING):
        service.publish(exchange=FAMILY)
        (failed,) = service.wait_for_failed()

    assert "the delay ladder with ticks of 0.05 s ends at 155 days" in str(failed.error_message)


def test_each_kind_of_error_has_its_own_budget(service: Service) -> None:
    def handle(message: Message) -> None:
        raise KeyError if message.body == b"key" else ConnectionResetError

    handler = Recorder(handle)
    rules: dict[type[BaseException], ErrorRule] = {
        OSError: ErrorRule(max_retries=2, backoff=ticks(1)),
        LookupError: ErrorRule(max_retries=0),
    }
    with service.subscriber(handler, retry=RetryPolicy(max_retries=9, errors=rules), **WAITING):
        ids = {body: service.publish(body, exchange=FAMILY) for body in ("key", "connection")}
        failed = {message.body: message for message in service.wait_for_failed(2)}

    assert handler.tried == Counter({ids["key"]: 1, ids["connection"]: 3})
    assert (failed[b"key"].reason, failed[b"connection"].reason) == (
        "not-retryable",
        "retries-exhausted",
    )


def test_a_message_older_than_its_subscription_allows_is_not_tried_again(service: Service) -> None:
    def handle(message: Message) -> None:
        wait_until(
            lambda: (
                message.published_at
                and datetime.now(UTC) - message.published_at > timedelta(seconds=1)
            ),
            "it is old",
        )
        raise OutOfStock

    with service.subscriber(handle, retry=RetryPolicy(max_age=timedelta(seconds=1)), **WAITING):
        service.publish(exchange=FAMILY)
        (failed,) = service.wait_for_failed()

    assert (failed.reason, failed.retries) == ("too-old", 0)


# --- scheduled publishes --------------------------------------------------------------------------


@both_types
def test_a_scheduled_message_comes_after_its_delay_to_each_of_its_subscribers_once(
    service: Service,
) -> None:
    mine, everything, another = Recorder(), Recorder(), Recorder()
    all_of_it = replace(service, queue="audit@all", routing_keys=("#",))
    elsewhere = replace(service, queue="shop@users", routing_keys=("user.*",))
    with (
        service.subscriber(mine, **WAITING),
        all_of_it.subscriber(everything, **WAITING),
        elsewhere.subscriber(another, **WAITING),
        service.publisher(exchange=FAMILY) as publisher,
    ):
        began = time.monotonic()
        message_id = publisher.publish("socks", "order.paid", delay=ticks(10))
        mine.wait_for_handled([message_id])
        waited = time.monotonic() - began
        everything.wait_for_handled([message_id])
        marker = publisher.publish("end", "user.created", delay=ticks(1))
        another.wait_for_handled([marker])
        everything.wait_for_handled([marker])

    assert waited >= 0.5
    assert mine.handled == Counter({message_id: 1})
    assert everything.handled == Counter({message_id: 1, marker: 1})
    assert another.handled == Counter({marker: 1})
    assert mine.attempts[0].routing_key == "order.paid"


@pytest.mark.versions("x-death")
def test_a_scheduled_message_that_fails_is_retried_and_set_aside_as_any_other(
    service: Service,
) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, **WAITING):
        service.publish(exchange=FAMILY, delay=ticks(2))
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2, 3]
    assert failed.routing_key == "order.paid"


def test_a_message_to_be_delivered_at_a_time_comes_then_and_one_whose_time_is_past_at_once(
    service: Service,
) -> None:
    watch = Stopwatch()
    with service.subscriber(watch, **WAITING), service.publisher(exchange=FAMILY) as publisher:
        at = datetime.now(UTC) + timedelta(seconds=5)
        publisher.publish("past", "order.paid", deliver_at=at - timedelta(days=1))
        wait_until(lambda: len(watch.moments) == 1, "the one whose time is past came")
        publisher.publish("later", "order.paid", deliver_at=at)
        wait_until(lambda: len(watch.moments) == 2, "both came")
        came = datetime.now(UTC)

    assert [body for body, _ in watch.moments] == ["past", "later"]
    assert came >= at


@pytest.mark.parametrize(
    "options",
    [
        {"delay": timedelta(seconds=-1)},
        {"delay": timedelta(days=200)},
        {"deliver_at": datetime(2024, 5, 17)},
    ],
    ids=["negative", "too long", "naive"],
)
def test_a_time_that_cannot_be_waited_for_is_refused_and_nothing_is_sent(
    service: Service, options: dict[str, timedelta]
) -> None:
    with service.publisher(exchange=FAMILY) as publisher, pytest.raises(ConfigurationError):
        publisher.publish("socks", "order.paid", **options)  # type: ignore[arg-type]


# --- others on the broker -------------------------------------------------------------------------


def test_a_queue_bound_to_everything_gets_no_copy_of_another_s_retries(service: Service) -> None:
    handler, everything = Recorder(fails_first(4)), Recorder()
    all_of_it = replace(service, queue="audit@all", routing_keys=("#",))
    with (
        all_of_it.subscriber(everything, **WAITING),
        service.subscriber(handler, retry=RetryPolicy(max_retries=4, backoff=ticks(2)), **WAITING),
    ):
        message_id = service.publish(exchange=FAMILY)
        handler.wait_for_handled([message_id])
        marker = service.publish("end", exchange=FAMILY)
        everything.wait_for_handled([marker])

    assert everything.handled == Counter({message_id: 1, marker: 1})


def test_messages_for_a_queue_that_is_gone_are_parked_and_the_others_flow(service: Service) -> None:
    gone = replace(service, queue="shop@gone", routing_keys=("gone.*",))
    all_there = threading.Event()

    def fail_together(message: Message) -> None:
        all_there.wait(DEADLINE)
        fails_and_waits(ticks(320))(message)

    handler, never_again = Recorder(), Recorder(fail_together)
    with service.subscriber(handler, **WAITING), service.publisher(exchange=FAMILY) as publisher:
        with gone.subscriber(never_again, concurrency=40, retry=retrying(5), **WAITING):
            for number in range(40):
                publisher.publish(str(number), "gone.away", mandatory=True)
            never_again.wait_for_attempts(40)
            all_there.set()
        with plain_channel(service.url) as channel:
            channel.queue_delete("shop@gone")
        ids = [
            publisher.publish(str(number), "order.paid", delay=ticks(160)) for number in range(5)
        ]
        handler.wait_for_handled(ids)
        wait_until(
            lambda: depth(service.url, "master.unrouted") == 40,
            "those for the queue that is gone are parked",
        )

    assert len(never_again.attempts) == 40
    assert handler.handled == Counter(ids)


# --- queues shared with peers ---------------------------------------------------------------------


@pytest.mark.parametrize("max_retries", [0, 3, 8])
def test_on_a_shared_queue_a_message_that_always_fails_is_tried_as_often_as_its_budget_says(
    service: Service, max_retries: int
) -> None:
    shared = replace(service, queue_type="classic")
    handler = Recorder(always_fails)
    with shared.subscriber(handler, retry=retrying(max_retries), retry_via="republish"):
        shared.publish()
        (failed,) = shared.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == list(range(max_retries + 1))
    assert {attempt.routing_key for attempt in handler.attempts} == {"order.paid"}
    assert (failed.retries, failed.routing_key, failed.exchange) == (
        max_retries,
        "order.paid",
        "master",
    )


def test_on_a_shared_queue_a_failed_message_that_is_requeued_has_a_fresh_budget(
    service: Service,
) -> None:
    shared = replace(service, queue_type="classic")
    with shared.subscriber(always_fails, retry_via="republish"):
        message_id = shared.publish()
        shared.wait_for_failed()
    handler = Recorder(fails_first(2))
    with shared.subscriber(handler, retry_via="republish"):
        assert shared.failed_queue.requeue().requeued == 1
        handler.wait_for_handled([message_id])

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2]
