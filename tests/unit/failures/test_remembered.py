"""Answers that are kept for a while."""

from redrive.failures.remembered import Remembered


def test_an_answer_is_found_once() -> None:
    remembered: Remembered[int] = Remembered(2)
    found = [1, 2]
    assert [remembered.of("a", lambda: found.pop()) for _ in range(3)] == [2, 2, 2]


def test_the_one_that_nobody_has_asked_for_goes_first() -> None:
    remembered: Remembered[str] = Remembered(2)
    for name in ("a", "b", "a", "c"):
        assert remembered.of(name, lambda name=name: name) == name  # type: ignore[misc]
    assert remembered.of("a", lambda: "anew") == "a"
    assert remembered.of("b", lambda: "anew") == "anew"
