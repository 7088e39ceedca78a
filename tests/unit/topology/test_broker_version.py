import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.broker_version import NEWEST, BrokerVersion


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.10.8", BrokerVersion(3, 10, 8)),
        ("4.0.5", BrokerVersion(4, 0, 5)),
        ("3.13.0-rc.1", BrokerVersion(3, 13, 0)),
        ("4.1", BrokerVersion(4, 1, 0)),
        ("3.12.1+6.g1234", BrokerVersion(3, 12, 1)),
    ],
)
def test_a_version_is_read_from_the_text_of_the_broker(text: str, version: BrokerVersion) -> None:
    assert BrokerVersion.parse(text) == version


@pytest.mark.parametrize("text", ["", "unknown", "4", None, 4.0, b"4.0.5", "v4.0.5"], ids=repr)
def test_an_unreadable_version_counts_as_the_newest(text: object) -> None:
    assert BrokerVersion.parse(text) == NEWEST


@given(st.one_of(st.text(), st.from_regex(r"\A\d{1,9}\.\d{1,9}")))
def test_no_text_makes_reading_a_version_raise(text: str) -> None:
    assert isinstance(BrokerVersion.parse(text), BrokerVersion)


@pytest.mark.parametrize(
    ("version", "continues"),
    [
        ("3.8.0", True),
        ("3.10.8", True),
        ("3.12.14", True),
        ("3.13.0", False),
        ("3.13.2", False),
        ("3.13.3", True),
        ("3.13.7", True),
        ("4.0.0", False),
        ("4.0.5", False),
        ("4.3.6", False),
        ("unknown", False),
    ],
)
def test_which_versions_go_on_counting_in_the_x_death_of_a_client(
    version: str, continues: bool
) -> None:
    assert BrokerVersion.parse(version).continues_client_x_death is continues


@pytest.mark.parametrize(
    ("version", "has"), [("3.9.29", False), ("3.10.0", True), ("4.3.6", True), ("unknown", True)]
)
def test_which_versions_dead_letter_at_least_once(version: str, has: bool) -> None:
    assert BrokerVersion.parse(version).has_at_least_once_dead_lettering is has


@pytest.mark.parametrize(
    ("version", "limit"),
    [("3.10.8", None), ("3.13.7", None), ("4.0.0", 20), ("4.3.6", 20), ("unknown", 20)],
)
def test_which_versions_delete_from_a_queue_that_sets_no_limit(
    version: str, limit: int | None
) -> None:
    assert BrokerVersion.parse(version).deletes_after_deliveries == limit


@pytest.mark.parametrize("text", ["3.10.8", "4.0.0"])
def test_a_version_is_printed_as_the_broker_prints_it(text: str) -> None:
    assert str(BrokerVersion.parse(text)) == text


def test_versions_are_ordered_by_number_and_not_by_text() -> None:
    assert (
        BrokerVersion(3, 9)
        < BrokerVersion(3, 10)
        < BrokerVersion(3, 10, 8)
        < BrokerVersion(4, 0)
        < NEWEST
    )


@pytest.mark.parametrize(
    ("version", "may"),
    [
        ("3.10.8", True),
        ("3.10.19", True),
        ("3.10.20", False),
        ("3.11.0", True),
        ("3.11.11", True),
        ("3.11.12", False),
        ("3.12.0", False),
        ("4.3.6", False),
    ],
)
def test_which_versions_may_stop_dead_lettering(version: str, may: bool) -> None:
    assert BrokerVersion.parse(version).may_stop_dead_lettering is may


def test_a_series_stands_for_its_newest_version() -> None:
    named = BrokerVersion.named("4.3")
    assert named > BrokerVersion(4, 3, 99)
    assert str(named) == "4.3"
    assert not named.wedges_single_active_consumers
    assert str(BrokerVersion.named("3.13.7")) == "3.13.7"


@pytest.mark.parametrize("text", ["", "4", "four", "4.3-rc1", "4.3.6.1", " 4.3"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a version of RabbitMQ"):
        BrokerVersion.named(text)
