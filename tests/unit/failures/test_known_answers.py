"""Answers that are kept for a while."""

from redrive.failures.known_answers import KnownAnswers


def test_an_answer_is_found_once() -> None:
    known: KnownAnswers[int] = KnownAnswers(2)
    found = [1, 2]
    assert [known.of("a", lambda: found.pop()) for _ in range(3)] == [2, 2, 2]


def test_the_one_that_nobody_has_asked_for_goes_first() -> None:
    known: KnownAnswers[str] = KnownAnswers(2)
    for name in ("a", "b", "a", "c"):
        assert known.of(name, lambda name=name: name) == name  # type: ignore[misc]
    assert known.of("a", lambda: "anew") == "a"
    assert known.of("b", lambda: "anew") == "anew"
