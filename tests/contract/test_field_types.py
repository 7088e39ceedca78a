"""Headers of every AMQP type survive every move, byte for byte."""

import struct

import pytest

from contract.plain import properties_of, publish_plain
from contract.support import Recorder, Service, always_fails, both_types, retrying
from redrive import FailedMessage, Message
from redrive.amqp.field_table import Table
from waiting import wait_until

pytestmark = pytest.mark.versions("how the broker keeps headers")


def _long(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack(">I", len(payload)) + payload


_SCALARS: dict[str, bytes] = {
    "boolean": b"t\1",
    "int8": b"b\x80",
    "uint8": b"B\xff",
    "int16": b"s\x80\x01",
    "uint16": b"u\xff\xfe",
    "int32": b"I\x80\x00\x00\x01",
    "uint32": b"i\xff\xff\xff\xfe",
    "int64": b"l\x80\x00\x00\x00\x00\x00\x00\x01",
    "small int64": b"l\x00\x00\x00\x00\x00\x00\x00\x07",
    "float": b"f" + struct.pack(">f", 0.1),
    "double": b"d" + struct.pack(">d", 0.1),
    "whole double": b"d" + struct.pack(">d", 3.0),
    "decimal": b"D\x02" + struct.pack(">i", 12345),
    "timestamp": b"T" + struct.pack(">Q", 2**40),
    "void": b"V",
    "text": _long(b"S", "Größe".encode()),
    "no utf-8": _long(b"S", b"\xff\xfe\x00"),
    "empty text": _long(b"S", b""),
    "bytes": _long(b"x", b"\x00\x01\xff"),
}
_ALL_IN_A_TABLE = _long(b"F", Table(_SCALARS.items()).encode())
_ALL_IN_AN_ARRAY = _long(b"A", b"".join(_SCALARS.values()) + _ALL_IN_A_TABLE)
FIELDS: dict[str, bytes] = {
    **_SCALARS,
    "empty array": _long(b"A", b""),
    "empty table": _long(b"F", b""),
    "array": _ALL_IN_AN_ARRAY,
    "table": _long(
        b"F", Table([("inner table", _ALL_IN_A_TABLE), ("inner array", _ALL_IN_AN_ARRAY)]).encode()
    ),
}


def users_fields(message: Message | FailedMessage) -> dict[str, bytes]:
    """The fields of a message that the user named, byte for byte."""
    return {name: raw for name, raw in message.properties.headers.raw_fields() if name in FIELDS}


@both_types
def test_headers_of_every_type_are_the_same_bytes_at_each_attempt_set_aside_and_after_a_requeue(
    service: Service,
) -> None:
    seen: list[dict[str, bytes]] = []

    def handler(message: Message) -> None:
        seen.append(users_fields(message))
        raise RuntimeError("again")

    service.declare()
    publish_plain(
        service.url, "order.paid", b"socks", properties_of(Table(FIELDS.items()), "all-types")
    )
    with service.subscriber(handler, retry=retrying(1)):
        (failed,) = service.wait_for_failed()
        seen.append(users_fields(failed))
        service.failed_queue.requeue()
        wait_until(lambda: len(seen) == 5, "the message was tried twice again")
        (failed,) = service.wait_for_failed()
        seen.append(users_fields(failed))

    assert len(seen) == 2 + 1 + 2 + 1
    for fields in seen:
        assert fields == FIELDS


@both_types
def test_no_other_property_changes_on_the_way(service: Service) -> None:
    with service.publisher() as publisher:
        service.declare()
        message_id = publisher.publish({"item": "socks"}, "order.paid")
    first = Recorder(always_fails)
    properties = []

    def handler(message: Message) -> None:
        properties.append(message.properties._replace(headers=Table()))
        first(message)

    with service.subscriber(handler, retry=retrying(1)):
        (failed,) = service.wait_for_failed()
        service.failed_queue.requeue()
        first.wait_for_attempts(4)
        (again,) = service.wait_for_failed()

    properties += [
        failed.properties._replace(headers=Table()),
        again.properties._replace(headers=Table()),
    ]
    assert again.message_id == message_id
    assert again.content_type == "application/json"
    assert again.published_at is not None
    assert len(properties) == 6
    assert len(set(properties)) == 1
