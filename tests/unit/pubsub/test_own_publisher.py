"""What subscribers publish has a connection of its own, as long as somebody has published on it."""

from datetime import timedelta

import pytest

from redrive.errors import BrokerUnavailable, PermissionDenied, RedriveError
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.lifecycle import BrokerAccess, Listener
from redrive.pubsub.own_publisher import Moves
from redrive.pubsub.publishing_connection import PublishingConnection
from unit.pubsub.fake_wire import LOST, FakeChannel, FakeLink

REFUSED = PermissionDenied("logging in", "ACCESS_REFUSED")


class SharingService:
    """Subscribers that share a connection for what they publish."""

    def __init__(self) -> None:
        self.access = BrokerAccess("amqp://localhost/", "redrive app")
        self.made: list[tuple[BrokerAccess, FakeLink]] = []
        self.connection = PublishingConnection(self.access, self._keep)
        self.answers: dict[str, RedriveError | None] = {}

    def _keep(self, access: BrokerAccess, listener: Listener, _: timedelta) -> FakeLink:
        self.made.append((access, FakeLink(listener)))
        return self.link

    @property
    def link(self) -> FakeLink:
        """The connection that was made last."""
        return self.made[-1][1]

    @property
    def channels(self) -> list[FakeChannel]:
        """The channels of what was connected last, once all is answered."""
        self.run()
        assert self.link.wire is not None
        return self.link.wire.channels

    def subscriber(self) -> Moves:
        """One that publishes there."""
        return Moves(self.connection.link_for, self.connection.when_closed)

    def send(self, moves: Moves, name: str) -> None:
        """Has it publish a message."""
        moves.send(Outgoing("master.failed", "orders", b"\0\0", name.encode(), name, self._note))

    def _note(self, outgoing: Outgoing, error: RedriveError | None) -> None:
        self.answers[outgoing.message_id] = error

    def run(self) -> None:
        """Connects, and has everything answered."""
        if self.link.wire is None and not self.link.ended:
            self.link.connect()
        wire = self.link.wire
        while self.link.calls or (wire is not None and wire.asked):
            self.link.run()
            if wire is not None:
                wire.answer_all()


@pytest.fixture
def service() -> SharingService:
    return SharingService()


def test_there_is_no_connection_before_there_is_a_message(service: SharingService) -> None:
    service.subscriber()
    assert service.made == []


def test_subscribers_share_a_connection_and_have_channels_of_their_own(
    service: SharingService,
) -> None:
    for name in ("one", "other"):
        service.send(service.subscriber(), name)
        service.run()
    assert [channel.bodies for channel in service.channels] == [[b"one"], [b"other"]]
    assert len(service.made) == 1


def test_what_is_not_confirmed_when_it_is_lost_is_told_so_and_it_comes_back(
    service: SharingService,
) -> None:
    moves = service.subscriber()
    service.send(moves, "one")
    service.run()
    service.link.lose()
    assert service.answers == {"one": LOST}
    service.send(moves, "another")
    assert service.channels[-1].bodies == [b"another"]
    assert len(service.made) == 1


@pytest.mark.parametrize("when", ["before it was asked", "after"])
def test_what_can_not_be_sent_is_told_why_and_the_next_message_opens_another(
    service: SharingService, when: str
) -> None:
    moves = service.subscriber()
    service.send(moves, "one")
    if when == "after":
        service.link.run()
    service.link.give_up(REFUSED)
    assert service.answers == {"one": REFUSED}
    service.send(moves, "another")
    assert len(service.made) == 2
    assert service.channels[0].bodies == [b"another"]


def test_what_still_waits_at_the_end_is_told_so(service: SharingService) -> None:
    moves = service.subscriber()
    service.send(moves, "one")
    moves.close(lambda: None, aborted=True)
    service.link.run()
    assert isinstance(service.answers["one"], BrokerUnavailable)


@pytest.mark.parametrize("aborted", [False, True])
def test_it_is_closed_with_the_last_subscriber(service: SharingService, aborted: bool) -> None:
    one, other = service.subscriber(), service.subscriber()
    closed: list[str] = []
    for moves in (one, other):
        service.send(moves, "any")
    service.run()
    one.close(lambda: closed.append("one"), aborted=aborted)
    service.run()
    assert (closed, service.link.ended) == (["one"], False)
    other.close(lambda: closed.append("other"), aborted=aborted)
    service.run()
    assert closed == ["one", "other"]
    assert (service.link.ended, service.link.aborted) == (True, aborted)


def test_one_that_has_published_nothing_is_closed_at_once(service: SharingService) -> None:
    closed: list[str] = []
    service.subscriber().close(lambda: closed.append("it"), aborted=False)
    assert closed == ["it"]


def test_one_that_comes_as_it_closes_gets_a_new_one(service: SharingService) -> None:
    one = service.subscriber()
    service.send(one, "one")
    service.run()
    old = service.link
    one.close(lambda: service.send(service.subscriber(), "late"), aborted=False)
    service.run()
    assert service.link is not old
    assert service.channels[0].bodies == [b"late"]
