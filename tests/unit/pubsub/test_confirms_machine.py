"""Whatever a broker does, in whatever order: each message that an outbox is given has one outcome,
and that outcome is true."""

from collections import Counter
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PublishNacked,
    PublishRefused,
    RedriveError,
    Unroutable,
)
from redrive.pubsub.confirms import Outbox, Outgoing
from unit.pubsub.fake_wire import LOST, FakeChannel, FakeWire, Published

Kind = Literal["plain", "unroutable", "full", "poison", "large"]
"""What the broker does with a message: keeps it; returns it; refuses it; closes the channel over
it. A large one is never sent, and another is sent in its place as soon as that is known."""

KINDS: list[Kind] = ["plain", "plain", "plain", "unroutable", "full", "poison", "large"]
FRAME_MAX = 4096
WINDOW = 4


class OutboxMachine(RuleBasedStateMachine):
    """An outbox, and a broker that takes messages in their order and confirms them in any."""

    def __init__(self) -> None:
        super().__init__()
        self.wire: FakeWire | None = None
        self.messages: dict[bytes, Outgoing] = {}
        self.kinds: dict[bytes, Kind] = {}
        self.outcomes: dict[bytes, list[RedriveError | None]] = {}
        self.taken: dict[FakeChannel, int] = {}
        self.kept: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.nacked: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.doubted_by_loss: set[bytes] = set()
        self.doubted_by_close: set[bytes] = set()
        self.sent_while_blocked: int | None = None

    @initialize(resend=st.booleans())
    def begin(self, resend: bool) -> None:
        self.resend = resend
        self.outbox = Outbox(resend=resend, window=WINDOW)
        self.connect(2)

    # --- what is published ------------------------------------------------------------------------

    def message(self, kind: Kind) -> Outgoing:
        body = str(len(self.messages)).encode() + b"." * (FRAME_MAX if kind == "plain" else 0)
        properties = bytes(FRAME_MAX if kind == "large" else 2)

        def settled(outgoing: Outgoing, error: RedriveError | None) -> None:
            self.outcomes[body].append(error)
            if kind == "large":
                self.outbox.send(self.message("plain"))

        key = "a" if len(self.messages) % 2 else "b"
        self.messages[body] = Outgoing("master", key, properties, body, "", settled)
        self.kinds[body] = kind
        self.outcomes[body] = []
        return self.messages[body]

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2 * WINDOW))
    def send_many(self, kinds: list[Kind]) -> None:
        self.outbox.enqueue([self.message(kind) for kind in kinds])
        self.outbox.pump()

    # --- what the broker does ---------------------------------------------------------------------

    @rule(count=st.integers(1, WINDOW), answers=st.integers(0, 2))
    def go_on(self, count: int, answers: int) -> None:
        """Whatever comes next: a connection, an answer, messages that the broker takes."""
        if self.wire is None:
            self.connect(answers)
        elif self.wire.asked:
            self.wire.answer_all()
        else:
            self.take(count)

    def connect(self, answers: int) -> None:
        self.wire = FakeWire(frame_max=FRAME_MAX)
        self.outbox.connected(self.wire)
        for _ in range(answers):
            self.wire.answer()

    def take(self, count: int) -> None:
        while count and (found := self._next()) is not None:
            self._take(*found)
            count -= 1

    def _take(self, channel: FakeChannel, message: Published) -> None:
        self.taken[channel] = message.tag
        match self.kinds[message.body]:
            case "poison":
                self._close(channel)
            case "full":
                pass
            case "unroutable":
                channel.return_(message.tag)
            case "plain":
                self.kept[message.body] += 1
            case "large":
                raise AssertionError("what fits no frame was sent")

    @precondition(lambda self: self._answerable())
    @rule(data=st.data())
    def confirm_one(self, data: st.DataObject) -> None:
        self.confirm(data.draw(st.sampled_from(self._answerable())), False)

    @precondition(lambda self: len(self._answerable()) > 1)
    @rule(data=st.data())
    def confirm_many(self, data: st.DataObject) -> None:
        self.confirm(data.draw(st.sampled_from(self._answerable()[1:])), True)

    def confirm(self, tag: int, multiple: bool) -> None:
        channel = self._open_channel()
        upto = [one for one in channel.unconfirmed if one <= tag] if multiple else [tag]
        full = {self._kind(channel, one) == "full" for one in upto}
        if len(full) > 1:
            upto, multiple = [tag], False
        nacked = self._kind(channel, tag) == "full"
        (self.nacked if nacked else self.acked).update(
            channel.unconfirmed[one].body for one in upto
        )
        (channel.nack if nacked else channel.ack)(tag, multiple=multiple)

    @precondition(lambda self: self.wire is not None)
    @rule(data=st.data(), what=st.sampled_from(["withdraw", "block", "unblock", "close", "lose"]))
    def trouble(self, data: st.DataObject, what: str) -> None:
        assert self.wire is not None
        unsettled = [body for body, outcomes in self.outcomes.items() if not outcomes]
        match what:
            case "withdraw" if unsettled:
                self.messages[data.draw(st.sampled_from(unsettled))].withdrawn = True
            case "block":
                self.sent_while_blocked = self._sent()
                self.wire.block()
            case "unblock":
                self.sent_while_blocked = None
                self.wire.unblock()
            case "close" if self.wire.channels and self.wire.channel.is_open:
                # Over a single message only where it is one that the broker does not take.
                if len(self.wire.channel.unconfirmed) != 1:
                    self._close(self.wire.channel)
            case "lose":
                self.lose()

    def lose(self) -> None:
        assert self.wire is not None
        for channel in self.wire.channels:
            if channel.is_open:
                self.doubted_by_loss |= {one.body for one in channel.unconfirmed.values()}
        self.wire.lose()
        self.wire = self.sent_while_blocked = None
        self.outbox.disconnected(LOST)

    def _close(self, channel: FakeChannel) -> None:
        unanswered = {one.body for one in channel.unconfirmed.values()}
        if len(unanswered) == 1:
            self.refused |= unanswered
            self.doubted_by_close -= unanswered
        else:
            self.doubted_by_close |= unanswered
        channel.close_by_broker()

    def _open_channel(self) -> FakeChannel:
        assert self.wire is not None
        return self.wire.channel

    def _next(self) -> tuple[FakeChannel, Published] | None:
        """The first message that the broker has and has not looked at."""
        if self.wire is None or not self.wire.channels or not self.wire.channel.is_open:
            return None
        channel = self.wire.channel
        taken = self.taken.get(channel, 0)
        return (channel, channel.published[taken]) if taken < len(channel.published) else None

    def _answerable(self) -> list[int]:
        """The tags that the broker may confirm now."""
        if self.wire is None or not self.wire.channels or not self.wire.channel.is_open:
            return []
        channel = self.wire.channel
        return [tag for tag in channel.unconfirmed if tag <= self.taken.get(channel, 0)]

    def _kind(self, channel: FakeChannel, tag: int) -> Kind:
        return self.kinds[channel.published[tag - 1].body]

    def _sent(self) -> int:
        assert self.wire is not None
        return sum(len(channel.published) for channel in self.wire.channels)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def each_message_has_one_outcome_at_most(self) -> None:
        assert all(len(outcomes) <= 1 for outcomes in self.outcomes.values())

    @invariant()
    def what_the_broker_has_answered_is_settled(self) -> None:
        for body in self.acked | self.nacked | self.refused:
            assert self.outcomes[body]

    @invariant()
    def each_outcome_is_true(self) -> None:
        for body, outcomes in self.outcomes.items():
            for error in outcomes:
                kind = self.kinds[body]
                match error:
                    case None:
                        assert kind == "plain"
                        assert body in self.acked
                        assert self.kept[body]
                    case Unroutable():
                        assert kind == "unroutable"
                        assert body in self.acked
                    case PublishNacked():
                        assert body in self.nacked
                    case PublishRefused():
                        assert kind == "large"
                    case ConfigurationError():
                        assert body in self.refused
                    case BrokerUnavailable():
                        assert not self.resend
                    case _:
                        raise AssertionError(error)

    @invariant()
    def what_was_written_and_not_confirmed_is_in_doubt_and_nothing_else(self) -> None:
        doubted = self.doubted_by_loss | self.doubted_by_close
        assert {body for body, message in self.messages.items() if message.in_doubt} == doubted

    @invariant()
    def what_the_broker_keeps_twice_is_in_doubt(self) -> None:
        for body, copies in self.kept.items():
            assert copies == 1 or self.messages[body].in_doubt

    @invariant()
    def no_more_is_in_flight_than_the_window_takes(self) -> None:
        for channel in self.wire.channels if self.wire is not None else ():
            assert len(channel.unconfirmed) <= WINDOW

    @invariant()
    def messages_are_first_written_in_their_order(self) -> None:
        for channel in self.wire.channels if self.wire is not None else ():
            numbers = [int(body.rstrip(b".")) for body in channel.bodies]
            assert numbers == sorted(numbers)

    @invariant()
    def nothing_is_written_while_the_broker_is_blocked(self) -> None:
        if self.sent_while_blocked is not None:
            assert self._sent() == self.sent_while_blocked

    def teardown(self) -> None:
        """A broker that answers: whatever is open is settled."""
        if not self.messages:
            return
        if self.wire is None:
            self.connect(0)
        assert self.wire is not None
        self.wire.unblock()
        for _ in range(20 * len(self.messages)):
            self.wire.answer_all()
            if self._next() is not None:
                self.take(1)
            elif tags := self._answerable():
                self.confirm(tags[0], False)
        assert self.outbox.idle
        self.each_message_has_one_outcome_at_most()
        self.each_outcome_is_true()
        for body, message in self.messages.items():
            assert self.outcomes[body] or message.withdrawn


OutboxMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestOutbox = OutboxMachine.TestCase
