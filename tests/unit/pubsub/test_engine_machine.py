"""Whatever a broker and handlers do, in whatever order: no delivery is settled twice, none is acked
before it was handled or its copy confirmed, and no message is lost."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redrive.amqp.frames import Received
from redrive.amqp.properties import Properties
from redrive.pubsub.engine import Engine
from redrive.pubsub.work import WorkItem
from redrive.topology.headers import counted
from unit.pubsub.fake_wire import FakeChannel, FakeWire, Published
from unit.pubsub.running_engine import FAILURE, GIVE_UP, GRACE, RunningEngine, properties

PREFETCH = 4
ANSWERS = st.sampled_from(["take", "take", "take", "refuse", "return", "close"])
"""What a broker does with a copy that it is given."""


class EngineMachine(RuleBasedStateMachine):
    """A queue, the subscriber that consumes it, and the failed queue.

    The queue is a model: what a consumer has in hand comes back to it when that is gone. Failed
    attempts come back at once. What comes back without a verdict has counted a crash.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[bytes] = []
        self.messages: list[bytes] = []
        self.in_hand: Counter[bytes] = Counter()
        self.handled: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.kept: Counter[bytes] = Counter()
        self.lost: Counter[bytes] = Counter()
        self.done: Counter[bytes] = Counter()
        self.returns: Counter[bytes] = Counter()
        self.noted: dict[bytes, int] = {}
        """The crashes that are noted in messages which came to the end of their queue."""
        self.twice: Counter[bytes] = Counter()
        """What is at the end of its queue, and not acked where it was."""
        self.running: list[WorkItem] = []
        self.crashes: dict[WorkItem, int] = {}
        """How many each had counted when its handler began."""
        self.stopped = False
        self.patience = True

    @initialize(concurrency=st.integers(1, PREFETCH))
    def begin(self, concurrency: int) -> None:
        self.engine = RunningEngine(prefetch=PREFETCH, concurrency=concurrency)
        self.connect(9)

    @property
    def subject(self) -> Engine:
        """The engine itself."""
        return self.engine.engine

    @property
    def wire(self) -> FakeWire | None:
        """The connection, where there is one."""
        return None if self.engine.ends else self.engine.link.wire

    # --- the queue --------------------------------------------------------------------------------

    def settled(self, received: Received, how: str, requeue: bool) -> None:
        body = received.body
        self.in_hand[body] -= 1
        match how, requeue:
            case "ack", _ if self.twice[body] and body in self.queue:
                self.twice[body] -= 1
            case "ack", _:
                assert body in self.handled or body in self.confirmed
                self.done[body] += 1
            case "reject", False:
                assert body in self.failed
                self.returns[body] = 0
                self.queue.append(body)
            case _:
                assert self.stopped
                assert self._consuming() is None, "it would be delivered here again"
                self.queue.append(body)

    def gone(self, channel: FakeChannel) -> None:
        for received in channel.unsettled.values():
            self.in_hand[received.body] -= 1
            self.lost[received.body] += 1
            self.returns[received.body] += 1
            self.queue.append(received.body)

    def _consuming(self) -> FakeChannel | None:
        if self.wire is None:
            return None
        found = [one for one in self.wire.channels if one.consumers and one.is_open]
        return found[0] if found else None

    @rule(count=st.integers(1, PREFETCH))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.messages.append(str(len(self.messages)).encode())
            self.queue.append(self.messages[-1])
        self.deliver()

    def deliver(self) -> None:
        channel = self._consuming()
        while channel is not None and self.queue and len(channel.unsettled) < channel.prefetch:
            body = self.queue.pop(0)
            self.in_hand[body] += 1
            counts = {"x_delivery_count": self.returns[body]} if self.returns[body] else {}
            way = {"exchange": "", "routing_key": "orders"} if body in self.noted else {}
            channel.deliver(
                body,
                **way,
                properties=properties(**counts, redrive_crashes=self.noted.get(body, 0)),
                redelivered=self.returns[body] > 0,
            )

    # --- handlers ---------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.workers.waiting)
    @rule(count=st.integers(1, PREFETCH))
    def run_handlers(self, count: int) -> None:
        while count and self.engine.workers.waiting:
            item = self.engine.begin()
            if not item.settled:
                self.running.append(item)
                self.crashes[item] = self.suspected(item.received.body)
            count -= 1

    def suspected(self, body: bytes) -> int:
        return self.returns[body] + self.noted.get(body, 0)

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["succeeds", "fails", "gives up", "gives up"]),
        later=st.booleans(),
    )
    def end_handler(self, data: st.DataObject, outcome: str, later: bool) -> None:
        item = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        body = item.received.body
        match outcome:
            case "succeeds":
                self.handled.add(body)
                error: Exception | None = None
            case "fails":
                self.failed.add(body)
                error = FAILURE
            case _:
                error = GIVE_UP
        self.subject.settle(item, self.subject.attempted(item, error))
        if not later:
            self.engine.link.run()

    # --- the broker -------------------------------------------------------------------------------

    @rule(answers=st.integers(0, 4))
    def go_on(self, answers: int) -> None:
        """Whatever comes next: a connection, an answer, deliveries."""
        if self.engine.ends:
            return
        if self.engine.link.wire is None:
            self.connect(answers)
        self.engine.link.run()
        if self.wire is not None:
            self.wire.answer_all()
            self.deliver()

    def connect(self, answers: int) -> None:
        wire = FakeWire()
        wire.on_settled, wire.on_gone = self.settled, self.gone
        self.engine.link.connect(wire)
        for _ in range(answers):
            if wire.asked:
                wire.answer()

    def _publishing(self) -> FakeChannel | None:
        if not self.engine.has_published or self.engine.moves_links[-1].ended:
            return None
        channel = self.engine.publishing
        return channel if channel.unconfirmed and channel.is_open else None

    def _moves_wire(self) -> FakeWire | None:
        return self.engine.moves_links[-1].wire if self.engine.has_published else None

    @precondition(lambda self: self._publishing() is not None)
    @rule(data=st.data(), answer=ANSWERS, multiple=st.booleans())
    def answer_a_copy(self, data: st.DataObject, answer: str, multiple: bool) -> None:
        channel = self._publishing()
        assert channel is not None
        tag = data.draw(st.sampled_from(sorted(channel.unconfirmed)))
        upto = [copy for copy in channel.unconfirmed.values() if multiple and copy.tag < tag]
        copies = [*upto, channel.unconfirmed[tag]]
        match answer:
            case "take":
                self._keep(copies)
                channel.ack(tag, multiple=multiple)
            case "refuse":
                channel.nack(tag, multiple=multiple)
            case "return":
                channel.return_(tag)
                channel.ack(tag)
            case _:
                # What can't be set aside at all goes to the retry queue.
                self.failed.update(copy.body for copy in channel.unconfirmed.values())
                channel.close_by_broker(406, "PRECONDITION_FAILED - larger than 16 MB")

    def _keep(self, copies: list[Published]) -> None:
        for copy in copies:
            if copy.exchange:
                self.kept[copy.body] += 1
                self.confirmed.add(copy.body)
            else:
                headers = Properties.parse(copy.properties).headers
                self.noted[copy.body] = counted(headers.scalar("redrive-crashes"))
                assert self.noted[copy.body], "a crash is forgotten"
                self.returns[copy.body] = 0
                self.twice[copy.body] += 1
                self.queue.append(copy.body)

    # --- trouble, time and the end ----------------------------------------------------------------

    @rule(
        what=st.sampled_from(
            [
                "block",
                "unblock",
                "delete",
                "close",
                "lose",
                "lose what publishes",
                "refuse what publishes",
                "sleep",
                "sleep longer",
                "stop",
            ]
        )
    )
    def trouble(self, what: str) -> None:
        channel, link = self._consuming(), self.engine.link
        match what:
            case "block" if (moves := self._moves_wire()) is not None:
                moves.block()
            case "unblock" if (moves := self._moves_wire()) is not None:
                moves.unblock()
            case "lose what publishes" if self.engine.has_published:
                self.engine.moves_links[-1].lose()
                link.run()
            case "refuse what publishes" if self.engine.has_published:
                if not self.engine.moves_links[-1].ended:
                    self.engine.moves_links[-1].give_up()
                    link.run()
            case "delete" if channel is not None:
                channel.cancel_by_broker()
            case "close" if channel is not None:
                channel.close_by_broker(406, "PRECONDITION_FAILED - timeout")
            case "lose":
                link.lose()
            case "sleep":
                link.sleep(1)
            case "sleep longer":
                link.sleep(GRACE)
                self.patience = False
            case "stop" if len(self.messages) > 2 * PREFETCH:
                self.stopped = True
                self.subject.stop()

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        waiting = Counter(self.queue)
        for body in self.messages:
            places = waiting[body] + self.in_hand[body] + self.done[body]
            assert places == 1 + self.twice[body]

    @invariant()
    def what_left_the_queue_was_handled_or_is_in_the_failed_queue(self) -> None:
        for body in self.done:
            assert body in self.handled or self.kept[body]

    @invariant()
    def what_is_in_the_failed_queue_twice_was_lost_before_its_ack(self) -> None:
        for body, copies in self.kept.items():
            assert copies <= 1 + self.lost[body]

    @invariant()
    def what_may_have_killed_a_worker_is_handled_alone(self) -> None:
        if self.patience and any(0 < self.crashes[item] < 5 for item in self.running):
            assert len(self.running) == 1

    def teardown(self) -> None:
        """A stop, and a subscriber that finds everything well: nothing is left."""
        self.stopped = True
        self.subject.stop()
        self.engine.link.run()
        self.engine.link.sleep(GRACE)
        assert self.engine.ends == 1
        self.each_message_is_in_one_place()
        assert sum(self.in_hand.values()) == 0
        self.running.clear()
        self.engine = RunningEngine(prefetch=PREFETCH, concurrency=PREFETCH)
        self.connect(9)
        while self.queue or sum(self.in_hand.values()):
            self.deliver()
            while self.engine.workers.waiting:
                self.handled.add(self.engine.workers.waiting[0].received.body)
                self.engine.handle()
            self.engine.run()
            if (publishing := self._publishing()) is not None:
                self._keep(list(publishing.unconfirmed.values()))
                publishing.ack(max(publishing.unconfirmed), multiple=True)
        assert set(self.messages) == set(self.done)


EngineMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestEngine = EngineMachine.TestCase
