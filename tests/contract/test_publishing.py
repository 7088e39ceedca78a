"""A message that `publish` returned for is safe; one that it raised for has a reason."""

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pydantic
import pytest

from contract.plain import depth, drain, plain_channel
from contract.support import Recorder, Service, assert_it_helps
from effort import effort
from redrive import ConfigurationError, PublishNacked, Unroutable
from waiting import DEADLINE


class Order(pydantic.BaseModel):
    """What a publisher may give as it is."""

    id: int
    item: str


def test_a_message_is_in_its_queue_when_publish_returns(service: Service) -> None:
    service.declare()
    with service.publisher() as publisher:
        for count in range(1, 6):
            publisher.publish("socks", "order.paid")
            assert depth(service.url, service.queue) == count


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (bytearray(b"socks"), b"socks", "application/octet-stream"),
        ("Größe", "Größe".encode(), "text/plain; charset=utf-8"),
        ({"id": 1}, b'{"id":1}', "application/json"),
        ([1, None, "x"], b'[1,null,"x"]', "application/json"),
        (Order(id=1, item="socks"), b'{"id":1,"item":"socks"}', "application/json"),
        (None, b"null", "application/json"),
        (b"", b"", "application/octet-stream"),
    ],
)
def test_a_body_goes_out_as_what_it_is(
    service: Service, body: object, sent: bytes, content_type: str
) -> None:
    service.declare()
    service.publish(body)
    ((properties, received),) = drain(service.url, service.queue)

    assert received == sent
    assert properties.content_type == content_type


def test_every_message_is_persistent_and_has_an_id_a_time_and_its_first_routing_key(
    service: Service,
) -> None:
    service.declare()
    message_id = service.publish()
    ((properties, _),) = drain(service.url, service.queue)

    assert properties.delivery_mode == 2
    assert properties.message_id == message_id
    assert abs(datetime.fromtimestamp(properties.timestamp, UTC) - datetime.now(UTC)) < timedelta(
        minutes=1
    )
    assert properties.headers["x-orig-routing-key"] == "order.paid"


def test_an_id_of_the_callers_own_is_kept(service: Service) -> None:
    service.declare()
    assert service.publish(message_id="order-7") == "order-7"
    assert drain(service.url, service.queue)[0][0].message_id == "order-7"


def test_headers_arrive_as_they_were_given(service: Service) -> None:
    headers = {
        "text": "Größe",
        "number": 2**40,
        "fraction": 0.1,
        "decimal": Decimal("12.50"),
        "bytes": b"\x00\xff",
        "yes": True,
        "nothing": None,
        "time": datetime(2024, 5, 17, 8, 30, tzinfo=UTC),
        "list": [1, "two", [3.5]],
        "table": {"inner": {"x": -1}},
    }
    recorder = Recorder()
    with service.subscriber(recorder):
        message_id = service.publish(headers=headers)
        recorder.wait_for_handled([message_id])

    (attempt,) = recorder.attempts
    assert {name: attempt.headers[name] for name in headers} == headers


def test_a_message_that_nobody_is_bound_for_is_counted(service: Service) -> None:
    service.declare()
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
        publisher.publish("socks", "nobody.listens")
        publisher.publish("socks", "nobody.listens")

        assert publisher.unroutable == 2


def test_a_mandatory_message_that_nobody_is_bound_for_is_an_error(service: Service) -> None:
    with service.publisher() as publisher:
        with pytest.raises(Unroutable) as told:
            publisher.publish("socks", "nobody.listens", mandatory=True, message_id="order-7")

        assert_it_helps(told.value, "order-7", "'nobody.listens'", "no queue is bound for it")
        assert publisher.unroutable == 1


def test_the_log_says_once_for_each_routing_key_that_nobody_is_bound_for_it(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.declare()
    with service.publisher() as publisher:
        for _ in range(3):
            publisher.publish("socks", "nobody.listens")
            publisher.publish("socks", "order.paid")
        publisher.publish_many(
            [
                ("socks", key)
                for key in ("nobody.listens", "nobody.reads", "order.paid")
                for _ in range(500)
            ]
        )

    told = [
        record
        for record in caplog.records
        if record.name == "redrive" and record.levelname == "WARNING"
    ]
    assert [record.redrive["routing_key"] for record in told] == ["nobody.listens", "nobody.reads"]  # type: ignore[attr-defined]
    assert (
        "'nobody.listens': the broker dropped the message. Declare a subscription first"
        in told[0].getMessage()
    )
    assert "mandatory=True" in told[0].getMessage()


def test_the_log_is_quiet_where_being_heard_by_nobody_is_an_error(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with service.publisher() as publisher:
        with pytest.raises(Unroutable):
            publisher.publish("socks", "nobody.listens", mandatory=True)
        report = publisher.publish_many([("socks", "nobody.reads")], mandatory=True)

    assert len(report.failed) == 1
    assert "nobody" not in caplog.text


def test_a_delayed_message_is_not_told_to_be_dropped_while_it_waits(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with service.publisher() as publisher:
        publisher.publish("socks", "nobody.listens.yet", delay=timedelta(hours=1))

        assert publisher.unroutable == 0
    assert "nobody.listens.yet" not in caplog.text


def test_eight_threads_share_a_publisher(service: Service) -> None:
    recorder = Recorder()
    published: list[str] = []
    each = effort(75, nightly=200)
    with service.subscriber(recorder, prefetch=500), service.publisher() as publisher:

        def publish() -> None:
            published.extend(
                [
                    publisher.publish(str(number), "order.paid", mandatory=True)
                    for number in range(each)
                ]
            )

        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.wait_for_handled(published)

    assert len(set(published)) == 8 * each
    assert set(recorder.handled.values()) == {1}


def test_a_closed_publisher_says_so(service: Service) -> None:
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
    with pytest.raises(ConfigurationError) as told:
        publisher.publish("socks", "order.paid")
    assert_it_helps(told.value, "the publisher is closed", "does not open again")
    with pytest.raises(ConfigurationError):
        publisher.publish_many([("socks", "order.paid")])
    publisher.close()


def test_an_exchange_that_somebody_deleted_is_an_error_and_not_a_hang(service: Service) -> None:
    service.declare()
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
        with plain_channel(service.url) as channel:
            channel.exchange_delete("master")
        with pytest.raises(ConfigurationError) as told:
            publisher.publish("socks", "order.paid", timeout=DEADLINE)

    assert_it_helps(told.value, "no exchange 'master'")


def test_a_publisher_goes_on_after_an_exchange_was_deleted_and_declared_again(
    service: Service,
) -> None:
    service.declare()
    with service.publisher() as publisher:
        publisher.publish("socks", "order.paid")
        with plain_channel(service.url) as channel:
            channel.exchange_delete("master")
        with pytest.raises(ConfigurationError):
            publisher.publish("socks", "order.paid", timeout=DEADLINE)
        service.declare()
        publisher.publish("socks", "order.paid", mandatory=True)

    assert depth(service.url, service.queue) == 2


def test_what_one_queue_does_not_take_is_an_error_and_another_queue_gets_it_once(
    service: Service,
) -> None:
    service.declare()
    with plain_channel(service.url) as channel:
        channel.queue_declare(
            "full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
        )
        channel.queue_bind("full", "master", "order.*")
    with service.publisher() as publisher, pytest.raises(PublishNacked) as told:
        publisher.publish("socks", "order.paid", message_id="a")

    assert_it_helps(told.value, "the broker did not take it now", "A queue is full")
    assert [one.message_id for one, _ in drain(service.url, service.queue)] == ["a"]
