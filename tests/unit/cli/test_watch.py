import pytest

from redrive.cli.watch import ThresholdAlarm


def told(crossings: ThresholdAlarm, *depths: int) -> list[bool]:
    """At which of these depths somebody is told."""
    found = []
    for depth in depths:
        found.append(crossings.crosses("q", depth))
        if found[-1]:
            crossings.told("q")
    return found


def test_a_crossing_is_told_of_once() -> None:
    assert told(ThresholdAlarm(100), 0, 100, 101, 150, 101, 90, 101) == [
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]


def test_going_up_and_down_around_the_bound_is_one_crossing() -> None:
    assert told(ThresholdAlarm(100), 101, 100, 101, 91, 101) == [True, False, False, False, False]


@pytest.mark.parametrize("above", [0, 1, 5])
def test_a_small_bound_is_crossed_again_once_the_queue_was_empty(above: int) -> None:
    assert told(ThresholdAlarm(above), above + 1, 0, above + 1) == [True, False, True]


def test_where_some_may_be_held_a_queue_is_not_taken_for_calm() -> None:
    crossings = ThresholdAlarm(100)
    crossings.told("q")
    assert not crossings.crosses("q", 0, is_all=False)
    assert not crossings.crosses("q", 101)
    assert crossings.crosses("other", 101, is_all=False)


def test_what_nobody_could_be_told_of_is_told_of_again() -> None:
    crossings = ThresholdAlarm(0)
    assert crossings.crosses("q", 1)
    assert crossings.crosses("q", 1)
    crossings.told("q")
    assert not crossings.crosses("q", 1)


def test_each_queue_has_its_own_crossings() -> None:
    crossings = ThresholdAlarm(0)
    crossings.told("q")
    assert crossings.crosses("other", 1)
