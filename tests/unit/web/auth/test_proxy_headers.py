"""What a proxy says of a request, and of whom it is believed."""

import pytest
from starlette.types import Scope

from redrive.web.auth.access_config import AccessConfig, Login, networks_of
from redrive.web.auth.proxy_headers import UntrustedHeader, believed

REACH = AccessConfig(
    login=Login.PROXY, trusted_proxies=networks_of(["10.0.0.0/24"]), trust_header="x-user"
)


def request(peer: str | None, *headers: tuple[str, str]) -> Scope:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    client = None if peer is None else (peer, 1234)
    own = (b"host", b"inside:8015")
    return {"type": "http", "scheme": "http", "client": client, "headers": [own, *raw]}


def test_the_proxy_says_who_it_is_and_how_it_came() -> None:
    seen, user = believed(
        request(
            "10.0.0.7",
            ("x-user", "alice"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "console.example"),
            ("x-forwarded-for", "192.0.2.1"),
        ),
        REACH,
    )
    assert user == "alice"
    assert seen["scheme"] == "https"
    assert dict(seen["headers"])[b"host"] == b"console.example"
    assert seen["client"][0] == "192.0.2.1"


@pytest.mark.parametrize("peer", ["192.0.2.1", "", None])
def test_nobody_else_says_how_it_came(peer: str | None) -> None:
    scope = request(peer, ("x-forwarded-proto", "https"), ("x-forwarded-host", "evil.example"))
    assert believed(scope, REACH) == (scope, "")


@pytest.mark.parametrize("peer", ["192.0.2.1", None])
def test_nobody_else_says_who_it_is(peer: str | None) -> None:
    with pytest.raises(UntrustedHeader, match="only the proxy may name the user"):
        believed(request(peer, ("x-user", "alice")), REACH)


def test_of_the_addresses_that_it_passed_the_last_that_is_no_proxy_counts() -> None:
    scope = request(
        "10.0.0.7", ("x-forwarded-for", "1.2.3.4, 192.0.2.1"), ("x-forwarded-for", "10.0.0.9")
    )
    seen, _ = believed(scope, REACH)
    assert seen["client"][0] == "192.0.2.1"


@pytest.mark.parametrize(
    "headers",
    [
        [("x-user", "alice"), ("x-user", "bob")],
        [("x-forwarded-proto", "http"), ("x-forwarded-proto", "https")],
        [("x-forwarded-proto", "javascript")],
        [("x-user", "a\x00b")],
        [("x-user", "\xff")],
        [("x-user", "x" * 256)],
    ],
)
def test_what_is_said_twice_or_can_not_be_is_not_believed(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(UntrustedHeader):
        believed(request("10.0.0.7", *headers), REACH)
