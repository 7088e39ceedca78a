"""The broker's side of a connection, byte for byte: what no client should send costs it the
connection, and nobody else anything."""

from collections.abc import Mapping

import pytest

from redrive.amqp.frames import method_frame, publish_method
from redrive.testing.memory import method_arguments as encoded
from redrive.testing.memory.client_session import ClientSession
from redrive.testing.memory.virtual_host import VirtualHost
from redrive.topology.broker_version import BrokerVersion

CLOSE, CHANNEL_CLOSE = b"\0\x0a\0\x32", b"\0\x14\0\x28"


class OneHost:
    """A broker with one virtual host."""

    def __init__(self) -> None:
        self.version = "4.3.6"
        self.host = VirtualHost("/", BrokerVersion(4, 3, 6), lambda: 0.0)

    @property
    def virtual_hosts(self) -> Mapping[str, VirtualHost]:
        return {"/": self.host}

    def lets_in(self, username: str, password: str) -> bool:
        return (username, password) == ("guest", "guest")


class Connection:
    """A session with a channel, and what it has answered."""

    def __init__(self, login: bytes = b"\0guest\0guest", virtual_host: str = "/") -> None:
        self.answers: list[bytes] = []
        self.session = ClientSession(OneHost(), self.answers.append)
        start = encoded.long_bytes(b"") + encoded.text("PLAIN") + encoded.long_bytes(login)
        self.send(b"AMQP\0\0\x09\1")
        self.send(method_frame(0, 10, 11, start + encoded.text("en_US")))
        tune = encoded.short(0) + encoded.long(4096) + encoded.short(0)
        self.send(method_frame(0, 10, 31, tune))
        self.send(method_frame(0, 10, 40, encoded.text(virtual_host) + b"\0\0"))
        self.send(method_frame(1, 20, 10, b"\0"))

    def send(self, data: bytes) -> None:
        self.session.feed(data)

    @property
    def last(self) -> bytes:
        """The method that it sent last, and what comes with it."""
        return self.answers[-1][7:-1]


def test_a_connection_opens_byte_by_byte_as_well() -> None:
    answers: list[bytes] = []
    session = ClientSession(OneHost(), answers.append)
    for byte in b"AMQP\0\0\x09\1":
        assert answers == []
        session.feed(bytes((byte,)))
    assert answers[0][7:11] == b"\0\x0a\0\x0a"
    assert Connection().last[:4] == b"\0\x14\0\x0b"


def test_what_is_no_amqp_is_told_what_is_spoken_here() -> None:
    answers: list[bytes] = []
    session = ClientSession(OneHost(), answers.append)
    session.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert answers == [b"AMQP\0\0\x09\1"]
    assert session.is_over


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\1\0\1\0\0\x20\0", 501),  # larger than was agreed on
        (b"\1\0\1\0\0\0\2\0\x3c\xce", 501),  # half a method
        (b"\1\0\1\0\0\0\4\0\x3c\0\x0a\0", 501),  # no end mark
        (method_frame(1, 60, 20, b"\0\0\xffq"), 501),  # a string that is cut off
        (b"\3\0\1\0\0\0\1x\xce", 501),  # a body of nothing
        (method_frame(2, 60, 10, b"\0\0\0\0\0\1\0"), 503),  # no such channel
        (method_frame(1, 99, 10), 540),
        (method_frame(0, 60, 10), 503),
    ],
)
def test_bytes_that_no_client_should_send_end_the_connection(data: bytes, code: int) -> None:
    connection = Connection()
    connection.send(data.ljust(9, b"\0"))
    assert connection.last[:6] == CLOSE + encoded.short(code)
    before = len(connection.answers)
    connection.send(method_frame(1, 20, 10, b"\0"))
    assert len(connection.answers) == before
    connection.send(method_frame(0, 10, 51))
    assert connection.session.is_over


def test_a_wrong_password_and_an_unknown_virtual_host_are_refused() -> None:
    assert CLOSE + encoded.short(403) in b"".join(Connection(b"\0guest\0secret").answers)
    assert CLOSE + encoded.short(530) in b"".join(Connection(virtual_host="nowhere").answers)


def test_an_exchange_that_is_not_there_costs_the_channel_alone() -> None:
    connection = Connection()
    connection.send(publish_method(1, "nowhere", "key"))
    connection.send(b"\2\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce")
    assert connection.last[:6] == CHANNEL_CLOSE + encoded.short(404)
    connection.send(method_frame(1, 60, 10, b"\0\0\0\0\0\1\0"))
    connection.send(method_frame(1, 20, 41))
    connection.send(method_frame(1, 20, 10, b"\0"))
    assert connection.last[:4] == b"\0\x14\0\x0b"
