"""When a broker's dead-lettering counts as stuck; the clock is the test's own."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest

from redrive.pubsub.admin.dead_letter_survey import stuck
from redrive.pubsub.admin.management_api import ManagementAPI

SECOND = timedelta(seconds=1)


class Broker:
    """Tells one count after another, a second apart, and then the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *counts: dict[str, int]) -> None:
        self._counts: Sequence[dict[str, int]] = counts
        self.looks = 0
        self.now = 0.0
        monkeypatch.setattr("redrive.pubsub.admin.dead_letter_survey.time", self)

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds

    def dead_lettering(self) -> dict[str, int]:
        """What each queue is dead-lettering."""
        found = self._counts[min(self.looks, len(self._counts) - 1)]
        self.looks += 1
        return found

    def stuck(self, **delays: timedelta | None) -> dict[str, int]:
        """What is found to be stuck."""
        return stuck(cast(ManagementAPI, self), delays, lambda *_: None)


def test_a_queue_that_dead_letters_nothing_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, {"a": 0, "other": 5})
    assert broker.stuck(a=SECOND) == {}
    assert broker.looks == 1


def test_a_queue_that_has_fewer_of_them_later_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, {"a": 5}, {"a": 7}, {"a": 6})
    assert broker.stuck(a=SECOND) == {}
    assert broker.looks == 3


def test_a_queue_that_is_gone_meanwhile_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Broker(monkeypatch, {"a": 5}, {}).stuck(a=None) == {}


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(None, 10), (20 * SECOND, 30), (timedelta(minutes=1), 70), (timedelta(days=1), 70)],
)
def test_a_queue_that_never_has_fewer_is_stuck_after_its_delay_and_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, delay: timedelta | None, seconds: int
) -> None:
    broker = Broker(monkeypatch, {"a": 5}, {"a": 5}, {"a": 6})
    assert broker.stuck(a=delay) == {"a": 6}
    assert broker.now == seconds + 1


def test_each_queue_is_watched_for_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, {"a": 5, "b": 1}, {"a": 4, "b": 1})
    assert broker.stuck(a=SECOND, b=SECOND) == {"b": 1}


def test_how_long_it_takes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float]] = []
    broker = Broker(monkeypatch, {"a": 5}, {"a": 5}, {"a": 4})
    stuck(cast(ManagementAPI, broker), {"a": SECOND}, lambda *so_far: told.append(so_far))
    assert told == [(0.0, 11.0), (1.0, 11.0)]
