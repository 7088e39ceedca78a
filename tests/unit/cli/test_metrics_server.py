import socket

import httpx
import pytest

from redrive.cli.metrics_server import MetricsAddress, place_of, serving
from redrive.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (":9464", MetricsAddress("", 9464)),
        ("127.0.0.1:9464", MetricsAddress("127.0.0.1", 9464)),
        ("localhost:9464", MetricsAddress("localhost", 9464)),
        ("[::1]:9464", MetricsAddress("::1", 9464)),
        ("[::]:9464", MetricsAddress("::", 9464)),
    ],
)
def test_a_place_is_a_host_and_a_port(text: str, place: MetricsAddress) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["::1:9464", "[::1]", "[::1:9464", "[localhost]:9464", "::9464"])
def test_an_ipv6_address_stands_in_brackets(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"is not a host and port to serve metrics at\n.* or \[::1\]:9464"
    ):
        place_of(text)


@pytest.mark.parametrize("host", ["", "::", "127.0.0.1", "localhost"])
def test_metrics_are_served_at_every_kind_of_address(host: str) -> None:
    # :: takes IPv4 too, and is there where a machine has no IPv6 address of its own.
    with serving(MetricsAddress(host, 0), []) as port, httpx.Client(trust_env=False) as client:
        assert client.get(f"http://127.0.0.1:{port}/health").status_code == 200


@pytest.mark.parametrize(
    ("host", "shown"), [("192.0.2.1", "192.0.2.1:9464"), ("2001:db8::1", r"\[2001:db8::1\]:9464")]
)
def test_a_host_that_is_none_of_this_machine_is_said(host: str, shown: str) -> None:
    with (
        pytest.raises(
            ConfigurationError,
            match=f"can't be served at {shown}: .*\nGive an address of this machine",
        ),
        serving(MetricsAddress(host, 9464), []),
    ):
        raise AssertionError("it serves")


def test_a_port_in_use_comes_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match="Give another port"),
            serving(MetricsAddress("127.0.0.1", port), []),
        ):
            raise AssertionError("it serves")
