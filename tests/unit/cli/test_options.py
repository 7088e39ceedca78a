"""Options that commands share: objects that typer gets as single options, and where the management
API is."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from redrive.cli import options
from redrive.cli.environment import management_url_for
from redrive.cli.job_options import RecordedJobOptions
from redrive.cli.options import BrokerOptions, FamilyOptions, expanded

PROD, STAGING = "amqp://u:p@prod:5672/", "amqp://u:p@staging:5672/"
MANAGEMENT = "http://prod:15672"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    colour: Annotated[str, typer.Option("--colour")] = "red"
    coats: Annotated[int, typer.Option("--coats")] = 1


def test_a_command_gets_the_object_that_its_options_make() -> None:
    seen: list[object] = []

    @expanded
    def command(wall: str, *, paint: Paint, dry: bool = False) -> None:
        seen.extend((wall, paint, dry))

    command(wall="north", colour="blue", coats=2, dry=True)
    assert seen == ["north", Paint(colour="blue", coats=2), True]


def test_the_options_stand_at_the_place_of_their_object() -> None:
    @expanded
    def command(wall: str, *, paint: Paint, dry: bool = False) -> None: ...

    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["wall", "colour", "coats", "dry"]
    assert (parameters["colour"].default, parameters["coats"].default) == ("red", 1)


def test_the_family_of_a_command_has_the_suffixes_that_were_given() -> None:
    family = FamilyOptions(exchange="orders", retry_suffix="@retry", failed_suffix="@failed").family
    assert (family.main, family.retry, family.failed) == ("orders", "orders@retry", "orders@failed")


def test_each_option_of_a_family_can_be_left_to_the_job() -> None:
    assert RecordedJobOptions() == RecordedJobOptions(
        exchange=None, retry_suffix=None, failed_suffix=None
    )
    assert BrokerOptions().url == options.DEFAULT_URL


@pytest.mark.parametrize(
    ("url", "given", "from_environment", "expected"),
    [
        (PROD, MANAGEMENT, True, MANAGEMENT),
        ("amqp://other:user@prod:5672/shop", MANAGEMENT, True, MANAGEMENT),
        (STAGING, MANAGEMENT, True, None),
        (STAGING, MANAGEMENT, False, MANAGEMENT),
        (PROD, None, False, None),
    ],
    ids=["its broker", "another login", "another broker", "named", "not given"],
)
def test_the_management_api_of_the_environment_is_that_of_its_broker_alone(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    given: str | None,
    from_environment: bool,
    expected: str | None,
) -> None:
    monkeypatch.setenv(options.URL_VARIABLE, PROD)
    assert management_url_for(url, given, from_environment=from_environment) == expected


def test_a_management_api_without_a_broker_in_the_environment_is_that_of_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(options.URL_VARIABLE, raising=False)
    assert management_url_for(STAGING, MANAGEMENT, from_environment=True) == MANAGEMENT
