"""Bodies that are not JSON: what an app decodes them with, and what their handlers get."""

import asyncio
import gzip
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from google.protobuf import struct_pb2, wrappers_pb2

from redrive import App, AsyncApp, AsyncRouter, Router
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError, GiveUp, InvalidMessage, Retry
from redrive.pubsub.decoders import checked_decoders, decode_msgpack, decode_protobuf
from redrive.pubsub.handler_table import HandlerTable
from redrive.pubsub.message import Message
from redrive.pubsub.protobuf_codec import is_protobuf
from redrive.topology.headers import Delivery

MSGPACK, PROTOBUF = "application/msgpack", "application/x-protobuf"


class Order(pydantic.BaseModel):
    id: int


class Item(msgspec.Struct):
    id: int


def upper(body: bytes, message: Message) -> object:
    """A decoder that says what it was given."""
    return f"{body.decode().upper()} {message.routing_key}"


def message_of(
    body: bytes,
    content_type: str | None = MSGPACK,
    decoders: object = None,
    encoding: str | None = None,
) -> Message:
    """A message of a subscriber with these decoders."""
    known = {MSGPACK: decode_msgpack, PROTOBUF: decode_protobuf} if decoders is None else decoders
    properties = Properties(content_type, encoding)
    return Message(Delivery("q", "", "key", properties, body), 3, checked_decoders(known))


PACKED = msgspec.msgpack.encode({"id": 7})


@pytest.mark.parametrize("kind", [Order, Item, dict])
def test_what_a_handler_asks_for_is_made_of_what_the_decoder_gives(kind: type) -> None:
    made: Any = message_of(PACKED).parse(kind)
    assert (made["id"] if kind is dict else made.id) == 7
    assert isinstance(made, kind)


@pytest.mark.parametrize(
    "content_type",
    [
        "APPLICATION/MsgPack",
        "application/msgpack; v=2",
        " application/msgpack",
        "application/vnd.shop.order+msgpack",
    ],
)
def test_a_content_type_is_matched_without_parameters_and_case(content_type: str) -> None:
    assert message_of(PACKED, content_type).parse(Order) == Order(id=7)


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "application/vnd.a+json", "text/plain"]
)
def test_what_no_decoder_is_for_is_json(content_type: str | None) -> None:
    assert message_of(b'{"id":7}', content_type).parse(Order) == Order(id=7)


def test_a_decoder_of_json_is_also_for_what_is_json_by_its_suffix() -> None:
    decoders = {"application/json": upper}
    assert message_of(b"a", "application/vnd.a+json", decoders).parse(str) == "A key"


def test_messages_without_a_content_type_may_have_a_decoder() -> None:
    assert message_of(PACKED, None, {"": decode_msgpack}).parse(Order) == Order(id=7)


def test_a_decoder_is_given_the_body_uncompressed_and_the_message() -> None:
    message = message_of(gzip.compress(b"a"), "a/b", {"A/B": upper}, "gzip")
    assert message.parse(str) == "A key"


def test_a_handler_that_asks_for_bytes_gets_the_body_as_it_came() -> None:
    assert message_of(PACKED).parse(bytes) == PACKED


def test_several_handlers_are_told_apart_by_what_the_decoder_gives() -> None:
    class Created(pydantic.BaseModel):
        kind: Literal["created"]

    class Gone(pydantic.BaseModel):
        kind: Literal["gone"]

    table = HandlerTable("q")
    seen: list[str] = []

    def on_created(body: Created) -> None:
        seen.append(body.kind)

    def on_gone(body: Gone) -> None:
        seen.append(body.kind)

    on_created.__annotations__["body"], on_gone.__annotations__["body"] = Created, Gone
    table.add(on_created, None)
    table.add(on_gone, None)
    table.call()(message_of(msgspec.msgpack.encode({"kind": "gone"})))
    assert seen == ["gone"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Order, r"1 problem\(s\) in the body as Order: id: "),
        (Item, "can't be read as Item: "),
        (int, r"problem\(s\) in the body as int"),
    ],
)
def test_what_does_not_fit_is_invalid_and_not_quoted(kind: type, told: str) -> None:
    message = message_of(msgspec.msgpack.encode({"id": "secret"}))
    with pytest.raises(InvalidMessage, match=told) as raised:
        message.parse(kind)
    assert "secret" not in str(raised.value)


# --- what a decoder raises ------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        MemoryError(),
        RecursionError(),
        Unprintable(),
        BaseException(),
    ],
)
def test_whatever_a_decoder_raises_the_message_is_invalid(error: BaseException) -> None:
    def fails(body: bytes, message: Message) -> object:
        raise error

    with pytest.raises(InvalidMessage, match=type(error).__name__) as raised:
        message_of(b"abc", "a/b", {"a/b": fails}).parse(Order)
    assert "content type 'a/b', no content encoding, 3 bytes" in str(raised.value)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("verdict", [Retry("5m"), GiveUp("no"), InvalidMessage("mine")])
def test_a_decoder_may_say_what_becomes_of_the_message(verdict: Exception) -> None:
    def says(body: bytes, message: Message) -> object:
        raise verdict

    with pytest.raises(type(verdict)) as raised:
        message_of(b"abc", "a/b", {"a/b": says}).parse(Order)
    assert raised.value is verdict


@pytest.mark.parametrize("body", [b"\xc1", b"", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000])
def test_what_is_no_messagepack_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidMessage, match="the decoder 'decode_msgpack' failed with"):
        message_of(body).parse(Order)


def test_a_bomb_reaches_no_decoder() -> None:
    message = message_of(gzip.compress(bytes(2**25)), MSGPACK, None, "gzip")
    with pytest.raises(InvalidMessage, match=r"the body's gzip expands to more than \d+ bytes"):
        message.parse(Order)


def test_a_decoder_whose_work_nobody_does_is_told() -> None:
    async def later() -> None: ...

    def sends(body: bytes, message: Message) -> object:
        return later()

    with pytest.raises(InvalidMessage, match="returned a coroutine that nobody awaits"):
        message_of(b"", "a/b", {"a/b": sends}).parse(Order)


# --- Protocol Buffers -----------------------------------------------------------------------------

Text = wrappers_pb2.StringValue


def test_a_protobuf_is_made_as_the_class_that_the_handler_asks_for() -> None:
    message = message_of(Text(value="x").SerializeToString(), PROTOBUF)
    assert message.parse(Text) == Text(value="x")


def test_json_is_read_as_a_protobuf_where_the_handler_asks_for_one() -> None:
    made = message_of(b'{"id":7}', "application/json").parse(struct_pb2.Struct)
    assert dict(made) == {"id": 7}


def test_a_decoder_may_give_a_protobuf_itself() -> None:
    made = Text(value="x")
    assert message_of(b"", "a/b", {"a/b": lambda body, message: made}).parse(Text) is made


@pytest.mark.parametrize(
    ("body", "content_type"), [(b"\xff\xff", PROTOBUF), (b'{"secret":1}', None), (b"[", None)]
)
def test_what_is_no_protobuf_is_invalid(body: bytes, content_type: str | None) -> None:
    with pytest.raises(InvalidMessage):
        message_of(body, content_type).parse(Text)


def test_only_the_classes_of_protoc_are_protobufs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_protobuf(Text)
    assert not is_protobuf(Order)
    assert not is_protobuf("text")
    monkeypatch.delitem(sys.modules, "google.protobuf.message")
    assert not is_protobuf(Text)


# --- what may be a decoder ------------------------------------------------------------------------


async def awaited(body: bytes, message: Message) -> object: ...


def generated(body: bytes, message: Message) -> Iterator[object]:
    yield body


@pytest.mark.parametrize(
    ("decoders", "told"),
    [
        ([upper], "decoders is"),
        ({7: upper}, "decoders has 7, which is not a content type"),
        ({"msgpack": upper}, "which is not a content type"),
        ({"application/msgpack; v=1": upper}, "which is not a content type"),
        ({"application/*": upper}, "which is not a content type"),
        ({"a/b": upper, "A/B": upper}, "decoders has 'a/b' twice"),
        ({"a/b": "upper"}, "the decoder of 'a/b' is 'upper'"),
        ({"a/b": awaited}, "is async"),
        ({"a/b": generated}, "is a generator function"),
        ({"a/b": msgspec.msgpack.decode}, "can't be called with a body and its Message"),
        ({"a/b": lambda body: body}, "can't be called with a body and its Message"),
    ],
)
def test_what_can_be_no_decoder_is_refused_at_once(decoders: object, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        checked_decoders(decoders)


def test_a_decoder_need_not_show_what_it_takes() -> None:
    assert set(checked_decoders({"a/b": dict})) == {"a/b"}


@pytest.mark.parametrize("make", [App, AsyncApp, Router, AsyncRouter])
def test_those_of_an_app_are_checked_at_once_and_a_subscriber_may_have_its_own(
    make: Callable[..., Any],
) -> None:
    with pytest.raises(ConfigurationError, match="which is not a content type"):
        make(decoders={"msgpack": decode_msgpack})
    place = make(decoders={MSGPACK: decode_msgpack})
    assert set(place.subscriber("a@b", "k")._options.decoders) == {MSGPACK}
    assert not place.subscriber("c@d", "k", decoders={})._options.decoders


def test_no_decoders_are_none() -> None:
    assert checked_decoders(None) == checked_decoders({}) == {}


def test_without_msgspec_its_decoder_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec.msgpack", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'redrive\[msgpack\]'"):
        checked_decoders({MSGPACK: decode_msgpack})
