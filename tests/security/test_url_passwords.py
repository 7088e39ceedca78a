"""Attempts to have a part of a password shown by the error of the URL that it stands in."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.url import BrokerURL, Endpoint

SECRET = "S3cretPw"

# Letters that no text of ours has, and every character that means something in a URL.
passwords = st.text(alphabet="ŽÝQXZ7840/?#@:%&=[],;+.~ ", min_size=1, max_size=24)


def parts_of(password: str, length: int = 4) -> set[str]:
    """Every run of so many characters in a password."""
    return {password[start : start + length] for start in range(len(password) - length + 1)}


def assert_shows_nothing(error: BaseException, password: str) -> None:
    """Neither an error, nor what it was raised from, has a part of a password in it."""
    cause: BaseException | None = error
    while cause is not None:
        text = f"{cause}{cause!r}"
        assert not [part for part in parts_of(password) if part in text]
        cause = cause.__cause__ or cause.__context__


@pytest.mark.parametrize(
    "url",
    [
        f"amqp://svc:{SECRET}/1@rabbit/prod",
        f"amqp://svc:geheim/{SECRET}@rabbit/prod",
        f"amqp://svc:geheim?{SECRET}=1@rabbit/prod",
        f"amqp://u:a?{SECRET}@h/",
        f"amqp://u:a#/{SECRET}@h/",
        f"amqp://u:a@b/{SECRET}@h/",
        f"amqp://u:5671/{SECRET}@h/v",
        f"amqp://u:5671?heartbeat={SECRET}@h/v",
        f"amqp://u:{SECRET}",
        f"amqp://u:{SECRET}/",
        f"amqp://u:a,b:{SECRET}",
        f"amqp://u:5671/v?{SECRET}",
        f"amqps://u:²{SECRET}/",
        f"ampq://u:{SECRET}@h/v",
        f"amqp:/u:{SECRET}@h/v",
        f"u:{SECRET}",
        f"u:a@{SECRET}@h",
    ],
)
def test_a_url_whose_password_is_not_encoded_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        BrokerURL.parse(url)

    assert_shows_nothing(told.value, SECRET)


@pytest.mark.parametrize("character", "/?")
def test_what_is_to_be_encoded_and_how_is_said(character: str) -> None:
    with pytest.raises(ConfigurationError, match="Percent-encode") as told:
        BrokerURL.parse(f"amqp://svc:{SECRET}{character}1@rabbit/prod")

    assert "/ as %2F, ? as %3F" in told.value.remedy


@given(passwords)
@example("5671/QXZ7")
@example("QXZ7?840")
@example("²")
def test_a_password_is_read_right_or_not_shown(password: str) -> None:
    try:
        url = BrokerURL.parse(f"amqp://app:{password}@rabbit.example:5680/prod")
    except ConfigurationError as error:
        assert_shows_nothing(error, password)
    else:
        assert (url.endpoints, url.username, url.virtual_host) == (
            (Endpoint("rabbit.example", 5680),),
            "app",
            "prod",
        )
        assert not [part for part in parts_of(password) if part in str(url)]


@given(passwords, st.sampled_from(["amqp//", "http://", "amqp:", "", "amqps//:", "ŽÝ://"]))
def test_a_password_behind_a_mistyped_scheme_is_not_shown(password: str, scheme: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        BrokerURL.parse(f"{scheme}app:{password}@rabbit.example/prod")

    assert_shows_nothing(told.value, password)


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{SECRET}",
        f"http://u:5/{SECRET}@h",
        f"http://u:{SECRET}/1@h:15672",
        f"http://u:a?{SECRET}@h",
    ],
)
def test_a_management_address_that_cannot_be_read_shows_nothing_of_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        ManagementAPI("amqp://localhost/", url)

    assert SECRET not in str(told.value)
