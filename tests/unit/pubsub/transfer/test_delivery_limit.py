"""What would be deleted at its return is put at the end of its queue."""

import errno
import tempfile
from collections.abc import Callable

import pytest

from redrive.amqp.field_table import Table
from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.errors import BrokerUnavailable, RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.transfer import delivery_limit
from redrive.pubsub.transfer.delivery_limit import DeliveryLimitWatch, ReturnLimit


def returned(number: int, count: int) -> Received:
    """A message that its queue has got back so often."""
    properties = Properties(headers=Table.of({"x-delivery-count": count})).encode()
    return Received(number, True, "", "orders.dlq", properties, b"%d" % number)


class Look:
    """A look at a queue whose limit is lowered to `now` before its end."""

    def __init__(self, limit: int | None, now: int | None) -> None:
        self.now = now
        self.copies: list[Outgoing] = []
        self.acked: list[int] = []
        self.ends: list[RedriveError] = []
        self.is_over = False
        self.life = DeliveryLimitWatch(
            "orders.dlq",
            ReturnLimit(limit, "Raise it.", lambda: self.now),
            self.copies.append,
            self.ends.append,
        )

    def take(self, *counts: int) -> list[bool]:
        """Takes messages that were returned so often; whether each may be returned."""
        return [
            self.life.may_return(returned(number, count), self._acking(number), number)
            for number, count in enumerate(counts)
        ]

    def _acking(self, number: int) -> Callable[[], None]:
        return lambda: self.acked.append(number)

    def end(self) -> list[bytes]:
        """Ends the look; the bodies of the messages that are put at the queue's end."""
        limit = self.life.ask()
        if limit is not None:
            self.life.replace_beyond(limit, self._over)
        self.life.close()
        return [copy.body for copy in self.copies]

    def _over(self) -> None:
        self.is_over = True

    def confirm(self, error: RedriveError | None = None) -> None:
        """Answers what is published."""
        for copy in self.copies:
            copy.settled(copy, error)


@pytest.fixture
def look() -> Look:
    return Look(None, 3)


def test_where_the_limit_stays_nothing_is_replaced() -> None:
    assert Look(5, 5).life.ask() is None
    look = Look(5, 5)
    assert look.take(0, 3) == [True, True]
    assert look.end() == []


def test_what_has_come_to_the_lowered_limit_is_replaced_and_acked_once_that_is_confirmed(
    look: Look, caplog: pytest.LogCaptureFixture
) -> None:
    assert look.take(2, 3, 9) == [True, True, True]
    assert look.end() == [b"1", b"2"]
    assert (look.acked, look.is_over) == ([], False)
    look.confirm()
    assert (look.acked, look.is_over) == ([1, 2], True)
    assert "lowered to 3" in caplog.text
    assert "2 of them" in caplog.text


def test_one_return_before_a_limit_that_is_known_it_is_kept_as_well() -> None:
    look = Look(4, 2)
    assert look.take(3) == [True]
    assert len(look.ends) == 1
    assert look.end() == [b"0"]


def test_a_copy_that_is_not_confirmed_is_not_acked(look: Look) -> None:
    look.take(3)
    look.end()
    look.confirm(BrokerUnavailable("amqp://localhost/", "it is gone"))
    assert (look.acked, look.is_over) == ([], True)


def test_what_is_settled_or_lost_is_not_replaced(look: Look) -> None:
    look.take(3, 3)
    look.life.settled(0)
    assert look.end() == [b"1"]
    other = Look(None, 3)
    other.take(3)
    other.life.lost()
    other.take(2, 4)
    assert other.end() == [b"1"]


def test_where_nothing_has_come_to_the_lowered_limit_it_is_over_at_once(look: Look) -> None:
    look.take(1)
    assert look.end() == []
    assert look.is_over


def test_what_there_is_no_room_for_is_told(
    look: Look, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery_limit, "_MOST_KEPT", 0)
    look.take(3, 3, 3, 3)
    assert look.end() == [b"0", b"1"]
    assert "it may delete some of them" in caplog.text


def test_without_a_place_for_a_file_a_look_goes_on(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert look.take(3) == [True]
    assert look.end() == []
    look.life.close()


def test_what_can_not_be_read_again_is_told(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    look.take(3)
    look.life.close()
    assert look.end() == []
    assert "it may delete some of them" in caplog.text


def test_after_its_end_nothing_is_kept(look: Look) -> None:
    look.take(3)
    look.life.close()
    look.take(3)
    assert look.end() == []
    assert look.is_over


def test_a_look_that_can_ask_nobody_keeps_nothing() -> None:
    copies: list[Outgoing] = []
    life = DeliveryLimitWatch(
        "orders.dlq", ReturnLimit(9, "Raise it."), copies.append, lambda _: None
    )
    assert life.may_return(returned(1, 3), lambda: None, 1)
    life.settled(1)
    life.lost()
    life.replace_beyond(3, lambda: None)
    life.close()
    assert (life.ask(), copies) == (None, [])
