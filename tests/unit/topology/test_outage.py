"""Which errors mean an outage, and which outage."""

import pytest

from redrive.errors import ConfigurationError, DependencyDown, GiveUp, InvalidMessage
from redrive.topology.backoff import Delays, Exponential
from redrive.topology.outage import Outage, outage_of, outages_of

BILLING = Outage(on=(ConnectionError, TimeoutError), probe="5s", name="billing")
MAIL = Outage(on=lambda error: "smtp" in str(error), name="mail")


def test_the_first_outage_that_an_error_matches_is_the_one() -> None:
    assert outage_of([ConnectionRefusedError()], (BILLING, MAIL)) is BILLING
    assert outage_of([ValueError("smtp")], (BILLING, MAIL)) is MAIL
    assert outage_of([ValueError()], (BILLING, MAIL)) is None


@pytest.mark.parametrize("final", [GiveUp(), InvalidMessage("no JSON")])
def test_a_message_that_is_given_up_or_invalid_is_no_outage(final: Exception) -> None:
    assert outage_of([ConnectionError(), final], (BILLING,)) is None


def test_a_handler_may_name_an_outage_that_is_known() -> None:
    assert outage_of([DependencyDown("503", "mail")], (BILLING, MAIL)) is MAIL


def test_a_handler_may_name_any_other_which_has_the_delays_of_the_first() -> None:
    found = outage_of([DependencyDown("503", "stock")], (BILLING, MAIL))
    assert found is not None
    assert (found.name, found.probe) == ("stock", Delays(["5s"]))


def test_a_handler_need_not_name_it() -> None:
    found = outage_of([DependencyDown()], ())
    assert found is not None
    assert (found.name, found.probe) == ("a dependency", Exponential("1s", cap="30s", jitter=0.2))
    assert str(DependencyDown()) == "a dependency is down"
    assert str(DependencyDown("503")) == "503"
    with pytest.raises(ConfigurationError):
        DependencyDown(dependency=5)  # type: ignore[arg-type]


def test_its_name_is_by_default_that_of_its_errors() -> None:
    def is_away(error: BaseException) -> bool:
        return False

    assert Outage(on=ConnectionError).name == "ConnectionError"
    assert Outage(on=(ConnectionError, TimeoutError)).name == "ConnectionError, TimeoutError"
    assert Outage(on=is_away).name == "is_away"
    assert Outage().name == "a dependency"


@pytest.mark.parametrize(
    "options",
    [
        {"on": "ConnectionError"},
        {"on": (5,)},
        {"on": ExceptionGroup},
        {"on": 5},
        {"name": 5},
        {"name": "n" * 101},
        {"probe": "30m"},
        {"probe": "0s"},
    ],
)
def test_what_is_no_outage_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Outage(**options)  # type: ignore[arg-type]


def test_a_subscriber_has_none_one_or_several_with_a_name_each() -> None:
    assert outages_of(None) == ()
    assert outages_of(BILLING) == (BILLING,)
    assert outages_of([BILLING, MAIL]) == (BILLING, MAIL)
    for wrong in (ConnectionError, [ConnectionError], [BILLING, BILLING]):
        with pytest.raises(ConfigurationError):
            outages_of(wrong)  # type: ignore[arg-type]
