"""Messages of an ordered subscription are handled one after the other, in the order in which they
were published."""

import threading
import time
from datetime import timedelta

import pytest

from contract.support import Recorder, Service, always_fails, retrying
from redrive import ConfigurationError, Message, Retry, RetryPolicy, TopologyMismatch
from waiting import DEADLINE, wait_until

BRIEF = timedelta(milliseconds=20)


def fails_on(body: bytes, times: int) -> Recorder:
    """A handler that fails at its first `times` attempts with one message."""

    def act(message: Message) -> None:
        if message.body == body and message.retries < times:
            raise RuntimeError("not yet")

    return Recorder(act)


def test_nothing_overtakes_a_message_that_is_tried_again(service: Service) -> None:
    handler = fails_on(b"3", times=3)
    with service.subscriber(handler, ordered=True, retry=retrying(3, BRIEF)):
        ids = service.publish_numbered(8)
        handler.wait_for_handled(ids)

    assert [attempt.message_id for attempt in handler.attempts] == [
        *ids[:3],
        *[ids[3]] * 4,
        *ids[4:],
    ]
    assert [attempt.retries for attempt in handler.attempts if attempt.message_id == ids[3]] == [
        0,
        1,
        2,
        3,
    ]
    assert service.failed() == []


def test_a_message_waits_in_its_place_for_its_delays(service: Service) -> None:
    moments: list[float] = []

    def act(message: Message) -> None:
        moments.append(time.monotonic())
        if message.retries < 2:
            raise RuntimeError("not yet")

    handler = Recorder(act)
    policy = RetryPolicy(max_retries=2, backoff=[timedelta(seconds=0.2), timedelta(seconds=0.6)])
    with service.subscriber(handler, ordered=True, retry=policy):
        handler.wait_for_handled([service.publish()])

    first, second, third = moments
    assert second - first >= 0.2
    assert third - second >= 0.6


@pytest.mark.parametrize("max_retries", [0, 3, 30])
def test_a_message_that_spends_its_budget_is_set_aside_and_the_queue_goes_on(
    service: Service, max_retries: int
) -> None:
    handler = Recorder(lambda message: 1 / 0 if message.body == b"1" else None)
    with service.subscriber(
        handler, ordered=True, retry=retrying(max_retries, timedelta(milliseconds=1))
    ):
        ids = service.publish_numbered(4)
        (failed,) = service.wait_for_failed()
        handler.wait_for_handled([ids[0], *ids[2:]])

    assert [attempt.message_id for attempt in handler.attempts] == [
        ids[0],
        *[ids[1]] * (max_retries + 1),
        *ids[2:],
    ]
    assert (failed.message_id, failed.reason, failed.retries) == (
        ids[1],
        "retries-exhausted",
        max_retries,
    )


def test_a_failed_message_that_is_requeued_has_its_whole_budget_again(service: Service) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, ordered=True, retry=retrying(2, BRIEF)):
        service.publish()
        service.wait_for_failed()
        assert service.failed_queue.requeue().requeued == 1
        handler.wait_for_attempts(6)
        service.wait_for_failed()

    assert [attempt.retries for attempt in handler.attempts] == [0, 1, 2, 0, 1, 2]


def test_one_instance_handles_and_the_others_wait(service: Service) -> None:
    first, second = Recorder(), Recorder()
    with (
        service.subscriber(first, ordered=True) as active,
        service.subscriber(second, ordered=True) as waiting,
    ):
        ids = service.publish_numbered(30)
        wait_until(lambda: len(first.handled) + len(second.handled) == 30, "all are handled")
        only, other = (first, second) if first.attempts else (second, first)
        assert only.order == ids
        assert not other.attempts
        stopping = active if only is first else waiting
        stopping.stop()
        assert stopping.stopped(DEADLINE)
        more = service.publish_numbered(10)
        other.wait_for_handled(more)

    assert other.order == more


@pytest.mark.versions("when the next single active consumer takes over")
def test_the_order_holds_while_instances_are_replaced_one_after_the_other(service: Service) -> None:
    handler = Recorder(lambda _: threading.Event().wait(0.005))
    service.declare(ordered=True)
    ids: list[str] = []
    for _ in range(4):
        # An instance may be through with all that there is before it has stopped: each finds new
        # ones, and so does the last.
        ids += service.publish_numbered(80)
        count = len(handler.attempts)
        with service.subscriber(handler, ordered=True):
            handler.wait_for_attempts(count + 40)
    ids += service.publish_numbered(80)
    with service.subscriber(handler, ordered=True):
        handler.wait_for_handled(ids)

    assert handler.order == ids


def test_the_order_holds_while_the_next_instance_is_waiting_already(service: Service) -> None:
    handlers = [Recorder(lambda _: threading.Event().wait(0.005)) for _ in range(3)]
    with (
        service.subscriber(handlers[0], ordered=True) as first,
        service.subscriber(handlers[1], ordered=True) as second,
        service.subscriber(handlers[2], ordered=True),
    ):
        ids = service.publish_numbered(200)
        wait_until(
            lambda: sum(len(handler.handled) for handler in handlers) > 50, "some are handled"
        )
        first.stop()
        wait_until(
            lambda: sum(len(handler.handled) for handler in handlers) > 120, "some more are handled"
        )
        second.stop()
        wait_until(
            lambda: sum(len(handler.handled) for handler in handlers) >= 200, "all are handled"
        )

    assert sorted(_one_after_the_other(handlers)) == sorted(ids)
    positions = {message_id: place for place, message_id in enumerate(ids)}
    for handler in handlers:
        assert [positions[message_id] for message_id in handler.order] == sorted(
            positions[message_id] for message_id in handler.order
        )


def _one_after_the_other(handlers: list[Recorder]) -> list[str]:
    return [message_id for handler in handlers for message_id in handler.order]


@pytest.mark.versions("how the broker counts deliveries")
def test_what_a_dying_instance_had_in_hand_comes_first_and_has_lost_an_attempt(
    service: Service,
) -> None:
    dying = Recorder(always_fails)
    with service.subscriber(
        dying, ordered=True, retry=RetryPolicy(delay=BRIEF, backoff=timedelta(minutes=10))
    ) as first:
        ids = service.publish_numbered(3)
        dying.wait_for_attempts(1)
        first.abort()
    heir = fails_on(b"0", times=3)
    with service.subscriber(heir, ordered=True, retry=retrying(3, BRIEF)):
        heir.wait_for_handled(ids)

    assert [(attempt.message_id, attempt.retries) for attempt in heir.attempts] == [
        (ids[0], 1),
        (ids[0], 2),
        (ids[0], 3),
        (ids[1], 0),
        (ids[2], 0),
    ]


def test_a_handler_that_outlives_the_grace_period_leaves_its_message_at_the_head(
    service: Service,
) -> None:
    hang = threading.Event()
    try:
        stuck = Recorder(lambda _: hang.wait(DEADLINE))
        with service.subscriber(stuck, ordered=True, grace=0.2) as first:
            ids = service.publish_numbered(3)
            stuck.wait_for_attempts(1)
            first.stop()
            heir = Recorder()
            with service.subscriber(heir, ordered=True):
                heir.wait_for_handled(ids)
            hang.set()
    finally:
        hang.set()

    assert heir.order == ids


@pytest.mark.versions("how the broker counts deliveries")
def test_a_message_that_kills_every_instance_ends_in_the_failed_queue(service: Service) -> None:
    policy = RetryPolicy(max_retries=1, delay=BRIEF, max_crashes=2)
    service.declare(ordered=True, retry=policy)
    ids = service.publish_numbered(2)
    for _ in range(3):
        hang = threading.Event()
        stuck = Recorder(lambda _, hang=hang: hang.wait(DEADLINE))  # type: ignore[misc]
        with service.subscriber(stuck, ordered=True, retry=policy) as dying:
            stuck.wait_for_attempts(1)
            dying.abort()
            hang.set()
    heir = Recorder()
    with service.subscriber(heir, ordered=True, retry=policy):
        heir.wait_for_handled([ids[1]])
    (failed,) = service.wait_for_failed()

    assert heir.order == [ids[1]]
    assert (failed.message_id, failed.reason) == (ids[0], "crashed")


def test_a_handler_that_asks_for_too_long_a_wait_gets_the_usual_one(service: Service) -> None:
    def act(message: Message) -> None:
        if not message.retries:
            raise Retry(after=timedelta(hours=1))

    handler = Recorder(act)
    with service.subscriber(handler, ordered=True, retry=retrying(1, BRIEF)):
        handler.wait_for_handled([service.publish()])

    assert [attempt.retries for attempt in handler.attempts] == [0, 1]


def test_a_queue_that_is_there_without_the_order_says_how_to_get_it(service: Service) -> None:
    service.declare()

    with pytest.raises(
        TopologyMismatch, match=r"x-single-active-consumer.*\n.*redrive topology migrate"
    ):
        service.declare(ordered=True)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"queue_type": "classic"}, "queue_type='classic'"),
        ({"broadcast": True}, "is ordered and a broadcast queue"),
        ({"concurrency": 2}, "a concurrency of 2"),
        ({"prefetch": 5}, "a prefetch of 5"),
        ({"retry": RetryPolicy(delay=timedelta(minutes=26))}, "waits 0:26:00"),
        (
            {"retry": RetryPolicy(backoff=[timedelta(seconds=1), timedelta(hours=1)])},
            "waits 1:00:00",
        ),
    ],
)
def test_what_an_ordered_subscription_cannot_have_is_refused_at_once(
    service: Service, options: dict[str, object], found: str
) -> None:
    with (
        pytest.raises(ConfigurationError, match=found),
        service.shell.subscriber(always_fails, service.url, "q", ordered=True, **options),
    ):
        pass
