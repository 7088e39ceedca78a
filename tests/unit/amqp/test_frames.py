"""What a connection receives becomes the same messages and confirms, however it is cut into pieces
on its way."""

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import spec

from redrive.amqp.frames import (
    BadFrame,
    ChannelEvents,
    FrameReader,
    Received,
    content_frames,
    method_frame,
    return_frame,
)

CHANNEL = 7
FRAME_MAX = 4096
DELIVER, CONFIRM = (60 << 16) | 60, (60 << 16) | 80
HEARTBEAT = struct.pack(">BHI", 8, 0, 0) + b"\xce"
PROPERTIES = b"\0\0"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


def delivery(message: Received, channel: int = CHANNEL) -> bytes:
    method = (
        struct.pack(">I", DELIVER)
        + short("consumer")
        + struct.pack(">Q?", message.delivery_tag, message.redelivered)
    )
    method += short(message.exchange) + short(message.routing_key)
    return frame(1, channel, method) + content_frames(
        channel, message.properties, message.body, FRAME_MAX
    )


def confirm(tag: int, multiple: bool) -> bytes:
    return frame(1, CHANNEL, struct.pack(">IQ?", CONFIRM, tag, multiple))


class Seen:
    """What a reader has told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.reader = FrameReader(
            lambda kind, channel, data: self.told.append(("other", kind, channel, data))
        )
        self.watch()

    def watch(self) -> None:
        """The channel is opened."""
        self.reader.watch(
            CHANNEL,
            ChannelEvents(
                self.told.append,
                lambda _: None,
                lambda *confirmed: self.told.append(("confirmed", *confirmed)),
                lambda *_: None,
                lambda: None,
            ),
        )


keys = st.sampled_from(["", "master.failed", "user.create", "用户"])
messages = st.builds(
    Received,
    st.integers(0, 2**64 - 1),
    st.booleans(),
    keys,
    keys,
    st.binary(max_size=300).map(lambda tail: PROPERTIES + tail),
    st.one_of(st.binary(max_size=50), st.integers(0, 3 * FRAME_MAX).map(bytes)),
)
things = st.one_of(
    messages.map(lambda message: (delivery(message), message)),
    st.tuples(st.integers(0, 2**64 - 1), st.booleans()).map(
        lambda confirmed: (confirm(*confirmed), ("confirmed", *confirmed, True))
    ),
    st.just((HEARTBEAT, ("other", 8, 0, HEARTBEAT))),
)


@given(st.lists(things, max_size=12), st.lists(st.integers(0, 100_000), max_size=12))
def test_messages_are_the_same_however_they_are_cut(
    sent: list[tuple[bytes, Any]], cuts: list[int]
) -> None:
    data = b"".join(encoded for encoded, _ in sent)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    seen = Seen()
    for start, end in itertools.pairwise(edges):
        seen.reader.feed(data[start:end])

    assert seen.told == [meant for _, meant in sent]


@given(messages)
def test_a_message_of_a_channel_that_nobody_watches_is_handed_on(message: Received) -> None:
    seen = Seen()
    data = delivery(message, CHANNEL + 1)
    seen.reader.feed(data)

    assert b"".join(told[3] for told in seen.told) == data


@given(messages, messages, st.integers(0, 10_000))
def test_of_a_message_that_is_cut_off_by_the_end_of_its_channel_nothing_gets_into_the_next_channel(
    cut: Received, message: Received, length: int
) -> None:
    seen = Seen()
    data = delivery(cut)
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 8 + struct.unpack_from(">I", data, ends[-1] + 3)[0])
    seen.reader.feed(data[: ends[length % (len(ends) - 1)]])
    seen.reader.unwatch(CHANNEL)
    seen.watch()
    seen.reader.feed(delivery(message))

    assert seen.told == [message]


def test_a_body_frame_with_nothing_in_it_changes_nothing() -> None:
    message = Received(1, False, "", "user.create", PROPERTIES, b"body")
    seen = Seen()
    of_body = len(frame(3, CHANNEL, message.body))
    data = delivery(message)

    seen.reader.feed(data[:-of_body] + frame(3, CHANNEL, b"") + data[-of_body:])

    assert seen.told == [message]


@given(messages, st.integers(0, 2))
def test_a_frame_without_its_end_is_no_amqp(message: Received, which: int) -> None:
    data = bytearray(delivery(message))
    end = -1
    for _ in range(which + 1):
        if end + 1 >= len(data):
            break
        end += 8 + struct.unpack_from(">I", data, end + 4)[0]
    data[end] = 0

    with pytest.raises(BadFrame):
        Seen().reader.feed(bytes(data))


def test_messages_of_many_places_keep_their_own() -> None:
    seen = Seen()
    sent = [
        Received(number, False, "master", f"key.{number}", PROPERTIES, b"body")
        for number in range(3000)
    ]
    for message in sent:
        seen.reader.feed(delivery(message))

    assert seen.told == sent


def test_a_method_without_room_for_its_name_is_no_amqp() -> None:
    with pytest.raises(BadFrame, match="cut off"):
        Seen().reader.feed(frame(1, CHANNEL + 1, b"\0\1"))


def test_a_method_is_its_class_its_name_and_its_arguments() -> None:
    assert method_frame(CHANNEL, 20, 40, b"words") == frame(
        1, CHANNEL, struct.pack(">HH", 20, 40) + b"words"
    )


def test_one_delivery_is_returned_by_a_nack_of_it_alone() -> None:
    expected = spec.Basic.Nack(delivery_tag=7, multiple=False, requeue=True)  # type: ignore[no-untyped-call]
    encoded = b"".join(expected.encode())  # type: ignore[no-untyped-call]
    payload = struct.pack(">HH", 60, 120) + encoded
    assert return_frame(3, 7) == struct.pack(">BHI", 1, 3, len(payload)) + payload + b"\xce"
