"""A broker that breaks the protocol: what people are told of it is a sentence, and no client's
inside."""

import asyncio
import re
import struct
from collections.abc import Callable
from datetime import timedelta

import pytest

from canned_server import START, TUNE, CannedServer
from redrive import AsyncSubscriber, BrokerUnavailable, FailedQueue, Message, Subscriber

STAGES = {"first": (), "after its start": (START,), "after its tune": (START, TUNE)}
INSIDES = re.compile(r"\w+(Error|Exception)\b|\w\(|__|b'|object at|argument")


def frame(payload: bytes, *, kind: int = 1, channel: int = 0, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


BROKEN = {
    "a method that there is not": frame(b"\0\x63\0\x63"),
    "a method that only clients send": frame(struct.pack(">HH", 10, 70)),
    "a method that is cut off": frame(struct.pack(">HH", 10, 10) + b"\0"),
    "a method with a table that is cut off": frame(
        struct.pack(">HHBBI", 10, 10, 0, 9, 200) + b"\x01a"
    ),
    "a table with an unknown type": frame(
        struct.pack(">HHBBI", 10, 10, 0, 9, 4) + b"\x01a\xf7\x01" + struct.pack(">I", 0) * 2
    ),
    "no method at all": frame(b""),
    "a wrong end": frame(struct.pack(">HH", 10, 41), end=b"\0"),
    "a kind of frame that there is not": frame(b"abcd", kind=77),
}


def subscribe(url: str) -> None:
    subscriber = Subscriber(url, "shop@orders", patience=timedelta(0), declare=False)
    subscriber.handler(lambda message: None)
    subscriber.run()


def subscribe_async(url: str) -> None:
    subscriber = AsyncSubscriber(url, "shop@orders", patience=timedelta(0), declare=False)

    @subscriber.handler
    async def handle(message: Message) -> None: ...

    asyncio.run(subscriber.run())


def declare(url: str) -> None:
    Subscriber(url, "shop@orders").declare()


def look(url: str) -> None:
    list(FailedQueue(url, "shop@orders").browse())


broken_at_each_stage = pytest.mark.parametrize(
    ("stage", "what"), [(stage, what) for stage in STAGES for what in BROKEN]
)


@broken_at_each_stage
@pytest.mark.parametrize("use", [subscribe, subscribe_async, declare, look])
def test_a_broken_frame_is_said_in_a_sentence(
    use: Callable[[str], object], stage: str, what: str
) -> None:
    with (
        CannedServer(*STAGES[stage], BROKEN[what], listens=True) as port,
        pytest.raises(BrokerUnavailable) as told,
    ):
        use(f"amqp://127.0.0.1:{port}/")
    text = str(told.value)
    assert "the broker broke the protocol" in text or "does not speak AMQP" in text
    assert "\n" in text, "it says what to do"
    assert not INSIDES.search(text)
