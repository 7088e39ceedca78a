"""Many messages at a time: most are confirmed, and the report names exactly the others."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from contract.plain import depth, plain_channel
from contract.support import Recorder, Service
from effort import effort
from redrive import (
    BulkMessage,
    ConfigurationError,
    ExchangeFamily,
    Extras,
    PublishRefused,
    TopologyMismatch,
    Unroutable,
)
from redrive.pubsub.publisher_base import Publishable

COUNT = effort(2_500, nightly=5_000)
"""More than are on their way at a time."""
_TOO_LONG = "order." + "x" * 255


def test_all_are_confirmed_and_arrive_in_their_order(service: Service) -> None:
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=1000), service.publisher() as publisher:
        report = publisher.publish_many((str(number), "order.paid") for number in range(COUNT))
        recorder.wait_for_attempts(COUNT)

    assert (report.confirmed, report.failed, report.unroutable) == (COUNT, [], 0)
    assert [int(attempt.body) for attempt in recorder.attempts] == list(range(COUNT))


def test_what_cannot_be_sent_is_reported_by_its_place_and_the_others_are_sent(
    service: Service,
) -> None:
    service.declare()

    def messages() -> Iterator[tuple[object, str]]:
        for number in range(1000):
            match number:
                case 100:
                    yield {"order": object()}, "order.paid"
                case 300:
                    yield "socks", _TOO_LONG
                case 999:
                    yield "socks", "order.\ud800"
                case _:
                    yield str(number), "order.paid"

    with service.publisher() as publisher:
        report = publisher.publish_many(messages())

    assert report.confirmed == 997
    assert [failed.position for failed in report.failed] == [100, 300, 999]
    assert all(isinstance(failed.error, ConfigurationError) for failed in report.failed)
    assert depth(service.url, service.queue) == 997


def test_what_nobody_is_bound_for_is_counted_as_confirmed(service: Service) -> None:
    service.declare()
    with service.publisher() as publisher:
        report = publisher.publish_many(
            [("socks", "order.paid"), ("socks", "nobody.listens"), ("socks", "order.paid")]
        )

        assert (report.confirmed, report.failed, report.unroutable) == (3, [], 1)
        assert publisher.unroutable == 1


def test_what_nobody_is_bound_for_is_reported_where_it_is_mandatory(service: Service) -> None:
    service.declare()
    messages: list[Publishable] = [
        ("socks", "nobody.listens" if number % 10 == 3 else "order.paid") for number in range(100)
    ]
    with service.publisher() as publisher:
        report = publisher.publish_many(messages, mandatory=True)

    assert report.confirmed == 90
    assert [failed.position for failed in report.failed] == list(range(3, 100, 10))
    assert all(isinstance(failed.error, Unroutable) for failed in report.failed)


def test_a_message_that_the_broker_closes_the_channel_over_costs_no_other(service: Service) -> None:
    service.declare()
    # Its header alone is more than a frame: this one is found before it is sent.
    messages: list[tuple[object, str, dict[str, str]]] = [
        (str(number), "order.paid", {}) for number in range(1000)
    ]
    messages[500] = ("500", "order.paid", {"blob": "x" * 131_072})
    with service.publisher() as publisher:
        report = publisher.publish_many(messages)

    assert report.confirmed == 999
    assert [(failed.position, type(failed.error)) for failed in report.failed] == [
        (500, PublishRefused)
    ]
    assert depth(service.url, service.queue) == 999


def test_what_an_iterable_gave_before_it_raised_is_sent(service: Service) -> None:
    service.declare()

    def messages() -> Iterator[tuple[object, str]]:
        for number in range(300):
            yield str(number), "order.paid"
        raise LookupError("the file ends here")

    with service.publisher() as publisher, pytest.raises(LookupError):
        publisher.publish_many(messages())

    assert depth(service.url, service.queue) == 300


@pytest.mark.parametrize(
    "nonsense", ["socks", 7, ("socks",), None, ("socks", "order.paid", {}, "more")]
)
def test_what_is_no_message_is_reported_and_the_others_are_sent(
    service: Service, nonsense: object
) -> None:
    service.declare()
    with service.publisher() as publisher:
        report = publisher.publish_many(
            [("socks", "order.paid"), nonsense, ("socks", "order.paid")]  # type: ignore[list-item]
        )

    assert report.confirmed == 2
    assert [(failed.position, type(failed.error)) for failed in report.failed] == [
        (1, ConfigurationError)
    ]


def test_no_messages_are_no_error(service: Service) -> None:
    with service.publisher() as publisher:
        report = publisher.publish_many([])

    assert (report.confirmed, report.failed, report.unroutable) == (0, [], 0)


def test_a_message_has_its_own_delay_tags_id_headers_and_properties(service: Service) -> None:
    family = ExchangeFamily("quick", tick="50ms")
    recorder = Recorder()
    vip: dict[str, Any] = {"tags": {"vip"}, "extras": Extras(correlation_id="c-17")}
    messages: list[Publishable] = [
        BulkMessage("1", "order.paid", message_id="later", delay="1s", **vip),
        ("2", "order.paid"),
        BulkMessage("3", "order.paid", {"tenant": "a"}, "now", **vip),
    ]
    with (
        service.subscriber(recorder, tags="vip", exchange=family),
        service.publisher(exchange=family) as publisher,
    ):
        began = time.monotonic()
        report = publisher.publish_many(messages)
        recorder.wait_for_handled(["now", "later"])
        assert time.monotonic() - began >= 1

    assert (report.confirmed, report.failed, report.unroutable) == (3, [], 1)
    assert recorder.order == ["now", "later"]
    assert [attempt.headers.get("tenant") for attempt in recorder.attempts] == ["a", None]


def test_a_message_with_an_impossible_delay_is_reported_and_the_others_are_sent(
    service: Service,
) -> None:
    service.declare()
    with service.publisher() as publisher:
        report = publisher.publish_many(
            [("a", "order.paid"), BulkMessage("b", "order.paid", delay=-1), ("c", "order.paid")]
        )
    assert report.confirmed == 2
    assert [(failed.position, type(failed.error)) for failed in report.failed] == [
        (1, ConfigurationError)
    ]


def test_a_delay_whose_ladder_is_refused_fails_alone(service: Service) -> None:
    service.declare()
    with service.publisher() as publisher, plain_channel(service.url) as channel:
        channel.queue_declare("master.delay.0", durable=True)  # with other arguments
        delayed = BulkMessage("b", "order.paid", delay=timedelta(seconds=1))
        report = publisher.publish_many([delayed, ("a", "order.paid"), delayed])
    assert report.confirmed == 1
    assert [(failed.position, type(failed.error)) for failed in report.failed] == [
        (0, TopologyMismatch),
        (2, TopologyMismatch),
    ]
