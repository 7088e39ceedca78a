"""While a new version of a service takes the place of the old one, workers of both run beside each
other. Each test is a line of docs/deploys.md."""

from contextlib import ExitStack
from datetime import timedelta

import pytest

from contract.support import OutOfStock, Recorder, Service, always_fails, retrying
from redrive import NO_RETRY, Message, RetryPolicy, TopologyMismatch
from waiting import wait_until


def old_and_new(stack: ExitStack, service: Service, **new: object) -> tuple[Recorder, Recorder]:
    """Workers of two versions on one queue, each of which holds one message at a time; the new one
    has these options."""
    recorders = Recorder(), Recorder()
    for recorder, options in zip(recorders, ({}, new), strict=True):
        stack.enter_context(service.subscriber(recorder, **{"prefetch": 1, **options}))
    return recorders


def handled_by_both(service: Service, old: Recorder, new: Recorder) -> None:
    """Publishes until each of them has handled something; none is handled twice."""
    ids: list[str] = []

    def both_have_some() -> bool:
        ids.append(service.publish())
        return bool(old.handled and new.handled)

    wait_until(both_have_some, "both have handled something")
    wait_until(lambda: len(old.handled) + len(new.handled) == len(ids), "all are handled")
    assert old.handled + new.handled == dict.fromkeys(ids, 1)


@pytest.mark.parametrize(
    "new",
    [
        {"concurrency": 4, "prefetch": 20},
        {"handler_timeout": 60},
        {"retry": RetryPolicy(7, delay=timedelta(milliseconds=50), max_crashes=9, max_age="1h")},
        {"retry": RetryPolicy(backoff=["1s", "2s"], delay=timedelta(milliseconds=50))},
        {"retry": RetryPolicy(delay=timedelta(milliseconds=50), errors={OutOfStock: NO_RETRY})},
    ],
    ids=["concurrency", "handler timeout", "retries, crashes, age", "backoff", "rules for errors"],
)
def test_what_no_queue_is_made_with_may_differ(service: Service, new: dict[str, object]) -> None:
    with ExitStack() as stack:
        handled_by_both(service, *old_and_new(stack, service, **new))


def test_the_worker_that_a_message_fails_in_decides_and_counts_the_retries_of_all(
    service: Service,
) -> None:
    old = Recorder(always_fails)
    with service.subscriber(old, retry=retrying(9)):
        message_id = service.publish()
        old.wait_for_attempts(3)
    made = len(old.attempts)
    new = Recorder(always_fails)
    with service.subscriber(new, retry=retrying(made)):
        (failed,) = service.wait_for_failed()

    assert (failed.message_id, failed.retries) == (message_id, made)
    assert [attempt.retries for attempt in new.attempts] == [made]


@pytest.mark.parametrize(
    "new",
    [
        {"retry": RetryPolicy(delay="1m")},
        {"max_failed": 10},
        {"ordered": True},
        {"queue_type": "classic"},
    ],
    ids=["delay", "limit of the failed queue", "ordered", "queue type"],
)
def test_what_a_queue_is_made_with_ends_the_new_worker_and_the_old_one_goes_on(
    service: Service, new: dict[str, object]
) -> None:
    old = Recorder()
    with service.subscriber(old):
        with pytest.raises(TopologyMismatch):
            service.declare(**new)
        old.wait_for_handled([service.publish()])


def test_what_a_new_pattern_brings_is_handled_by_both(service: Service) -> None:
    with ExitStack() as stack:
        old, new = old_and_new(stack, service)
        service.declare(routing_keys=["order.*", "return.*"])
        keys: set[tuple[str, str]] = set()

        def both_got_one() -> bool:
            service.publish(routing_key="return.asked")
            keys.update(
                (name, attempt.routing_key)
                for name, one in (("old", old), ("new", new))
                for attempt in one.attempts
            )
            return keys == {("old", "return.asked"), ("new", "return.asked")}

        wait_until(both_got_one, "both have handled what the new pattern brings")


def test_a_pattern_that_is_left_out_goes_on_bringing_messages(service: Service) -> None:
    recorder = Recorder()
    service.declare()
    with service.subscriber(recorder, routing_keys=["return.*"]):
        recorder.wait_for_handled([service.publish(routing_key="order.paid")])


def test_what_either_worker_s_predicate_declines_is_gone(service: Service) -> None:
    old = Recorder()
    with (
        service.subscriber(old, prefetch=1),
        service.subscriber(
            Recorder(), prefetch=1, where=lambda message: message.body == b"socks"
        ) as new,
    ):
        shoes: list[str] = []

        def the_new_one_has_declined_one() -> bool:
            shoes.append(service.publish("shoes"))
            return new.declined > 0

        wait_until(the_new_one_has_declined_one, "the new worker has declined what it gets")
        wait_until(lambda: len(old.handled) + new.declined == len(shoes), "nothing waits")
    assert service.failed() == []


def test_the_tags_of_whoever_declared_last_count_for_both(service: Service) -> None:
    recorder = Recorder()
    with service.subscriber(recorder, tags="vip"):
        recorder.wait_for_handled([service.publish(tags=["vip"])])
        service.declare(tags="eu")
        with service.publisher() as publisher:
            publisher.publish("socks", "order.paid", tags=["vip"])
        recorder.wait_for_handled([service.publish(tags=["eu"])])

    assert recorder.tried.total() == 2


def test_a_body_that_one_version_can_not_read_is_set_aside_there(service: Service) -> None:
    def read(message: Message) -> None:
        message.parse(dict)

    with service.subscriber(Recorder(read)):
        service.publish("socks")
        (failed,) = service.wait_for_failed()

    assert failed.reason == "invalid-message"
