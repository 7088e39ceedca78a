"""Answers that are kept for a while."""

from redrive.failures.store.index_reader import AnswerCache


def test_an_answer_is_found_once() -> None:
    known: AnswerCache[int] = AnswerCache(2)
    found = [1, 2]
    assert [known.of("a", lambda: found.pop()) for _ in range(3)] == [2, 2, 2]


def test_the_one_that_nobody_has_asked_for_goes_first() -> None:
    known: AnswerCache[str] = AnswerCache(2)
    for name in ("a", "b", "a", "c"):
        assert known.of(name, lambda name=name: name) == name  # type: ignore[misc]
    assert known.of("a", lambda: "anew") == "a"
    assert known.of("b", lambda: "anew") == "anew"
