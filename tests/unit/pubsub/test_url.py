"""What a broker's URL says, and what it can't."""

import pytest

from redrive.errors import ConfigurationError
from redrive.pubsub.url import BrokerURL, Endpoint, client_properties, policy_of


def refusal(url: str) -> str:
    """Why a URL is refused."""
    with pytest.raises(ConfigurationError) as told:
        BrokerURL.parse(url)
    return str(told.value)


def test_every_part_of_a_url_is_read() -> None:
    url = BrokerURL.parse(
        "amqps://us%40er:p%2Fw%3A@one:1,[::1]:2,three/v%2Fh?heartbeat=5&connection_timeout=1500&verify=verify_none"
    )

    assert url == BrokerURL(
        (Endpoint("one", 1), Endpoint("::1", 2), Endpoint("three", 5671)),
        "us@er",
        "p/w:",
        "v/h",
        tls=True,
        heartbeat=5,
        connection_timeout=1.5,
        tls_options=(("verify", "verify_none"),),
    )


@pytest.mark.parametrize(
    "option",
    [
        "cacertfile=/ca.pem",
        "certfile=/c.pem",
        "keyfile=/k.pem",
        "verify=verify_peer",
        "server_name_indication=h",
    ],
)
def test_an_option_of_tls_without_tls_is_refused(option: str) -> None:
    assert "amqp:// is not encrypted" in refusal(f"amqp://localhost/?{option}")


@pytest.mark.parametrize(
    "value", ["verify-none", "none", "false", "verify_fail_if_no_peer_cert", ""]
)
def test_an_unknown_value_of_verify_is_refused(value: str) -> None:
    assert f"verify={value!r}" in refusal(f"amqps://localhost/?verify={value}")


def test_a_key_without_its_certificate_is_refused() -> None:
    assert "a keyfile and no certfile" in refusal("amqps://localhost/?keyfile=/k.pem")


def test_a_login_by_certificate_has_neither_user_nor_password() -> None:
    url = BrokerURL.parse("amqps://rabbit/prod?auth_mechanism=external&certfile=/c.pem")

    assert (url.auth_mechanism, url.username, url.password) == ("external", "", "")
    assert str(url) == "amqps://rabbit:5671/prod"


@pytest.mark.parametrize("name", ["external", "EXTERNAL"])
def test_the_mechanism_is_read_in_either_case(name: str) -> None:
    assert BrokerURL.parse(f"amqps://rabbit/?auth_mechanism={name}").auth_mechanism == "external"


def test_a_mechanism_that_is_not_known_is_refused() -> None:
    assert "auth_mechanism='amqplain'" in refusal("amqps://rabbit/?auth_mechanism=amqplain")


def test_a_login_by_certificate_without_tls_is_refused() -> None:
    assert "amqp:// shows no certificate" in refusal("amqp://rabbit/?auth_mechanism=external")


def test_a_password_beside_a_login_by_certificate_is_refused() -> None:
    assert "a password and auth_mechanism=external" in refusal(
        "amqps://u:p@rabbit/?auth_mechanism=external"
    )


@pytest.mark.parametrize("number", ["²", "٣", "-1", "1.5"])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    assert "heartbeat=" in refusal(f"amqp://rabbit/?heartbeat={number}")
    assert "the port" in refusal(f"amqp://u:p@rabbit:{number}/")


def test_a_connection_tells_the_policy_of_each_queue() -> None:
    told = client_properties("worker", policies={"shop@orders": "no retry"})

    assert (policy_of(told, "shop@orders"), policy_of(told, "shop@users")) == ("no retry", None)


def test_policies_that_could_break_the_first_frame_are_not_told() -> None:
    many = {f"shop@{number}": "3 retries" for number in range(1000)}

    assert client_properties("worker", policies=many) == client_properties("worker")
