from redrive.failures.alert import Crossings


def told(crossings: Crossings, *depths: int) -> list[bool]:
    """At which of these depths somebody is told."""
    found = []
    for depth in depths:
        found.append(crossings.crosses("q", depth))
        if found[-1]:
            crossings.told("q")
    return found


def test_a_crossing_is_told_of_once() -> None:
    assert told(Crossings(100), 0, 100, 101, 150, 101, 100, 101) == [False, False, True, False, False, False, True]


def test_what_nobody_could_be_told_of_is_told_of_again() -> None:
    crossings = Crossings(0)
    assert crossings.crosses("q", 1)
    assert crossings.crosses("q", 1)
    crossings.told("q")
    assert not crossings.crosses("q", 1)


def test_each_queue_has_its_own_crossings() -> None:
    crossings = Crossings(0)
    crossings.told("q")
    assert crossings.crosses("other", 1)
