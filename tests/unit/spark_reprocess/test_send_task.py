"""What a send task does with messages that their queues don't take, without a broker."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from redrive.errors import PublishNacked, RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.transfer.confirmed_publisher import Sending
from redrive.spark_reprocess.row_message import Mode
from redrive.spark_reprocess.send_task import SendTask, Sent, _Part

Answer = Callable[[Outgoing], RedriveError | None]


class Wire:
    """A connection over which each message is answered at once."""

    blocked = None

    def __init__(self, answer: Answer) -> None:
        self.offers: Counter[str] = Counter()
        self._answer = answer

    def wait_until_up(self, timeout: float) -> int:
        return 0

    def send(self, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            self.offers[message.message_id] += 1
            message.settled(message, self._answer(message))


def nacked(message: Outgoing) -> PublishNacked:
    return PublishNacked(message.message_id, message.routing_key, "it is full")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by pauses alone."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))


def sent(wire: Wire, queues: Sequence[str]) -> Sent:
    task = SendTask("amqp://localhost", Mode.PUBLISH, "job", batch=40, exchange="")
    rows = (
        {"id": str(number), "routing_key": queue, "body": b""}
        for number, queue in enumerate(queues)
    )
    return _Part(task, cast("Sending", wire), "part-00000", 0).send(rows)


def test_a_queue_that_takes_some_of_each_offer_gets_all_however_long_that_takes() -> None:
    offered = 0

    def takes_one_in_twenty(message: Outgoing) -> RedriveError | None:
        nonlocal offered
        offered += 1
        return None if offered % 20 == 0 else nacked(message)

    outcome = sent(Wire(takes_one_in_twenty), ["slow"] * 100)
    assert (outcome.confirmed, outcome.refused) == (100, 0)
    assert time.monotonic() > 2 * 15


def test_messages_of_a_queue_that_takes_none_are_refused_after_one_time_of_offers() -> None:
    wire = Wire(lambda message: nacked(message))
    outcome = sent(wire, ["full"] * 100)
    assert (outcome.confirmed, outcome.refused) == (0, 100)
    assert 15 < time.monotonic() < 17
    assert wire.offers["99"] == 1


def test_a_full_queue_takes_nothing_of_the_time_that_another_has() -> None:
    def answer(message: Outgoing) -> RedriveError | None:
        if message.routing_key == "full" or time.monotonic() < 20:
            return nacked(message)
        return None

    outcome = sent(Wire(answer), [*["full"] * 20, *["late"] * 20, *["full"] * 20])
    assert (outcome.confirmed, outcome.refused) == (20, 40)
