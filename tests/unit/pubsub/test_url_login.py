"""The address of a broker for another user."""

import pytest

from redrive.pubsub.url import BrokerURL, url_with_login


@pytest.mark.parametrize(
    "url",
    [
        "amqp://broker",
        "amqp://guest:guest@broker/shop?heartbeat=30",
        "amqps://one,two:5671/%2F?cacertfile=/etc/ca.pem&auth_mechanism=external",
        "amqp://[::1]:5673/",
    ],
)
def test_all_but_the_login_stays(url: str) -> None:
    former = BrokerURL.parse(url)
    found = BrokerURL.parse(url_with_login(url, "al:ice@x/?", "p@ss/w#ö?&"))
    assert (found.username, found.password) == ("al:ice@x/?", "p@ss/w#ö?&")
    assert found.auth_mechanism == "plain"
    assert (found.endpoints, found.virtual_host, found.tls, found.heartbeat, found.tls_options) == (
        former.endpoints,
        former.virtual_host,
        former.tls,
        former.heartbeat,
        former.tls_options,
    )
