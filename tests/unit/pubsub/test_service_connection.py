"""What redrive takes from a connection of aio-pika's that a service has."""

import asyncio
import ssl

import pytest
from aio_pika import Connection
from aio_pika.connection import make_url
from yarl import URL

from redrive.errors import ConfigurationError
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.service_connection import broker_of
from redrive.pubsub.url import BrokerURL


def connection_to(url: URL, context: ssl.SSLContext | None = None) -> Connection:
    """A connection as it is before it connects."""

    async def make() -> Connection:
        return Connection(url, ssl_context=context)

    return asyncio.run(make())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("amqp://localhost", "amqp://localhost"),
        (
            "amqp://shop:p%40ss%2Fword@mq:5673/team%2Fone",
            "amqp://shop:p%40ss%2Fword@mq:5673/team%2Fone",
        ),
        ("amqp://shop:secret@[::1]/", "amqp://shop:secret@[::1]/"),
        ("amqp://mq//", "amqp://mq/%2F"),
        ("amqp://mq/?heartbeat=7&name=orders&reconnect_interval=3", "amqp://mq/?heartbeat=7"),
        (
            "amqps://mq/?cafile=/etc/ca.pem&certfile=/c.pem&keyfile=/k.pem",
            "amqps://mq/?cacertfile=/etc/ca.pem&certfile=/c.pem&keyfile=/k.pem",
        ),
        ("amqps://mq/?no_verify_ssl=1", "amqps://mq/?verify=verify_none"),
        ("amqps://mq/?no_verify_ssl=0", "amqps://mq/"),
        (
            "amqps://mq/?auth=EXTERNAL&certfile=/c.pem&keyfile=/k.pem",
            "amqps://mq/?auth_mechanism=external&certfile=/c.pem&keyfile=/k.pem",
        ),
        ("amqp://mq/?cafile=/etc/ca.pem", "amqp://mq/"),
    ],
)
def test_it_is_the_same_broker_user_and_certificates(theirs: str, ours: str) -> None:
    assert broker_of(connection_to(URL(theirs))) == (BrokerURL.parse(ours), None)


def test_what_was_given_in_parts_is_the_same() -> None:
    url = make_url(host="mq", port=5671, login="shop", password="a/b", virtualhost="team", ssl=True)
    assert broker_of(connection_to(url))[0] == BrokerURL.parse("amqps://shop:a%2Fb@mq/team")


def test_its_tls_context_is_used() -> None:
    context = ssl.create_default_context()
    access = BrokerAccess(connection_to(URL("amqps://mq/"), context), "test")
    assert access.tls() is context


def test_a_context_of_ones_own_comes_first() -> None:
    theirs, mine = ssl.create_default_context(), ssl.create_default_context()
    access = BrokerAccess(connection_to(URL("amqps://mq/"), theirs), "test", ssl_context=mine)
    assert access.tls() is mine


@pytest.mark.parametrize("option", ["capath", "cadata"])
def test_certificates_that_a_url_of_ours_can_not_name_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option}.*\n.*ssl_context"):
        broker_of(connection_to(URL(f"amqps://mq/?{option}=x")))


@pytest.mark.parametrize("address", [None, 7, object(), ["amqp://localhost"]])
def test_what_is_neither_a_url_nor_a_connection_is_refused(address: object) -> None:
    with pytest.raises(ConfigurationError, match="not a broker address"):
        broker_of(address)  # type: ignore[arg-type]
