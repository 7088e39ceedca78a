"""What redrive relies on inside pika, and that it touches nobody else's connections."""

import inspect
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika import frame, spec
from pika.adapters import base_connection, select_connection
from pika.adapters.utils import io_services_utils
from pika.connection import Connection

from contract.plain import plain_channel, properties_of
from contract.support import Recorder, Service
from redrive import Message
from redrive.amqp.field_table import Table
from redrive.pubsub.blocking.wire import WireConnection
from waiting import DEADLINE

_MEND = "pika has changed: look at redrive/pubsub/blocking/wire.py before this test"


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (Connection._on_data_available, ["self", "data_in"]),
        (Connection._output_marshaled_frames, ["self", "marshaled_frames"]),
        (Connection._process_frame, ["self", "frame_value"]),
        (Connection._terminate_stream, ["self", "error"]),
        (Connection._on_stream_connected, ["self"]),
        (frame.decode_frame, ["data_in"]),
        (io_services_utils._AsyncTransportBase.get_write_buffer_size, ["self"]),
        (select_connection.IOLoop.add_callback_threadsafe, ["self", "callback"]),
        (select_connection.IOLoop.call_later, ["self", "delay", "callback"]),
        (select_connection.IOLoop.start, ["self"]),
        (select_connection.IOLoop.stop, ["self"]),
        (select_connection.IOLoop.close, ["self"]),
    ],
)
def test_a_method_that_the_hook_overrides_or_calls_is_what_it_was(
    function: Callable[..., Any], parameters: list[str]
) -> None:
    assert parameters_of(function) == parameters, _MEND


def test_pika_hands_what_it_received_to_the_method_that_the_hook_overrides() -> None:
    assert "_on_data_available" in inspect.getsource(base_connection), _MEND
    assert "_on_data_available" in vars(WireConnection)
    assert "_on_data_available" in vars(Connection)


def test_pikas_transport_says_whether_it_still_sends() -> None:
    transport = io_services_utils._AsyncTransportBase
    assert "self._state != self._STATE_ACTIVE" in inspect.getsource(
        io_services_utils._AsyncPlaintextTransport.write
    ), _MEND
    assert transport._STATE_ACTIVE


def test_pikas_own_reader_keeps_its_rest_where_the_hook_keeps_it() -> None:
    source = inspect.getsource(Connection._on_data_available)

    assert "self._frame_buffer" in source, _MEND
    assert "self._process_frame(frame_value)" in source, _MEND
    for counter in ("frames_received", "bytes_received"):
        assert f"self.{counter} +=" in inspect.getsource(Connection), _MEND


def test_pikas_own_writer_takes_frames_that_are_bytes() -> None:
    source = inspect.getsource(Connection._output_marshaled_frames)

    assert "_adapter_emit_data(marshaled_frame)" in source, _MEND


def test_pika_has_a_read_size_that_one_transport_can_change() -> None:
    assert isinstance(io_services_utils._AsyncTransportBase._MAX_RECV_BYTES, int), _MEND
    assert "self._MAX_RECV_BYTES" in inspect.getsource(io_services_utils), _MEND
    assert "self._transport" in inspect.getsource(base_connection), _MEND


def test_the_hook_lives_in_a_subclass_and_changes_no_class_of_pikas(rabbitmq_url: str) -> None:
    before = _what_pika_is()
    recorder = Recorder()
    with Service(rabbitmq_url).subscriber(recorder):
        recorder.wait_for_handled([Service(rabbitmq_url).publish()])
        during = _what_pika_is()

    assert during == before
    assert _what_pika_is() == before


def test_a_plain_connection_in_the_same_process_reads_and_writes_as_ever(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    recorder = Recorder()
    headers: dict[str, Any] = {"number": 7, "list": [1, "two"], "table": {"yes": True}}
    properties = pika.BasicProperties(message_id="plain", headers=headers)  # type: ignore[no-untyped-call]
    with service.subscriber(recorder), plain_channel(rabbitmq_url) as channel:
        channel.queue_declare("mine", durable=True)
        channel.queue_bind("mine", "master", "order.*")
        channel.basic_publish("master", "order.paid", b"socks", properties, mandatory=True)
        recorder.wait_for_handled(["plain"])
        method, received, body = next(iter(channel.consume("mine", inactivity_timeout=DEADLINE)))
        assert method is not None
        assert received is not None
        channel.basic_ack(method.delivery_tag or 0)
        channel.cancel()

    assert body == b"socks"
    assert received.headers == headers


def test_headers_that_pika_would_change_go_through_redrive_unchanged(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url)
    fraction = b"d\x3f\xb9\x99\x99\x99\x99\x99\x9a"  # 0.1
    seen: list[bytes] = []

    def handler(message: Message) -> None:
        seen.extend(
            raw for name, raw in message.properties.headers.raw_fields() if name == "fraction"
        )

    recorder = Recorder(handler)
    with service.subscriber(recorder), plain_channel(rabbitmq_url) as channel:
        channel.basic_publish(
            "master",
            "order.paid",
            b"",
            properties_of(Table([("fraction", fraction)]), "raw"),
            mandatory=True,
        )
        recorder.wait_for_handled(["raw"])

    assert seen == [fraction]


def _what_pika_is() -> tuple[object, ...]:
    return (
        Connection._on_data_available,
        Connection._output_marshaled_frames,
        pika.SelectConnection.__mro__,
        dict(spec.props),
        dict(spec.methods),
        frame.decode_frame,
        io_services_utils._AsyncTransportBase._MAX_RECV_BYTES,
    )
