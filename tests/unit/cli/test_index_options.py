"""How old a look may be, and how that is given."""

from datetime import timedelta

import pytest

from redrive.cli.index_options import IndexOptions
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
