"""What peers without redrive publish is retried and set aside like anything else, and breaks
nothing beside it."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from contract.administration import Administration
from contract.plain import depth, drain, plain_channel, properties_of, publish_plain
from contract.support import Recorder, Service, always_fails, both_types, retrying
from redrive import FailedMessage, FailedQueue, Message, Retry, RetryPolicy
from redrive.amqp.field_table import FieldValue, Table
from waiting import wait_until


def fails_unless_ours(message: Message) -> None:
    """A handler that fails with what peers published."""
    if message.body == b"foreign":
        raise RuntimeError("no")


def set_aside(
    service: Service,
    properties: pika.BasicProperties,
    url: str | None = None,
    retry: RetryPolicy | None = None,
) -> tuple[Recorder, FailedMessage]:
    """Has a peer publish a message between ten of ours; returns what was tried, and the peer's
    message in the failed queue."""
    recorder, (failed,) = all_set_aside(service, [properties], url, retry)
    return recorder, failed


def all_set_aside(
    service: Service,
    foreign: Sequence[pika.BasicProperties],
    url: str | None = None,
    retry: RetryPolicy | None = None,
) -> tuple[Recorder, list[FailedMessage]]:
    """The same with several messages of peers."""
    recorder = Recorder(fails_unless_ours)
    with service.subscriber(recorder, retry=retry or service.retry):
        ours = service.publish_numbered(5)
        recorder.wait_for_handled(
            ours
        )  # from now on what comes is handed over at once: nothing expires before it
        with plain_channel(url or service.url) as channel:
            for properties in foreign:
                channel.basic_publish(
                    "master", "order.paid", b"foreign", properties, mandatory=True
                )
        ours += service.publish_numbered(5)
        failed = service.wait_for_failed(len(foreign))
        recorder.wait_for_handled(ours)
    assert depth(service.url, service.queue) == 0
    assert all(recorder.tried[message_id] == 1 for message_id in ours)
    assert all(message.body == b"foreign" for message in failed)
    return recorder, failed


def properties(**values: Any) -> pika.BasicProperties:
    """A peer's properties."""
    made: pika.BasicProperties = pika.BasicProperties(
        message_id="foreign", delivery_mode=2, **values
    )  # type: ignore[no-untyped-call]
    return made


def retries_of(recorder: Recorder, message_id: str = "foreign") -> list[int]:
    """The retries that the handler saw at each attempt with a message."""
    return [attempt.retries for attempt in recorder.attempts if attempt.message_id == message_id]


@pytest.mark.versions("x-death")
@both_types
def test_a_message_of_a_plain_client_is_retried_and_set_aside(service: Service) -> None:
    recorder, failed = set_aside(service, properties())

    assert retries_of(recorder) == [0, 1, 2, 3]
    assert {attempt.routing_key for attempt in recorder.attempts} == {"order.paid"}
    assert failed.routing_key == "order.paid"
    assert failed.exchange == "master"
    assert failed.reason == "retries-exhausted"


def test_the_log_names_a_message_of_php_by_the_id_in_its_envelope(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.declare()
    body = b'{"body":{"id":121},"__id":"20240517093000-664726a8d1f3e"}'
    publish_plain(service.url, "order.paid", body, pika.BasicProperties())  # type: ignore[no-untyped-call]
    with service.subscriber(always_fails, retry=retrying(0)):
        (failed,) = service.wait_for_failed()
        wait_until(lambda: "retries-exhausted" in caplog.text, "the log says where it is")

    assert "message 20240517093000-664726a8d1f3e (order.paid) failed" in caplog.text
    assert (failed.message_id, failed.body) == ("20240517093000-664726a8d1f3e", body)


@both_types
def test_a_user_id_of_somebody_else_does_not_stop_a_message_from_being_set_aside_and_requeued(
    service: Service, rabbitmq_management_url: str
) -> None:
    with Administration(rabbitmq_management_url, service.url).user("somebody-else") as url:
        recorder, failed = set_aside(service, properties(user_id="somebody-else"), url)
    requeued = Recorder()
    with service.subscriber(requeued):
        service.failed_queue.requeue()
        requeued.wait_for_handled(["foreign"])

    assert retries_of(recorder) == [0, 1, 2, 3]
    assert failed.properties.user_id is None
    assert failed.headers["redrive-orig-user-id"] == "somebody-else"


@pytest.mark.versions("what the broker does with CC")
@both_types
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_message_that_was_copied_elsewhere_is_not_copied_again_by_a_move(
    service: Service, header: str
) -> None:
    with plain_channel(service.url) as channel:
        channel.queue_declare("copies", durable=True)
    recorder, failed = set_aside(service, properties(headers={header: ["copies"]}))
    publish_plain(service.url, "copies", b"", properties(), exchange="")
    requeued = Recorder()
    with service.subscriber(requeued):
        service.failed_queue.requeue()
        requeued.wait_for_handled(["foreign"])

    assert retries_of(recorder) == [0, 1, 2, 3]
    assert header not in failed.headers
    # master routes by CC, too; "copies" is no pattern of anybody there.
    assert len(drain(service.url, "copies")) == 1


@both_types
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_copy_list_that_is_no_list_breaks_nothing(service: Service, header: str) -> None:
    service.declare()
    recorder = Recorder(always_fails)
    # The broker refuses such a message from a publisher; a peer's shovel or an older broker may
    # have let it in.
    with plain_channel(service.url) as channel, pytest.raises(pika.exceptions.AMQPError):
        channel.basic_publish(
            "master", "order.paid", b"", properties(headers={header: "copies"}), mandatory=True
        )
    with service.subscriber(recorder):
        message_id = service.publish(headers={header: "copies"})
        (failed,) = service.wait_for_failed()

    assert failed.message_id == message_id


@both_types
def test_an_expiration_ends_when_the_message_is_set_aside(service: Service) -> None:
    _, failed = set_aside(service, properties(expiration="1500"), retry=retrying(0))

    assert failed.properties.expiration is None
    assert failed.headers["redrive-orig-expiration"] == "1500"
    set_aside_at = time.monotonic()
    while time.monotonic() < set_aside_at + 2:
        assert service.failed_queue.depth() == 1
        time.sleep(0.1)


@pytest.mark.versions("how the broker counts deaths")
@both_types
def test_a_message_with_an_expiration_is_retried_as_often_as_any_other(service: Service) -> None:
    recorder, failed = set_aside(service, properties(expiration="5000"))

    assert retries_of(recorder) == [0, 1, 2, 3]
    assert failed.properties.expiration is None


def _death(**values: FieldValue) -> dict[str, FieldValue]:
    entry: dict[str, FieldValue] = {
        "count": 1,
        "reason": "rejected",
        "queue": "shop@orders",
        "time": datetime(2024, 5, 17, tzinfo=UTC),
        "exchange": "master",
        "routing-keys": ["order.paid"],
    }
    return entry | values


FORGED: Mapping[str, FieldValue] = {
    "of our queue, well formed": [_death(count=2)],
    "of our queue, a huge count": [_death(count=1_000_000_000)],
    "of our queue, more than a count": [_death(count=2**62)],
    "of our retry queue": [_death(queue="shop@orders@retry", reason="expired", count=70)],
    "of both": [_death(queue="shop@orders@retry", reason="expired", count=70), _death(count=70)],
    "of another queue": [_death(queue="other", count=70)],
    "a negative count": [_death(count=-5)],
    "a count that is a text": [_death(count="70")],
    "a count that is true": [_death(count=True)],
    "a queue that is a number": [_death(queue=7)],
    "routing keys that are a text": [_death(**{"routing-keys": "order.paid"})],
    "routing keys of numbers": [_death(**{"routing-keys": [1, 2]})],
    "no time": [{name: value for name, value in _death().items() if name != "time"}],
    "an empty entry": [{}],
    "entries that are texts": ["shop@orders", "rejected"],
    "a nested list": [[_death()]],
    "a text": "rejected",
    "a number": 70,
    "a table": _death(),
    "nothing": None,
    "an empty list": [],
}


@pytest.mark.versions("how the broker counts deaths")
@both_types
def test_a_forged_x_death_gives_no_retry_and_takes_none(service: Service) -> None:
    forged = [
        properties_of(Table.of({"x-death": value, "tenant": "acme"}), name)
        for name, value in FORGED.items()
    ]
    recorder, failed = all_set_aside(service, forged)

    assert {name: retries_of(recorder, name) for name in FORGED} == {
        name: [0, 1, 2, 3] for name in FORGED
    }
    assert {message.message_id for message in failed} == FORGED.keys()
    assert {(message.reason, message.retries, message.headers["tenant"]) for message in failed} == {
        ("retries-exhausted", 3, "acme")
    }


@pytest.mark.versions("how the broker counts deliveries")
@both_types
def test_a_forged_delivery_count_is_no_crash(service: Service) -> None:
    counts: dict[str, FieldValue] = {
        "5": 5,
        "huge": 1_000_000_000,
        "negative": -1,
        "text": "many",
        "list": [1],
    }
    recorder, failed = all_set_aside(
        service,
        [
            properties_of(Table.of({"x-delivery-count": count}), name)
            for name, count in counts.items()
        ],
    )

    assert {name: retries_of(recorder, name) for name in counts} == {
        name: [0, 1, 2, 3] for name in counts
    }
    assert {message.reason for message in failed} == {"retries-exhausted"}


@both_types
def test_headers_that_name_redrives_own_are_no_key_to_it(service: Service) -> None:
    forged: dict[str, FieldValue] = {
        "redrive-retries": [1],
        "redrive-count": "many",
        "redrive-failure-id": 7,
        "x-orig-routing-key": 5,
    }
    recorder, failed = set_aside(service, properties_of(Table.of(forged), "foreign"))

    assert retries_of(recorder) == [0, 1, 2, 3]
    assert failed.own_failure_id not in (None, "7")
    assert failed.routing_key == "order.paid"


@pytest.mark.versions("how the broker reads headers")
@both_types
def test_a_message_of_a_headers_table_that_is_garbage_is_set_aside_with_it(
    service: Service,
) -> None:
    # A table inside the headers whose own content is no table: the broker does not look inside, and
    # keeps it.
    table = Table(
        [("inner", b"F\x00\x00\x00\x03\xff\x00\x01"), ("tenant", b"S\x00\x00\x00\x04acme")]
    )
    service.declare()
    with plain_channel(service.url) as channel:
        try:
            channel.basic_publish(
                "master", "order.paid", b"foreign", properties_of(table, "foreign"), mandatory=True
            )
        except pika.exceptions.AMQPError:
            return  # a broker that looks inside has nothing for us to keep
    with service.subscriber(Recorder(always_fails), retry=retrying(1)):
        (failed,) = service.wait_for_failed()

    assert (
        dict(failed.properties.headers.raw_fields())["inner"] == dict(table.raw_fields())["inner"]
    )


MADE_UP: dict[str, FieldValue] = {
    "redrive-orig-user-id": "admin",
    "redrive-orig-exchange": "payments",
    "redrive-first-failed-at": "1999-01-01T00:00:00Z",
    "redrive-count": 4,
    "redrive-job": "job-of-somebody",
    "redrive-retries": 2,
}


@both_types
def test_what_a_publisher_makes_up_of_redrives_headers_is_neither_counted_nor_kept(
    service: Service,
) -> None:
    recorder = Recorder(fails_unless_ours)
    with service.subscriber(recorder):
        publish_plain(
            service.url, "order.paid", b"foreign", properties_of(Table.of(MADE_UP), "foreign")
        )
        (failed,) = service.wait_for_failed()
    assert retries_of(recorder) == [0, 1, 2, 3]
    assert (failed.job, failed.redrive_count, failed.exchange) == (None, 0, "master")
    assert "redrive-orig-user-id" not in failed.headers
    assert failed.first_failed_at is not None
    assert failed.first_failed_at.year > 2000


def waits_longer_at_first(message: Message) -> None:
    """A handler that fails, and has its first retry come down the delay ladder."""
    raise (
        Retry("not yet", after=timedelta(milliseconds=10))
        if not message.retries
        else RuntimeError("no")
    )


def test_a_requeue_is_known_by_its_headers_through_the_ladder_and_the_retry_queue(
    service: Service,
) -> None:
    service.fail(1)
    recorder = Recorder(waits_longer_at_first)
    with service.subscriber(recorder):
        FailedQueue(service.url, service.queue).requeue(job="after-the-fix")
        recorder.wait_for_attempts(4)
        (failed,) = service.wait_for_failed()
    assert [attempt.retries for attempt in recorder.attempts] == [0, 1, 2, 3]
    assert (failed.job, failed.redrive_count, failed.exchange, failed.routing_key) == (
        "after-the-fix",
        1,
        "master",
        "order.paid",
    )


def test_a_job_that_a_publisher_makes_up_is_not_told_of(service: Service) -> None:
    failed = FailedQueue(service.url, service.queue)
    service.fail(1)
    failed._listen("after-the-fix")
    recorder = Recorder()
    heard: list[int] = []

    def listen() -> bool:
        heard.extend(outcomes.handled for outcomes in failed._heard("after-the-fix"))
        return bool(heard)

    with service.subscriber(recorder):
        publish_plain(
            service.url,
            "order.paid",
            b"foreign",
            properties_of(Table.of({"redrive-job": "after-the-fix"}), "foreign"),
        )
        recorder.wait_for_handled(["foreign"])
        failed.requeue(job="after-the-fix")
        wait_until(listen, "the requeued message is told of")
    assert heard == [1]
