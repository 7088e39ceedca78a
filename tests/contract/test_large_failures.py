"""A failed message is set aside however much there is to say of it, and however little room."""

import pytest

from contract.plain import properties_of, publish_plain
from contract.support import Recorder, Service, both_types, retrying
from redrive import Message
from redrive.amqp.field_table import Table

_MARK = "the end of the story"


@both_types
def test_a_traceback_of_a_megabyte_is_shortened_in_its_middle(service: Service) -> None:
    def handler(message: Message) -> None:
        raise RuntimeError("é" * 500_000)

    with service.subscriber(handler, retry=retrying(1)):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert failed.error_type == "RuntimeError"
    assert failed.error_message is not None
    assert failed.error_message.startswith("é")
    assert len(failed.properties.headers.encode()) < 20_000


def _ping(depth: int) -> None:
    # Two functions in turn: of one alone, Python folds the repeated lines.
    if not depth:
        raise RuntimeError(_MARK)
    _pong(depth - 1)


def _pong(depth: int) -> None:
    _ping(depth)


@both_types
def test_a_long_traceback_keeps_its_beginning_and_its_end(service: Service) -> None:
    def handler(message: Message) -> None:
        _ping(200)

    with service.subscriber(handler, retry=retrying(0)):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert failed.traceback is not None
    assert failed.traceback.startswith("Traceback (most recent call last):")
    assert "shortened" in failed.traceback
    assert failed.traceback.endswith(f"RuntimeError: {_MARK}\n")


@pytest.mark.parametrize(
    "text", ["Größe überschritten – 価格が高すぎる 🧦", "\x00\x01", "\ud800 alone", "'; DROP TABLE"]
)
def test_an_error_in_any_script_is_kept(service: Service, text: str) -> None:
    def handler(message: Message) -> None:
        raise RuntimeError(text)

    with service.subscriber(handler, retry=retrying(0)):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert failed.error_message == text.encode("utf-8", "replace").decode()


def test_the_password_of_a_url_in_an_error_is_not_kept(service: Service) -> None:
    def handler(message: Message) -> None:
        raise RuntimeError("can't reach https://shop:s3cret@bank.example/pay?token=t0ken")

    with service.subscriber(handler, retry=retrying(0)):
        service.publish()
        (failed,) = service.wait_for_failed()

    assert failed.error_message == "can't reach https://shop:***@bank.example/pay?token=***"
    assert b"s3cret" not in failed.properties.headers.encode()
    assert b"t0ken" not in failed.properties.headers.encode()


@pytest.mark.versions("how large headers may be")
@both_types
@pytest.mark.parametrize("size", [64 * 1024, 130_000])
def test_a_message_with_large_headers_of_its_own_is_retried_and_set_aside_with_them(
    service: Service, size: int
) -> None:
    def handler(message: Message) -> None:
        raise RuntimeError("no " * 100_000)

    recorder = Recorder(handler)
    with service.subscriber(recorder):
        service.publish(headers={"blob": "x" * size})
        (failed,) = service.wait_for_failed()

    assert [attempt.retries for attempt in recorder.attempts] == [0, 1, 2, 3]
    assert failed.headers["blob"] == "x" * size
    assert failed.own_failure_id is not None
    assert failed.error_type == "RuntimeError"


@both_types
def test_a_message_whose_headers_leave_no_room_is_set_aside_without_ours(service: Service) -> None:
    def handler(message: Message) -> None:
        if message.message_id == "full":
            raise RuntimeError("no")

    recorder = Recorder(handler)
    # A content header fits one frame of 131,072 bytes; its own overhead and ours are 60.
    table = Table.of({"blob": "x" * (131_072 - 60)})
    with service.subscriber(recorder):
        publish_plain(service.url, "order.paid", b"socks", properties_of(table, "full"))
        good = service.publish()
        (failed,) = service.wait_for_failed()
        recorder.wait_for_handled([good])

    assert failed.message_id == "full"
    assert failed.body == b"socks"
    assert failed.headers["blob"] == table["blob"]


@pytest.mark.versions("how large headers may be")
@both_types
def test_a_message_whose_headers_leave_no_room_can_be_requeued(service: Service) -> None:
    table = Table.of({"blob": "x" * (131_072 - 60)})
    failing = True

    def handler(message: Message) -> None:
        if failing:
            raise RuntimeError("no")

    recorder = Recorder(handler)
    with service.subscriber(recorder, retry=retrying(1)):
        publish_plain(service.url, "order.paid", b"socks", properties_of(table, "full"))
        service.wait_for_failed()
        failing = False
        report = service.failed_queue.requeue()
        recorder.wait_for_handled(["full"])

    assert report.requeued == 1
    assert service.failed() == []


@both_types
def test_a_large_body_travels_whole(service: Service) -> None:
    body = bytes(range(256)) * 4 * 4096
    recorder = Recorder(lambda message: 1 / 0)
    with service.subscriber(recorder, retry=retrying(1)):
        service.publish(body)
        (failed,) = service.wait_for_failed()

    assert failed.body == body
    assert all(attempt.body == body for attempt in recorder.attempts)
