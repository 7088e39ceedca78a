"""A hostile broker: whatever bytes it sends are messages, or no AMQP; and it can't have more of
them kept than was agreed."""

import contextlib
import itertools
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from field_tables import properties
from redrive.amqp.field_table import Table
from redrive.amqp.frames import (
    BadFrame,
    ChannelEvents,
    FrameReader,
    Received,
    Returned,
    content_frames,
)
from redrive.amqp.properties import Malformed, Properties

CHANNEL = 7
FRAME_MAX = 4096
DELIVER, RETURN, ACK = ((60 << 16) | method for method in (60, 50, 80))
METHOD, HEADER, BODY = 1, 2, 3
LARGEST_MESSAGE = 512 * 1024 * 1024


def frame(kind: int, payload: bytes, *, length: int | None = None) -> bytes:
    return (
        struct.pack(">BHI", kind, CHANNEL, len(payload) if length is None else length)
        + payload
        + b"\xce"
    )


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


DELIVER_METHOD = (
    struct.pack(">I", DELIVER)
    + short(b"consumer")
    + struct.pack(">Q?", 1, False)
    + short(b"master")
    + short(b"user.create")
)
RETURN_METHOD = (
    struct.pack(">IH", RETURN, 312) + short(b"NO_ROUTE") + short(b"master") + short(b"user.create")
)


def header(size: int, encoded: bytes = b"\0\0") -> bytes:
    return frame(HEADER, struct.pack(">HHQ", 60, 0, size) + encoded)


class Reading:
    """A reader, and all that it has told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.reader = FrameReader(lambda *other: self.told.append(other))
        self.reader.limit(FRAME_MAX)
        self.reader.watch(
            CHANNEL,
            ChannelEvents(
                self.told.append, self.told.append, self._confirmed, self._closed, self._cancelled
            ),
        )

    def feed(self, data: bytes, piece: int) -> None:
        """Has it read these bytes, so many at a time."""
        for start in range(0, len(data), piece):
            self.reader.feed(data[start : start + piece])

    def _confirmed(self, tag: int, multiple: bool, acked: bool) -> None:
        self.told.append((tag, multiple, acked))

    def _closed(self, code: int, text: str) -> None:
        raise AssertionError("a reader closes no channel")

    def _cancelled(self) -> None:
        raise AssertionError("a reader ends no consumer")


# --- bytes that are no AMQP -----------------------------------------------------------------------

_PROPERTIES = [
    Properties(),
    Properties(content_type="application/json", delivery_mode=2, message_id="m", timestamp=1),
    Properties(
        headers=Table.of({"x-death": [{"queue": "q", "count": 1}], "tenant": "a"}),
        user_id="u",
        expiration="5",
        priority=1,
    ),
    Properties("t", "t", Table.of({"a": 1}), 1, 1, "t", "t", "5", "t", 1, "t", "t", "t", "t"),
]
_WHOLE = [
    *(
        frame(METHOD, method) + content_frames(CHANNEL, some.encode(), body, FRAME_MAX)
        for method in (DELIVER_METHOD, RETURN_METHOD)
        for some in _PROPERTIES
        for body in (b"", b"{}", bytes(FRAME_MAX + 10))
    ),
    frame(METHOD, struct.pack(">IQ?", ACK, 5, True)),
    frame(8, b""),
]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """These bytes, of which a few are changed, taken out or put in."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        # Bodies are long, and nothing but length: most of what matters stands at an end.
        place = chance.choice(
            [
                chance.randint(0, len(found)),
                chance.randint(0, 80),
                len(found) - chance.randint(0, 40),
            ]
        )
        place = min(max(place, 0), len(found))
        match chance.choice(["change", "take", "put"]):
            case "change":
                found[place : place + 1] = chance.randbytes(1)
            case "take":
                del found[place : place + chance.randint(1, 9)]
            case _:
                found[place:place] = chance.randbytes(chance.randint(1, 9))
    return bytes(found)


@settings(max_examples=20)
@given(st.integers(0, 2**64 - 1))
def test_damaged_frames_are_messages_or_no_amqp_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        reading = Reading()
        data = damaged(b"".join(chance.choices(_WHOLE, k=chance.randint(1, 3))), chance)
        edges = [
            0,
            *sorted(chance.randint(0, len(data)) for _ in range(chance.randint(0, 3))),
            len(data),
        ]
        with contextlib.suppress(BadFrame):
            for start, end in itertools.pairwise(edges):
                reading.reader.feed(data[start:end])
        assert all(isinstance(told, Received | Returned | tuple) for told in reading.told)


@settings(max_examples=20)
@given(st.integers(0, 2**64 - 1))
def test_damaged_properties_are_properties_or_malformed_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        data = damaged(chance.choice(_PROPERTIES).encode(), chance)
        with contextlib.suppress(Malformed):
            found = Properties.parse(data)
            assert Properties.parse(found.encode()) == found


@given(properties.filter(lambda found: found != Properties()), st.data())
def test_properties_that_are_cut_off_are_malformed(whole: Properties, data: st.DataObject) -> None:
    encoded = whole.encode()
    with pytest.raises(Malformed, match="cut off"):
        Properties.parse(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@pytest.mark.parametrize(
    "stream",
    [
        frame(METHOD, b""),
        frame(METHOD, b"\0\x3c"),
        frame(METHOD, struct.pack(">I", ACK)),
        frame(METHOD, DELIVER_METHOD[:4]) + header(0),
        frame(METHOD, DELIVER_METHOD[:-1]) + header(0),
        frame(METHOD, DELIVER_METHOD[:-1]) + header(1) + frame(BODY, b"a"),
        frame(METHOD, DELIVER_METHOD) + frame(HEADER, b"\0\x3c"),
        frame(METHOD, DELIVER_METHOD) + header(2) + header(2),
        frame(METHOD, DELIVER_METHOD) + frame(BODY, b"a"),
        frame(METHOD, DELIVER_METHOD) + header(2) + frame(BODY, b"abc"),
        frame(METHOD, RETURN_METHOD[:9]) + header(0),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("piece", [1, 10_000])
def test_a_frame_that_is_cut_off_or_out_of_its_place_is_no_amqp(stream: bytes, piece: int) -> None:
    with pytest.raises(BadFrame):
        Reading().feed(stream, piece)


def test_an_error_of_whoever_is_told_of_a_message_is_not_taken_for_the_brokers() -> None:
    def fails(_: object) -> None:
        raise IndexError("a defect")

    reader = FrameReader(lambda *_: None)
    reader.watch(
        CHANNEL, ChannelEvents(fails, fails, lambda *_: None, lambda *_: None, lambda: None)
    )
    with pytest.raises(IndexError, match="a defect"):
        reader.feed(frame(METHOD, DELIVER_METHOD) + header(1) + frame(BODY, b"a"))


# --- more than was agreed -------------------------------------------------------------------------


@pytest.mark.parametrize("length", [FRAME_MAX - 7, 2**31, 2**32 - 1])
@pytest.mark.parametrize("kind", [METHOD, BODY, 8])
def test_a_frame_that_says_more_than_was_agreed_is_refused_before_it_has_arrived(
    kind: int, length: int
) -> None:
    with pytest.raises(BadFrame, match=f"a frame has {length} bytes"):
        Reading().reader.feed(frame(kind, b"", length=length))


def test_a_frame_of_what_was_agreed_is_read() -> None:
    reading = Reading()
    body = bytes(FRAME_MAX - 8)
    reading.reader.feed(frame(METHOD, DELIVER_METHOD) + header(len(body)) + frame(BODY, body))
    (told,) = reading.told
    assert isinstance(told, Received)
    assert told.body == body


def test_a_header_with_what_the_broker_added_is_read_and_one_of_twice_the_size_is_not() -> None:
    reading = Reading()
    reading.reader.feed(frame(METHOD, DELIVER_METHOD) + header(0, bytes(FRAME_MAX)))
    assert len(reading.told) == 1
    with pytest.raises(BadFrame, match="but the limit is"):
        reading.reader.feed(frame(METHOD, DELIVER_METHOD) + header(0, bytes(2 * FRAME_MAX)))


def test_before_anything_is_agreed_a_frame_is_refused_that_is_larger_than_any_brokers_default() -> (
    None
):
    with pytest.raises(BadFrame):
        FrameReader(lambda *_: None).feed(frame(METHOD, b"", length=2**31))


def test_without_a_limit_a_frame_is_as_large_as_a_message_may_be_and_no_larger() -> None:
    def first_bytes(length: int) -> None:
        reader = FrameReader(lambda *_: None)
        reader.limit(0)
        reader.feed(frame(BODY, b"", length=length))

    first_bytes(LARGEST_MESSAGE - 8)
    with pytest.raises(BadFrame):
        first_bytes(LARGEST_MESSAGE + 1)


@pytest.mark.parametrize("size", [LARGEST_MESSAGE + 1, 2**63, 2**64 - 1])
def test_a_message_that_says_it_is_larger_than_any_broker_takes_is_refused(size: int) -> None:
    with pytest.raises(BadFrame, match=f"a message has {size} bytes"):
        Reading().reader.feed(frame(METHOD, DELIVER_METHOD) + header(size))


def test_a_large_frame_in_small_pieces_is_put_together_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = bytes(2**20)
    reader = FrameReader(lambda *_: None)
    reader.limit(0)
    copied = 0

    class Piece(bytes):
        """Bytes that note how much is made of them."""

        def __radd__(self, other: bytes) -> bytes:
            nonlocal copied
            copied += len(other) + len(self)
            return other + bytes(self)

    whole = frame(BODY, payload)
    for start in range(0, len(whole), 4096):
        reader.feed(Piece(whole[start : start + 4096]))
    assert copied == 0


def _no_frames_but(told: Callable[[bytes], None]) -> FrameReader:
    return FrameReader(lambda _, __, data: told(data))


def test_a_large_frame_in_small_pieces_is_whole_at_its_end() -> None:
    got: list[bytes] = []
    reader = _no_frames_but(got.append)
    reader.limit(0)
    whole = frame(BODY, bytes(range(256)) * 4096) + frame(8, b"")
    for start in range(0, len(whole), 1000):
        reader.feed(whole[start : start + 1000])
    assert b"".join(got) == whole
