"""What an outbox makes of what its broker says, and does not say, of messages that it published."""

from collections.abc import Callable

import pytest

from redrive.amqp.frames import Returned
from redrive.amqp.properties import Properties
from redrive.errors import (
    ConfigurationError,
    PermissionDenied,
    PublishNacked,
    PublishRefused,
    RedriveError,
    Unroutable,
)
from redrive.pubsub.confirms import WINDOW_BYTES, Outbox, Outgoing
from unit.pubsub.fake_wire import LOST, FakeWire


class Sender:
    """An outbox, its messages, and what became of each."""

    def __init__(self, *, resend: bool = True, window: int = 2000) -> None:
        self.outbox = Outbox(resend=resend, window=window)
        self.outcomes: list[tuple[str, RedriveError | None]] = []
        self.messages: dict[str, Outgoing] = {}
        self.then: Callable[[str], None] = lambda _: None

    def message(
        self, name: str, *, key: str = "user.create", body: bytes = b"", properties: bytes = b"\0\0"
    ) -> Outgoing:
        """A message whose body is its name, unless one is given."""

        def settled(outgoing: Outgoing, error: RedriveError | None) -> None:
            self.outcomes.append((outgoing.message_id, error))
            self.then(outgoing.message_id)

        self.messages[name] = Outgoing(
            "master", key, properties, body or name.encode(), name, settled
        )
        return self.messages[name]

    def send(self, *names: str) -> None:
        """Sends messages."""
        for name in names:
            self.outbox.send(self.message(name))

    def connect(self) -> FakeWire:
        """A connection on which everything is answered."""
        wire = FakeWire()
        self.outbox.connected(wire)
        wire.answer_all()
        return wire

    @property
    def confirmed(self) -> list[str]:
        """The messages that were settled well, in that order."""
        return [name for name, error in self.outcomes if error is None]

    @property
    def errors(self) -> dict[str, type[RedriveError]]:
        """Why the others failed."""
        return {name: type(error) for name, error in self.outcomes if error is not None}


def doubtful(sender: Sender) -> list[str]:
    """The messages that the broker may have, or not."""
    return [name for name, message in sender.messages.items() if message.in_doubt]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def wire(sender: Sender) -> FakeWire:
    return sender.connect()


# --- confirms -------------------------------------------------------------------------------------


def test_a_message_is_settled_by_its_own_confirm_and_not_before(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b")
    assert sender.outcomes == []
    wire.channel.ack(2)
    assert sender.confirmed == ["b"]
    wire.channel.ack(1)
    assert sender.confirmed == ["b", "a"]
    assert sender.outbox.idle


def test_a_multiple_confirm_settles_all_up_to_its_tag_and_none_behind_it(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b", "c", "d")
    wire.channel.ack(3, multiple=True)
    assert sender.confirmed == ["a", "b", "c"]
    assert not sender.outbox.idle


def test_a_multiple_confirm_passes_over_what_was_confirmed_alone(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b", "c", "d")
    wire.channel.ack(2)
    wire.channel.ack(3, multiple=True)
    wire.channel.ack(4, multiple=True)
    assert sender.confirmed == ["b", "a", "c", "d"]


def test_a_confirm_that_comes_twice_settles_nothing_a_second_time(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b", "c")
    for tag, multiple in ((2, False), (2, False), (1, True), (1, True), (2, True), (1, False)):
        wire.channel.events.confirmed(tag, multiple, True)
    assert sender.confirmed == ["b", "a"]


def test_a_confirm_of_what_was_never_sent_settles_nothing(sender: Sender, wire: FakeWire) -> None:
    sender.send("a")
    wire.channel.events.confirmed(7, False, True)
    assert sender.outcomes == []


def test_tags_go_on_counting_over_many_batches(sender: Sender, wire: FakeWire) -> None:
    for batch in range(50):
        names = [f"{batch}-{number}" for number in range(3)]
        sender.send(*names)
        wire.channel.ack(3 * batch + 2)
        wire.channel.ack(3 * batch + 3, multiple=True)
        assert sender.confirmed[-3:] == [names[1], names[0], names[2]]


@pytest.mark.parametrize("multiple", [False, True])
def test_what_the_broker_does_not_take_is_an_error(
    sender: Sender, wire: FakeWire, multiple: bool
) -> None:
    sender.send("a", "b")
    wire.channel.nack(1)
    wire.channel.nack(2, multiple=multiple)
    assert sender.errors == {"a": PublishNacked, "b": PublishNacked}
    assert not any(message.in_doubt for message in sender.messages.values())


def test_a_returned_message_is_settled_by_its_confirm_as_unroutable(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b", "c")
    wire.channel.return_(2)
    assert sender.outcomes == []
    wire.channel.ack(3, multiple=True)
    assert sender.confirmed == ["a", "c"]
    assert sender.errors == {"b": Unroutable}
    assert "NO_ROUTE" in str(dict(sender.outcomes)["b"])


def test_equal_messages_that_are_returned_are_each_returned_once(
    sender: Sender, wire: FakeWire
) -> None:
    for name in ("a", "b"):
        sender.outbox.send(sender.message(name, body=b"same"))
    wire.channel.return_(1)
    wire.channel.return_(2)
    wire.channel.ack(2, multiple=True)
    assert sender.errors == {"a": Unroutable, "b": Unroutable}


def test_of_equal_messages_the_one_with_the_id_that_is_returned_was_not_routed(
    sender: Sender, wire: FakeWire
) -> None:
    for name in ("a", "b", "c"):
        properties = Properties(message_id=name).encode()
        sender.outbox.send(sender.message(name, body=b"same", properties=properties))
    wire.channel.return_(2)
    wire.channel.ack(3, multiple=True)
    assert sender.errors == {"b": Unroutable}


def test_an_id_that_has_changed_on_its_way_is_taken_for_the_first_of_equal_messages(
    sender: Sender, wire: FakeWire
) -> None:
    for name in ("a", "b"):
        properties = Properties(message_id=name).encode()
        sender.outbox.send(sender.message(name, body=b"same", properties=properties))
    exchange, key, _, body = wire.channel.unconfirmed[2][1:]
    wire.channel.events.returned(
        Returned("NO_ROUTE", exchange, key, Properties(message_id="other").encode(), body)
    )
    wire.channel.ack(2, multiple=True)
    assert sender.errors == {"a": Unroutable}


def test_a_returned_message_that_was_refused_besides_was_refused(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a")
    wire.channel.return_(1)
    wire.channel.nack(1)
    assert sender.errors == {"a": PublishNacked}


def test_a_return_of_what_is_not_in_flight_is_logged_and_settles_nothing(
    sender: Sender, wire: FakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    sender.send("a", "b")
    returned = wire.channel.published[1]
    wire.channel.ack(2)
    wire.channel.unconfirmed[2] = returned
    wire.channel.return_(2)
    wire.channel.ack(1)
    assert sender.confirmed == ["b", "a"]
    assert "not in flight" in caplog.text


def test_what_is_returned_on_one_connection_may_be_routed_on_the_next(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a")
    wire.channel.return_(1)
    wire.lose()
    sender.outbox.disconnected(LOST)
    sender.connect().channel.ack(1)
    assert sender.confirmed == ["a"]


# --- the window and what is written ---------------------------------------------------------------


def test_no_more_is_unconfirmed_than_the_window_takes() -> None:
    sender = Sender(window=2)
    wire = sender.connect()
    sender.send("a", "b", "c", "d")
    assert wire.channel.bodies == [b"a", b"b"]
    wire.channel.ack(2)
    assert wire.channel.bodies == [b"a", b"b", b"c"]
    wire.channel.ack(3, multiple=True)
    assert wire.channel.bodies == [b"a", b"b", b"c", b"d"]


def test_no_more_bytes_are_unconfirmed_than_there_is_room_for(
    sender: Sender, wire: FakeWire
) -> None:
    body = bytes(WINDOW_BYTES)
    for name in ("a", "b"):
        sender.outbox.send(sender.message(name, body=body))
    assert len(wire.channel.published) == 1
    wire.channel.ack(1)
    assert [len(body) for body in wire.channel.bodies] == [WINDOW_BYTES, WINDOW_BYTES]


def test_what_was_enqueued_goes_with_the_next_pump(sender: Sender, wire: FakeWire) -> None:
    sender.outbox.enqueue([sender.message("a"), sender.message("b", key="user.update")])
    assert wire.channel.published == []
    sender.outbox.pump()
    assert [(one.exchange, one.routing_key, one.body) for one in wire.channel.published] == [
        ("master", "user.create", b"a"),
        ("master", "user.update", b"b"),
    ]


def test_a_body_larger_than_a_frame_arrives_whole(sender: Sender, wire: FakeWire) -> None:
    sender.outbox.send(sender.message("a", body=bytes(range(256)) * 2000))
    assert wire.channel.bodies == [bytes(range(256)) * 2000]


def test_a_message_that_was_withdrawn_while_it_waited_is_not_sent(sender: Sender) -> None:
    sender.send("a", "b")
    sender.messages["a"].withdrawn = True
    wire = sender.connect()
    assert wire.channel.bodies == [b"b"]


def test_headers_that_fit_no_frame_are_an_error_and_nothing_of_them_is_sent(
    sender: Sender, wire: FakeWire
) -> None:
    sender.outbox.send(sender.message("a", properties=bytes(wire.frame_max)))
    sender.send("b")
    wire.channel.ack(1)
    assert sender.errors == {"a": PublishRefused}
    assert sender.confirmed == ["b"]
    assert wire.channel.bodies == [b"b"]


def test_confirms_fit_their_messages_where_one_is_sent_while_another_is_refused(
    sender: Sender,
) -> None:
    """What is refused before it is sent may be sent in another form at once, ahead of all that
    waits behind it."""
    sender.then = lambda name: sender.send("instead") if name == "large" else None
    sender.outbox.enqueue([sender.message("a"), sender.message("large", properties=bytes(200_000))])
    wire = sender.connect()
    tags = {message.body: message.tag for message in wire.channel.published}
    wire.channel.ack(tags[b"a"])
    assert sender.confirmed == ["a"]
    wire.channel.ack(tags[b"instead"])
    assert sender.confirmed == ["a", "instead"]


# --- the broker blocks ----------------------------------------------------------------------------


def test_nothing_is_written_while_the_broker_takes_no_messages(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a")
    wire.block("low on disk\nnow")
    sender.send("b")
    wire.channel.ack(1)
    assert sender.outbox.blocked == "low on disk now"
    assert wire.channel.bodies == [b"a"]
    assert sender.confirmed == ["a"]
    wire.unblock()
    assert wire.channel.bodies == [b"a", b"b"]


def test_a_new_connection_is_not_blocked(sender: Sender, wire: FakeWire) -> None:
    wire.block()
    sender.outbox.disconnected(LOST)
    assert sender.outbox.blocked is None
    sender.send("a")
    assert sender.connect().channel.bodies == [b"a"]


# --- the connection is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_what_was_not_sent_when_the_connection_was_lost_is_sent_on_the_next(
    sender: Sender, answers: int
) -> None:
    """Before its channel is open, before it confirms, and after."""
    first = FakeWire()
    sender.outbox.connected(first)
    for _ in range(answers):
        first.answer()
    sender.send("a", "b")
    first.lose()
    sender.outbox.disconnected(LOST)
    second = sender.connect()
    assert second.channel.bodies == [b"a", b"b"]
    assert [message.in_doubt for message in sender.messages.values()] == [answers == 2] * 2


def test_what_was_unconfirmed_is_sent_again_before_what_waited_behind_it() -> None:
    sender = Sender(window=3)
    first = sender.connect()
    sender.send("a", "b", "c", "d", "e")
    first.channel.ack(2)
    assert first.channel.bodies == [b"a", b"b", b"c", b"d"]
    first.lose()
    sender.outbox.disconnected(LOST)
    second = sender.connect()
    assert second.channel.bodies == [b"a", b"c", b"d"]
    second.channel.ack(3, multiple=True)
    second.channel.ack(4)
    assert sender.confirmed == ["b", "a", "c", "d", "e"]
    assert doubtful(sender) == ["a", "c", "d"]


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_where_nothing_is_sent_again_all_is_settled_with_the_loss(answers: int) -> None:
    sender = Sender(resend=False, window=2)
    wire = FakeWire()
    sender.outbox.connected(wire)
    for _ in range(answers):
        wire.answer()
    sender.send("a", "b", "c")
    wire.lose()
    sender.outbox.disconnected(LOST)
    assert sender.outcomes == [("a", LOST), ("b", LOST), ("c", LOST)]
    assert sender.outbox.idle
    written = [message.in_doubt for message in sender.messages.values()]
    assert written == ([True, True, False] if answers == 2 else [False] * 3)
    assert sender.connect().channel.published == []


def test_at_the_end_everything_is_settled_once(sender: Sender, wire: FakeWire) -> None:
    sender.send("a", "b")
    wire.channel.ack(1)
    wire.block()
    sender.send("c")
    sender.outbox.fail_all(LOST)
    sender.outbox.fail_all(LOST)
    assert sender.outcomes == [("a", None), ("b", LOST), ("c", LOST)]
    assert sender.outbox.idle


# --- the channel is closed ------------------------------------------------------------------------


def test_the_one_message_that_the_broker_closes_the_channel_over_is_refused(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a")
    wire.channel.close_by_broker(406, "PRECONDITION_FAILED - larger than 16 MB")
    assert sender.errors == {"a": PublishRefused}
    assert "max_message_size" in str(sender.outcomes[0][1])
    assert not sender.messages["a"].in_doubt


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (404, "NOT_FOUND - no exchange 'master' in vhost '/'", ConfigurationError),
        (403, "ACCESS_REFUSED - write access to exchange 'master' refused", PermissionDenied),
    ],
)
def test_a_missing_exchange_and_a_missing_right_are_named(
    sender: Sender, wire: FakeWire, code: int, text: str, error: type[RedriveError]
) -> None:
    sender.send("a")
    wire.channel.close_by_broker(code, text)
    assert sender.errors == {"a": error}


def test_publishing_goes_on_on_a_new_channel_once_it_confirms(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a")
    wire.channel.close_by_broker()
    sender.send("b")
    wire.answer()
    assert wire.channel.published == []
    wire.answer_all()
    assert wire.channel.bodies == [b"b"]
    wire.channel.ack(1)
    assert sender.confirmed == ["b"]


def test_the_message_that_closed_the_channel_is_found_and_the_others_are_sent(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "bad", "c")
    wire.channel.close_by_broker()
    wire.answer_all()
    assert wire.channel.bodies == [b"a"]
    wire.channel.ack(1)
    assert wire.channel.bodies == [b"a", b"bad"]
    wire.channel.close_by_broker()
    wire.answer_all()
    assert wire.channel.bodies == [b"c"]
    wire.channel.ack(1)
    assert (sender.confirmed, list(sender.errors)) == (["a", "c"], ["bad"])


def test_once_it_was_found_messages_go_many_at_a_time_again(sender: Sender, wire: FakeWire) -> None:
    sender.send("bad", "b")
    wire.channel.close_by_broker()
    wire.answer_all()
    wire.channel.close_by_broker()
    wire.answer_all()
    wire.channel.ack(1)
    sender.send("c", "d")
    assert wire.channel.bodies == [b"b", b"c", b"d"]


def test_what_was_unconfirmed_when_the_channel_was_closed_is_in_doubt(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "b", "c")
    wire.channel.ack(1)
    wire.channel.close_by_broker()
    assert doubtful(sender) == ["b", "c"]


def test_a_refusal_takes_no_earlier_doubt_away(sender: Sender, wire: FakeWire) -> None:
    """The connection before may have been lost after the broker had taken it."""
    sender.send("a")
    wire.lose()
    sender.outbox.disconnected(LOST)
    second = sender.connect()
    second.channel.close_by_broker()
    assert sender.errors == {"a": ConfigurationError}
    assert sender.messages["a"].in_doubt


def test_what_the_search_finds_to_be_refused_is_in_no_doubt(sender: Sender, wire: FakeWire) -> None:
    sender.send("bad", "b")
    wire.channel.close_by_broker()
    wire.answer_all()
    wire.channel.close_by_broker()
    assert doubtful(sender) == ["b"]


def test_what_is_refused_after_the_connection_was_lost_in_the_search_is_in_doubt(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("bad", "b")
    wire.channel.close_by_broker()
    wire.answer_all()
    wire.lose()
    sender.outbox.disconnected(LOST)
    sender.connect().channel.close_by_broker()
    assert sender.errors == {"bad": ConfigurationError}
    assert doubtful(sender) == ["bad", "b"]


def test_a_connection_that_is_lost_in_the_search_is_searched_on_the_next(
    sender: Sender, wire: FakeWire
) -> None:
    sender.send("a", "bad", "c")
    wire.channel.close_by_broker()
    wire.answer_all()
    wire.lose()
    sender.outbox.disconnected(LOST)
    second = sender.connect()
    assert second.channel.bodies == [b"a"]
    second.channel.ack(1)
    second.channel.close_by_broker()
    second.answer_all()
    second.channel.ack(1)
    assert (sender.confirmed, list(sender.errors)) == (["a", "c"], ["bad"])


@pytest.mark.parametrize("resend", [False, True])
def test_a_search_that_came_to_nothing_slows_down_nobody(resend: bool) -> None:
    """Its messages were withdrawn, or settled with the loss of the connection."""
    sender = Sender(resend=resend)
    first = sender.connect()
    sender.send("a", "b", "c")
    first.channel.close_by_broker()
    for message in sender.messages.values():
        message.withdrawn = resend
    first.lose()
    sender.outbox.disconnected(LOST)
    second = sender.connect()
    sender.send("d", "e")
    assert second.channel.bodies == [b"d", b"e"]


def test_a_channel_that_closes_without_a_message_in_flight_is_opened_again(
    sender: Sender, wire: FakeWire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.channel.close_by_broker(541, "INTERNAL_ERROR")
    wire.answer_all()
    sender.send("a", "b")
    assert wire.channel.bodies == [b"a", b"b"]
    assert "sending 0" not in caplog.text
