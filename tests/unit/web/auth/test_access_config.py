"""From where a console may be reached, and how people come in."""

from pathlib import Path

import pytest

from redrive.errors import ConfigurationError
from redrive.web.auth.access_config import (
    AccessConfig,
    ListenAddress,
    Login,
    header_named,
    hosts_named,
    networks_of,
)

PROXY = networks_of(["10.0.0.0/24"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8015", "http://127.0.0.1:8015"),
        ("localhost:0", "http://localhost:0"),
        ("[::1]:65535", "http://[::1]:65535"),
    ],
)
def test_it_listens_on_the_loopback(text: str, address: str) -> None:
    place = ListenAddress.of(text)
    assert place.address(place.port) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:8015", "[::]:8015", "192.168.1.2:8015", "broker.example:8015"]
)
def test_without_a_login_nobody_else_can_reach_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="has no login"):
        ListenAddress.of(text)


@pytest.mark.parametrize("text", ["", "8015", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", ":1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a host and port"):
        ListenAddress.of(text)


def test_passwords_do_not_pass_unencrypted() -> None:
    with pytest.raises(ConfigurationError, match="unencrypted") as told:
        ListenAddress.of("192.168.1.2:8015", AccessConfig(login=Login.BROKER))
    assert "--certfile" in told.value.remedy
    assert "--trusted-proxy" in told.value.remedy


def test_with_a_login_and_tls_or_a_proxy_it_listens_anywhere() -> None:
    own = AccessConfig(login=Login.BROKER, certfile=Path("console.pem"))
    behind = AccessConfig(login=Login.BROKER, trusted_proxies=PROXY)
    for access in (own, behind):
        assert not ListenAddress.of("192.168.1.2:8015", access).is_loopback


def test_where_it_listens_on_all_addresses_its_name_has_to_be_said() -> None:
    access = AccessConfig(login=Login.BROKER, certfile=Path("console.pem"))
    with pytest.raises(ConfigurationError, match="a host name is needed") as told:
        ListenAddress.of("0.0.0.0:8443", access)
    assert "--host" in told.value.remedy


def test_it_is_asked_for_by_the_names_of_this_machine_with_its_port() -> None:
    hosts = ListenAddress.of("127.0.0.1:0").allowed_hosts(8015, AccessConfig())
    assert hosts == {"127.0.0.1:8015", "localhost:8015", "[::1]:8015"}


def test_it_is_asked_for_by_names_that_were_given() -> None:
    access = AccessConfig(
        login=Login.BROKER,
        certfile=Path("console.pem"),
        hosts=hosts_named(["Console.Example", "console.example:443"]),
    )
    hosts = ListenAddress.of("0.0.0.0:8443", access).allowed_hosts(8443, access)
    assert hosts == {"console.example", "console.example:8443", "console.example:443"}


@pytest.mark.parametrize("text", ["", "a b", "https://console.example", "a/b", "a:b", "a\r\nb"])
def test_what_is_no_name_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a host name"):
        hosts_named([text])


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "proxy.example"])
def test_what_is_no_address_of_a_proxy_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a proxy address"):
        networks_of([text])


@pytest.mark.parametrize("text", ["", "Host", "Cookie", "X-Forwarded-For", "Sec-User", "a b", "a:"])
def test_what_says_something_else_says_nobodys_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a header"):
        header_named(text)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trust_header": "x-user"}, "a different one"),
        ({"trust_header": "x-user", "login": Login.PROXY}, "anybody could set"),
        ({"login": Login.PROXY}, "a different one"),
        ({"trust_header": "x-user", "login": Login.BROKER}, "a different one"),
        ({"keyfile": Path("key.pem")}, "needs a certificate"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AccessConfig(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "is_proxy"),
    [("10.0.0.7", True), ("::ffff:10.0.0.7", True), ("10.0.1.7", False), ("", False)],
)
def test_the_word_of_the_named_addresses_counts(address: str, is_proxy: bool) -> None:
    assert AccessConfig(trusted_proxies=PROXY).is_proxy(address) is is_proxy
