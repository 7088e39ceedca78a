"""How old a look may be, how that is given, and in which words it is told."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.cli.index_options import IndexOptions, ago, since_then, when
from redrive.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "age"),
    [("15m", timedelta(minutes=15)), ("2h", timedelta(hours=2)), ("off", None), ("OFF ", None)],
)
def test_an_age_is_a_duration_or_off(text: str, age: timedelta | None) -> None:
    assert IndexOptions(index=text).most_age == age


@pytest.mark.parametrize("text", ["", "never", "-1h", "15 parsecs"])
def test_what_is_no_age_is_said_with_where_it_may_stand(text: str) -> None:
    with pytest.raises(ConfigurationError, match="REDRIVE_INDEX"):
        _ = IndexOptions(index=text).most_age


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 seconds ago"), (1.5, "1 second ago"), (119, "1 minute ago"), (7300, "2 hours ago")],
)
def test_an_age_is_told_in_words(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_what_came_or_went_is_told() -> None:
    assert since_then(0) == ""
    assert since_then(12) == " The queue has 12 more now."
    assert since_then(-1200) == " The queue has 1,200 fewer now."


def test_a_look_of_another_day_is_told_with_its_day() -> None:
    assert when(datetime(2024, 5, 17, 8, 30, 15, tzinfo=UTC)) == "2024-05-17 08:30:15 UTC"
