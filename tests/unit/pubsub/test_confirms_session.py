"""What a publisher's session says of messages that were not confirmed."""

import pytest

from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.confirms import Outgoing, PublisherSession
from unit.pubsub.fake_wire import LOST, FakeWire


class Session(PublisherSession):
    """A session whose owner counts how often it is known whether there is a connection."""

    def __init__(self) -> None:
        super().__init__(100)
        self.known = 0
        self.errors: list[RedriveError | None] = []

    def _begun(self) -> None:
        self.known += 1

    def send(self) -> Outgoing:
        """Sends a message."""
        outgoing = Outgoing(
            "master", "order.paid", b"\0\0", b"", "id", lambda _, error: self.errors.append(error)
        )
        self._outbox.send(outgoing)
        return outgoing

    def connect(self) -> FakeWire:
        """A connection on which everything is answered."""
        wire = FakeWire()
        self.connected(wire)
        wire.answer_all()
        return wire


@pytest.fixture
def session() -> Session:
    return Session()


def test_no_confirm_in_time_says_what_is_known_of_the_message(session: Session) -> None:
    outgoing = session.send()
    assert "was lost and did not come back within 5 s; it was not sent" in str(
        session.timeout_of(outgoing, 5)
    )
    wire = session.connect()
    assert "no confirm came within 5 s; it was sent, so the broker may have it" in str(
        session.timeout_of(outgoing, 5)
    )
    wire.block("low on disk")
    assert "takes no messages now (low on disk)" in str(session.timeout_of(outgoing, 5))
    session.disconnected(LOST)
    assert "was lost and did not come back" in str(session.timeout_of(outgoing, 5))


def test_what_was_not_confirmed_is_sent_again_on_the_next_connection(session: Session) -> None:
    session.send()
    session.connect().lose()
    session.disconnected(LOST)
    session.connect().channel.ack(1)
    assert session.errors == [None]


def test_what_is_open_at_the_end_fails_with_the_reason(session: Session) -> None:
    session.send()
    session.gave_up(LOST)
    session.ended()
    assert (session.errors, session.known) == ([LOST], 1)


def test_what_is_open_when_the_publisher_is_closed_says_so(session: Session) -> None:
    session.connect()
    session.send()
    session.ended()
    (error,) = session.errors
    assert isinstance(error, ConfigurationError)
    assert "closed before the message was confirmed" in str(error)
