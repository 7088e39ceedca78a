"""In which words it is told that an earlier look answers."""

from datetime import UTC, datetime, timedelta

from redrive.cli.look_output import in_words_of_before
from redrive.failures.store.look import Look


def before(seconds: float = 60.5, now: int | None = 40, problem: str = "") -> Look:
    """A look at forty messages that was made so long ago."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    return Look("a@failed", "index", 40, 40, as_of=moment, depth_now=now, depth_problem=problem)


def test_an_age_is_told_in_words() -> None:
    assert "(2 hours ago), 40 messages; --fresh looks again." in in_words_of_before(before(7300))


def test_what_came_or_went_is_told() -> None:
    assert in_words_of_before(before(now=40)).endswith("--fresh looks again.")
    assert in_words_of_before(before(now=52)).endswith(" The queue has 12 more now.")
    assert in_words_of_before(before(now=38)).endswith(" The queue has 2 fewer now.")


def test_that_the_depth_is_unknown_is_told_with_the_reason() -> None:
    assert in_words_of_before(before(now=None, problem="no broker at h:1")).endswith(
        " How many are in it now is unknown: no broker at h:1"
    )


def test_a_look_of_another_day_is_told_with_its_day() -> None:
    look = Look("a@failed", "index", as_of=datetime(2024, 5, 17, 8, 30, 15, tzinfo=UTC))
    assert in_words_of_before(look).startswith("From the look of 2024-05-17 08:30:15 UTC")
