"""Many messages at a time: most are confirmed, and the report names exactly the others."""

from collections.abc import Iterator

import pytest

from contract.plain import depth
from contract.support import Recorder, Service
from effort import effort
from redrive import ConfigurationError, PublishRefused, Unroutable

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
    messages = [
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
