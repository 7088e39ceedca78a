"""A subscription gets what it asks for and no more: by tags, by a predicate, or everything on each
instance."""

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta

import pika
import pytest

from contract.plain import plain_channel
from contract.shells import Publishes, Subscribes
from contract.support import Recorder, Service, always_fails, both_types, fails_first
from redrive import (
    ConfigurationError,
    ExchangeFamily,
    Message,
    PublishNacked,
    RetryPolicy,
    Unroutable,
)
from redrive.pubsub.blocking.declarer import Declarer
from redrive.topology.model import Binding, Exchange, Queue, Subscription
from redrive.topology.tags import TagFilter, headers_of
from waiting import wait_until

MESSAGES: Mapping[str, set[str]] = {
    "none": set(),
    "vip": {"vip"},
    "eu": {"eu"},
    "both": {"vip", "eu"},
    "all": {"vip", "eu", "new"},
}
END = {"vip", "eu", "us", "new", "end"}


def publish_all(
    service: Service, routing_key: str = "order.paid", **options: object
) -> dict[str, str]:
    """Publishes one message of each kind; returns their ids."""
    with service.publisher() as publisher:
        return {
            name: publisher.publish(name, routing_key, tags=tags, **options)  # type: ignore[arg-type]
            for name, tags in MESSAGES.items()
        }


def test_of_equal_messages_those_without_the_tags_are_the_unroutable_ones(service: Service) -> None:
    messages = [
        ("socks", "order.paid", headers_of({"eu" if number % 10 == 3 else "vip"}))
        for number in range(100)
    ]
    handler = Recorder()
    with service.subscriber(handler, tags="vip"), service.publisher() as publisher:
        report = publisher.publish_many(messages, mandatory=True)
        handler.wait_for_attempts(90)

    assert [failed.position for failed in report.failed] == list(range(3, 100, 10))
    assert {type(failed.error) for failed in report.failed} == {Unroutable}


@both_types
@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("vip", {"vip", "both", "all"}),
        ("vip || eu", {"vip", "eu", "both", "all"}),
        ("vip && eu", {"both", "all"}),
        ("vip && (new || us)", {"all"}),
    ],
)
def test_a_subscription_gets_exactly_what_has_its_tags(
    service: Service, tags: str, wanted: set[str]
) -> None:
    handler = Recorder()
    with service.subscriber(handler, tags=tags):
        ids = publish_all(service)
        handler.wait_for_handled([service.publish("end", tags=END)])

    assert {ids[name] for name in wanted} == handler.handled.keys() & set(ids.values())
    assert set(handler.handled.values()) == {1}


def test_a_message_needs_the_routing_key_and_the_tags(service: Service) -> None:
    handler = Recorder()
    with service.subscriber(handler, tags="vip"):
        publish_all(service, "user.created")
        end = service.publish("end", tags=END)
        handler.wait_for_handled([end])

    assert handler.handled == Counter({end: 1})


def test_a_mandatory_message_whose_tags_nobody_wants_is_unroutable(service: Service) -> None:
    with (
        service.subscriber(Recorder(), tags="vip"),
        service.publisher() as publisher,
        pytest.raises(Unroutable),
    ):
        publisher.publish("x", "order.paid", tags={"eu"}, mandatory=True)


def test_a_tagged_message_that_fails_is_retried_set_aside_and_requeued(service: Service) -> None:
    handler = Recorder(always_fails)
    with service.subscriber(handler, tags="vip"):
        message_id = service.publish(tags={"vip"})
        (failed,) = service.wait_for_failed()
    again = Recorder()
    with service.subscriber(again, tags="vip"):
        assert service.failed_queue.requeue().requeued == 1
        again.wait_for_handled([message_id])

    assert len(handler.attempts) == 4
    assert failed.headers["redrive-tag-vip"] is True


def test_a_changed_expression_leaves_nothing_of_the_old_one(service: Service) -> None:
    with service.subscriber(Recorder(), tags="vip"):
        pass
    handler = Recorder()
    with service.subscriber(handler, tags="eu"):
        ids = publish_all(service)
        handler.wait_for_handled([service.publish("end", tags=END)])
    old = Subscription(service.queue, service.routing_keys, tags=TagFilter("vip")).filter_exchange

    assert handler.handled.keys() & set(ids.values()) == {ids["eu"], ids["both"], ids["all"]}
    assert not exchange_exists(service.url, old)


def test_of_two_that_ask_for_other_tags_at_the_same_moment_the_last_counts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.declare(tags="vip")
    others = iter(["eu"])
    declare = Declarer.declare

    def interrupted(declarer: Declarer, what: Exchange | Queue | Binding) -> None:
        if isinstance(what, Binding) and (tags := next(others, None)):
            service.declare(tags=tags)
        declare(declarer, what)

    monkeypatch.setattr(Declarer, "declare", interrupted)
    service.declare(tags="vip")

    ids = publish_all(service)
    recorder = Recorder()
    with service.subscriber(recorder, tags="vip"):
        recorder.wait_for_handled([ids["vip"], ids["both"], ids["all"]])
    assert ids["eu"] not in recorder.handled


def test_tags_that_are_new_take_the_way_around_them_away(service: Service) -> None:
    with service.subscriber(Recorder()):
        pass
    handler = Recorder()
    with service.subscriber(handler, tags="eu"):
        ids = publish_all(service)
        handler.wait_for_handled([service.publish("end", tags=END)])

    assert handler.handled.keys() & set(ids.values()) == {ids["eu"], ids["both"], ids["all"]}


def test_a_scheduled_message_is_filtered_by_its_tags_when_it_is_due(service: Service) -> None:
    family = ExchangeFamily(tick=timedelta(milliseconds=50))
    handler = Recorder()
    with (
        service.subscriber(handler, tags="vip", exchange=family),
        service.publisher(exchange=family) as publisher,
    ):
        publisher.publish("eu", "order.paid", tags={"eu"}, delay=timedelta(milliseconds=50))
        wanted = publisher.publish(
            "vip", "order.paid", tags={"vip"}, delay=timedelta(milliseconds=200)
        )
        handler.wait_for_handled([wanted])

    assert handler.handled == Counter({wanted: 1})


@pytest.mark.parametrize("tags", ["!vip", "vip &&", ""])
def test_an_expression_that_cannot_be_is_refused_when_the_subscriber_is_made(
    service: Service, tags: str
) -> None:
    with pytest.raises(ConfigurationError, match="the tags"):
        service.declare(tags=tags)


# --- predicates -----------------------------------------------------------------------------------


def test_what_a_predicate_declines_is_acked_and_counted(service: Service) -> None:
    handler = Recorder()
    with service.subscriber(handler, where=lambda message: message.body != b"no") as subscriber:
        ids = {body: service.publish(body) for body in ("no", "yes")}
        handler.wait_for_handled([ids["yes"]])
        wait_until(lambda: subscriber.declined == 1, "one was declined")

    assert handler.handled == Counter({ids["yes"]: 1})
    assert service.failed() == []


def test_a_predicate_that_raises_is_a_failed_attempt(service: Service) -> None:
    def where(message: Message) -> bool:
        raise KeyError("country")

    with service.subscriber(Recorder(), where=where):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert (failed.error_type, failed.retries) == ("KeyError", 3)


# --- broadcast ------------------------------------------------------------------------------------


def test_in_broadcast_each_instance_gets_every_message(service: Service) -> None:
    first, second = Recorder(), Recorder()
    with broadcast(service, first), broadcast(service, second):
        wait_until(
            lambda: service.publish_softly() and first.handled and second.handled, "both listen"
        )
        ids = [service.publish(str(number)) for number in range(5)]
        first.wait_for_handled(ids)
        second.wait_for_handled(ids)

    assert {first.handled[name] for name in ids} == {second.handled[name] for name in ids} == {1}


def test_in_broadcast_what_fails_is_counted_and_gone(service: Service) -> None:
    handler = Recorder(fails_first(1))
    with broadcast(service, handler) as subscriber:
        wait_until(lambda: service.publish_softly() and subscriber.let_go, "one failed")

    assert set(handler.tried.values()) == {1}
    assert handler.handled == Counter()
    assert subscriber.let_go == handler.tried.total()


def test_the_queue_of_an_instance_goes_when_it_goes(service: Service) -> None:
    handler = Recorder()
    with broadcast(service, handler):
        wait_until(lambda: service.publish_softly() and handler.handled, "the instance listens")
    with service.publisher() as publisher:
        wait_until(lambda: raises_unroutable(publisher), "nobody listens any more")


def test_broadcast_with_a_retry_policy_is_refused(service: Service) -> None:
    with pytest.raises(ConfigurationError, match="never retried"):
        service.shell.declare(
            service.url, service.queue, broadcast=True, retry=RetryPolicy(max_retries=1)
        )


def broadcast(service: Service, handler: Recorder) -> AbstractContextManager[Subscribes]:
    """An instance of the service."""
    return service.shell.subscriber(
        handler, service.url, service.queue, routing_keys=service.routing_keys, broadcast=True
    )


def raises_unroutable(publisher: Publishes) -> bool:
    try:
        publisher.publish("x", "order.probe", mandatory=True)
    except PublishNacked:  # the queue is going just now
        return False
    except Unroutable:
        return True
    return False


def exchange_exists(url: str, name: str) -> bool:
    try:
        with plain_channel(url) as channel:
            channel.exchange_declare(name, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


@both_types
def test_a_filter_as_text_is_asked_by_the_broker_where_it_can_be_and_by_the_subscriber(
    service: Service,
) -> None:
    where = "headers.country = 'DE' and headers.level in ('5', 'high') and body.plan = 'gold'"
    handler = Recorder(fails_first(1))
    gold, silver = '{"plan": "gold"}', '{"plan": "silver"}'
    with service.subscriber(handler, where=where) as subscriber, service.publisher() as publisher:
        with pytest.raises(Unroutable):  # the broker has declined it
            publisher.publish(gold, "order.paid", headers={"country": "AT"}, mandatory=True)
        wanted = [
            publisher.publish(gold, "order.paid", headers={"country": "DE", "level": level})
            for level in (5, "5", "high")
        ]
        publisher.publish(gold, "order.paid", headers={"country": "DE", "level": 6})
        publisher.publish(silver, "order.paid", headers={"country": "DE", "level": 5})
        with plain_channel(service.url) as channel:  # past the filter, straight into the queue
            channel.basic_publish("", service.queue, gold.encode())
        handler.wait_for_handled(wanted)
        wait_until(lambda: subscriber.declined == 3, "three are declined")

    assert handler.tried == dict.fromkeys(wanted, 2)
    assert service.failed() == []


def test_a_number_in_a_header_is_equal_to_its_text_so_the_broker_is_not_asked(
    service: Service,
) -> None:
    handler = Recorder()
    with service.subscriber(handler, where="headers.n = '5'") as subscriber:
        ids = [service.publish(headers={"n": n}) for n in (5, "5")]
        service.publish(headers={"n": 6})
        handler.wait_for_handled(ids)
        wait_until(lambda: subscriber.declined == 1, "one is declined")


def test_a_filter_that_cannot_be_read_is_refused(service: Service) -> None:
    with pytest.raises(ConfigurationError, match="at character 1: it has no condition"):
        service.shell.subscriber(Recorder(), service.url, "q", where="country").__enter__()
