"""What a wrong address gets: an error of its own, in a line or two, and no password anywhere."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from canned_server import START, TUNE, CannedServer
from contract.support import assert_it_helps
from redrive import (
    BrokerUnavailable,
    ConfigurationError,
    FailedQueue,
    PermissionDenied,
    Publisher,
    RedriveError,
    Subscriber,
)
from redrive.testing import Proxy
from waiting import DEADLINE

SECRET = "s3cr3t-p4ss"

Use = Callable[[str], object]


def publish(url: str) -> None:
    """Publishes to an address."""
    with Publisher(url, timeout=DEADLINE) as publisher:
        publisher.publish("socks", "order.paid")


def subscribe(url: str) -> None:
    """Subscribes at an address."""
    subscriber = Subscriber(url, "shop@orders", patience=timedelta(0))
    subscriber.handler(lambda message: None)
    subscriber.run()


def declare(url: str) -> None:
    """Declares at an address."""
    Subscriber(url, "shop@orders").declare()


def look(url: str) -> None:
    """Looks at a failed queue at an address."""
    list(FailedQueue(url, "shop@orders").browse())


each_use = pytest.mark.parametrize("use", [publish, subscribe, declare, look])


@pytest.fixture(autouse=True)
def _no_secret_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert SECRET not in caplog.text


def refused(use: Use, url: str) -> RedriveError:
    """The error that using an address ends in."""
    with pytest.raises(RedriveError) as told:
        use(url)
    assert SECRET not in repr(told.value)
    assert SECRET not in str(told.value)
    # Nor may a traceback show it: whoever prints the error prints its causes.
    cause: BaseException | None = told.value
    while cause is not None:
        assert SECRET not in f"{cause!r}{cause}"
        cause = cause.__cause__ or cause.__context__
    return told.value


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (f"http://shop:{SECRET}@localhost/", "does not begin with amqp:// or amqps://"),
        (f"shop:{SECRET}@localhost", "does not begin with amqp:// or amqps://"),
        ("", "does not begin with amqp:// or amqps://"),
        (f"amqp://shop:{SECRET}@/", "no host"),
        (f"amqp://shop:{SECRET}@localhost:many/", "the port 'many'"),
        (f"amqp://shop:{SECRET}@localhost:70000/", "the port '70000'"),
        (f"amqp://shop:{SECRET}@localhost/?heartbeat=often", "heartbeat='often'"),
        (f"amqp://shop:{SECRET}@localhost/?hartbeat=5", "'hartbeat'"),
        (
            f"amqps://shop:{SECRET}@localhost/?cacertfile=/not/there.pem",
            "the cacertfile '/not/there.pem'",
        ),
    ],
)
@each_use
def test_an_address_that_cannot_be_read_says_which_part(use: Use, url: str, found: str) -> None:
    error = refused(use, url)

    assert type(error) is ConfigurationError
    assert_it_helps(error, found, secret=SECRET)


@each_use
def test_a_host_that_nobody_knows_is_named(use: Use) -> None:
    error = refused(use, f"amqp://shop:{SECRET}@nowhere.invalid/")

    assert type(error) is BrokerUnavailable
    assert_it_helps(error, "nowhere.invalid", "Check", secret=SECRET)


@each_use
def test_a_port_that_nobody_listens_at_is_named(use: Use, rabbitmq_url: str) -> None:
    with Proxy(rabbitmq_url) as proxy:
        proxy.refuse()
        port = proxy.url.rpartition("/")[0].rpartition(":")[2]
        error = refused(use, f"amqp://shop:{SECRET}@127.0.0.1:{port}/")

    assert type(error) is BrokerUnavailable
    assert_it_helps(error, f"127.0.0.1:{port}", "connection refused", secret=SECRET)


@each_use
def test_a_port_where_something_else_answers_is_named(use: Use) -> None:
    with CannedServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = refused(use, f"amqp://shop:{SECRET}@127.0.0.1:{port}/?connection_timeout=2000")

    assert type(error) is BrokerUnavailable
    assert_it_helps(error, f"127.0.0.1:{port}", secret=SECRET)


@each_use
def test_a_load_balancer_that_has_no_broker_is_not_taken_for_another_protocol(use: Use) -> None:
    with CannedServer(listens=True) as port:
        error = refused(use, f"amqp://shop:{SECRET}@127.0.0.1:{port}/")

    assert type(error) is BrokerUnavailable
    assert_it_helps(error, f"127.0.0.1:{port}", "load balancer", secret=SECRET)


@each_use
def test_a_password_that_is_wrong_is_not_repeated(use: Use, rabbitmq_url: str) -> None:
    error = refused(use, rabbitmq_url.replace("guest:guest@", f"guest:{SECRET}@"))

    assert type(error) is PermissionDenied
    assert_it_helps(error, "refused the user 'guest' or the password", secret=SECRET)


@each_use
def test_a_user_that_nobody_knows_is_named(use: Use, rabbitmq_url: str) -> None:
    error = refused(use, rabbitmq_url.replace("guest:guest@", f"nobody:{SECRET}@"))

    assert type(error) is PermissionDenied
    assert_it_helps(error, "refused the user 'nobody' or the password", secret=SECRET)


@each_use
def test_a_virtual_host_that_is_not_there_is_named(use: Use, rabbitmq_url: str) -> None:
    error = refused(use, f"{rabbitmq_url.rpartition('/')[0]}/no-such-place")

    assert type(error) is PermissionDenied
    assert_it_helps(error, "no virtual host 'no-such-place'", "rabbitmqctl add_vhost")


@pytest.mark.parametrize("said", [[START], [START, TUNE]], ids=["login", "virtual host"])
@each_use
def test_a_wire_that_is_cut_while_a_connection_is_opened_is_not_taken_for_a_refusal(
    use: Use, said: list[bytes]
) -> None:
    with CannedServer(*said, listens=True) as port:
        error = refused(use, f"amqp://shop:{SECRET}@127.0.0.1:{port}/")

    assert type(error) is BrokerUnavailable
    assert_it_helps(error, f"127.0.0.1:{port}", "connection was lost", secret=SECRET)


@pytest.mark.parametrize(
    "thing",
    [
        lambda url: Publisher(url),
        lambda url: Subscriber(url, "shop@orders"),
        lambda url: FailedQueue(url, "shop@orders"),
    ],
    ids=["publisher", "subscriber", "failed queue"],
)
def test_nothing_that_is_printed_shows_the_password(thing: Callable[[str], object]) -> None:
    made = thing(f"amqp://shop:{SECRET}@localhost/orders")

    assert SECRET not in f"{made!r}{made}"
    assert "shop@localhost:5672/orders" in repr(made)
