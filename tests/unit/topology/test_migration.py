"""The steps of a migration, on a broker made of sets: whenever it is cut off, it goes on, and every
message stays in a queue."""

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.diff import Observed, compare
from redrive.topology.migration import (
    Step,
    check_room,
    into_failed,
    is_needed,
    next_step,
    pauses,
    transit_queue,
)
from redrive.topology.model import Binding, Queue, Subscription
from redrive.topology.policy import RetryPolicy

NEW = Subscription("shop@orders", ("order.*",))
OLD = (
    replace(NEW, retry=RetryPolicy(delay=timedelta(hours=1))),
    replace(NEW, queue_type="classic"),
    replace(NEW, queue_type="classic", retry_via="republish"),
)


def kind_of(subscription: Subscription) -> str:
    """What tells these subscriptions apart."""
    delay = subscription.retry.delay.total_seconds()
    return f"{subscription.queue_type} {subscription.retry_via} {delay:g}"


HELD_BACK = replace(NEW, retry_via="broker")
TO_AND_FROM_THE_BROKER = [
    *((old, HELD_BACK) for old in (NEW, *OLD)),
    (HELD_BACK, NEW),
    (HELD_BACK, replace(NEW, queue_type="classic")),
    (HELD_BACK, replace(HELD_BACK, retry=RetryPolicy(delay=timedelta(hours=1)))),
]


class ModelBroker:
    """Queues with their bindings and messages. Each act of a step can be the last one before the
    program dies."""

    def __init__(self, subscription: Subscription) -> None:
        topology = subscription.topology()
        self.exchanges = {exchange.name: exchange.type for exchange in topology.exchanges}
        self.queues = {queue.name: dict(queue.arguments) for queue in topology.queues}
        self.bindings = set(topology.bindings)
        self.messages: dict[str, set[str]] = {name: {f"in {name}"} for name in self.queues}
        self.lost: set[str] = set()
        self.published = 0
        self.acts_left = 10**6

    def observe(self) -> Observed:
        return Observed(
            self.exchanges,
            {name: dict(arguments) for name, arguments in self.queues.items()},
            frozenset(self.bindings),
        )

    @property
    def dead_letters(self) -> bool:
        """Whether what is rejected in the main queue goes to the retry exchange."""
        main = self.queues.get("shop@orders", {})
        return main.get("x-dead-letter-exchange") == "master.retry"

    @property
    def everything(self) -> set[str]:
        return set().union(*self.messages.values())

    def act(self) -> None:
        """One act is done; between two, something comes for each queue by its exchange."""
        if not self.acts_left:
            raise KeyboardInterrupt
        self.acts_left -= 1
        for source, key in (
            ("master", "order.*"),
            ("master.retry", "shop@orders"),
            ("master.failed", "shop@orders"),
        ):
            reached = [
                binding.destination
                for binding in self.bindings
                if (binding.source, binding.routing_key) == (source, key)
            ]
            if source == "master.retry" and not self.dead_letters and not reached:
                continue
            assert reached, f"what comes through {source} reaches no queue"
            self.published += 1
            for queue in reached:
                self.messages[queue].add(f"number {self.published}")

    def do(self, step: Step) -> None:
        """What the shell does, an act at a time."""
        queue, transit = step.queue.name, step.transit.name
        match step.kind:
            case "divert":
                self.make(step.transit)
                self.switch(step, transit, queue)
            case "drain":
                self.move(queue, transit)
            case "replace":
                assert not self.messages.get(queue), f"{queue} is deleted with messages in it"
                assert not any(binding.destination == queue for binding in self.bindings)
                self.queues.pop(queue, None)
                self.act()
                self.make(step.queue)
            case "restore":
                self.switch(step, queue, transit)
            case "return":
                self.move(transit, queue)
                del self.queues[transit], self.messages[transit]
                self.act()
            case "remove":
                assert not self.messages.get(queue), f"{queue} is deleted with messages in it"
                self.queues.pop(queue, None)
                self.messages.pop(queue, None)
                self.act()
                for binding in step.bindings:
                    self.bindings.discard(replace(binding, destination=transit))
                    self.act()
            case "release":
                self.move(transit, step.due)
                del self.queues[transit], self.messages[transit]
                self.act()

    def make(self, queue: Queue) -> None:
        self.queues.setdefault(queue.name, dict(queue.arguments))
        self.messages.setdefault(queue.name, set())
        self.act()

    def switch(self, step: Step, to: str, of: str) -> None:
        for binding in step.bindings:
            self.bindings.add(replace(binding, destination=to))
            self.act()
        for binding in step.bindings:
            self.bindings.discard(replace(binding, destination=of))
            self.act()

    def move(self, source: str, destination: str) -> None:
        for message in sorted(self.messages[source]):
            self.messages[destination].add(message)
            self.act()
            self.messages[source].discard(message)
            self.act()


def migrate(broker: ModelBroker, steps: list[Step] | None = None, new: Subscription = NEW) -> None:
    quiet: set[str] = set()
    while (step := next_step(new, broker.observe(), frozenset(quiet))) is not None:
        if steps is not None:
            steps.append(step)
        broker.do(step)
        if step.kind == "divert":
            quiet.discard(step.queue.name)
        if step.kind == "drain":
            quiet.add(step.queue.name)


def assert_migrated(broker: ModelBroker, before: set[str], new: Subscription = NEW) -> None:
    assert compare(new.topology(), broker.observe()) == []
    assert set(broker.queues) == {queue.name for queue in new.topology().queues}
    assert not any(
        binding.destination not in broker.queues
        for binding in broker.bindings
        if binding.to == "queue"
    )
    assert broker.everything == before | {
        f"number {number}" for number in range(1, broker.published + 1)
    }


@pytest.mark.parametrize("old", OLD, ids=str)
def test_a_migration_ends_with_the_new_topology_and_every_message(old: Subscription) -> None:
    broker = ModelBroker(old)
    before = broker.everything
    migrate(broker)
    assert_migrated(broker, before)


@pytest.mark.parametrize(("old", "new"), TO_AND_FROM_THE_BROKER, ids=kind_of)
def test_a_migration_to_the_brokers_own_retry_and_back_keeps_every_message(
    old: Subscription, new: Subscription
) -> None:
    broker = ModelBroker(old)
    broker.exchanges |= {exchange.name: exchange.type for exchange in new.topology().exchanges}
    before = broker.everything
    migrate(broker, new=new)
    assert_migrated(broker, before, new)
    assert not is_needed(new, broker.observe())


@settings(max_examples=100)
@given(st.sampled_from(TO_AND_FROM_THE_BROKER), st.lists(st.integers(0, 60), max_size=12))
def test_a_migration_to_the_brokers_own_retry_and_back_that_dies_anywhere_goes_on(
    ends: tuple[Subscription, Subscription], deaths: list[int]
) -> None:
    old, new = ends
    broker = ModelBroker(old)
    broker.exchanges |= {exchange.name: exchange.type for exchange in new.topology().exchanges}
    before = broker.everything
    for acts in deaths:
        broker.acts_left = acts
        try:
            migrate(broker, new=new)
        except KeyboardInterrupt:
            continue
    broker.acts_left = 10**6
    migrate(broker, new=new)
    assert_migrated(broker, before, new)


def test_the_retry_queue_goes_wherever_the_migration_has_died_once() -> None:
    for acts in range(60):
        broker = ModelBroker(NEW)
        before = broker.everything
        broker.acts_left = acts
        with contextlib.suppress(KeyboardInterrupt):
            migrate(broker, new=HELD_BACK)
        broker.acts_left = 10**6
        migrate(broker, new=HELD_BACK)
        assert_migrated(broker, before, HELD_BACK)


def test_a_queue_that_comes_to_dead_letter_has_its_retry_queue_before() -> None:
    steps: list[Step] = []
    migrate(ModelBroker(HELD_BACK), steps)
    order = [(step.place, step.kind) for step in steps]
    assert order[:2] == [("retry", "replace"), ("retry", "restore")]
    assert order.index(("retry", "restore")) < order.index(("main", "replace"))


def test_the_retry_queue_goes_once_nothing_is_rejected_into_it() -> None:
    steps: list[Step] = []
    migrate(ModelBroker(NEW), steps, HELD_BACK)
    order = [(step.place, step.kind) for step in steps]
    assert order.index(("main", "restore")) < order.index(("retry", "remove"))
    assert str(steps[order.index(("retry", "release"))]) == (
        "messages in shop@orders@retry@migrating go to shop@orders, and "
        "shop@orders@retry@migrating is deleted"
    )


def test_another_delay_of_the_brokers_own_retry_touches_the_main_queue_alone() -> None:
    steps: list[Step] = []
    migrate(ModelBroker(HELD_BACK), steps, TO_AND_FROM_THE_BROKER[-1][1])
    assert {step.place for step in steps} == {"main"}


@settings(max_examples=50)
@given(st.sampled_from(OLD), st.lists(st.integers(0, 60), max_size=12))
def test_a_migration_that_dies_anywhere_goes_on(old: Subscription, deaths: list[int]) -> None:
    broker = ModelBroker(old)
    before = broker.everything
    for acts in deaths:
        broker.acts_left = acts
        try:
            migrate(broker)
        except KeyboardInterrupt:
            continue
    broker.acts_left = 10**6
    migrate(broker)
    assert_migrated(broker, before)


def test_another_delay_touches_the_retry_queue_alone() -> None:
    steps: list[Step] = []
    migrate(ModelBroker(OLD[0]), steps)
    assert [(step.place, step.kind) for step in steps] == [
        ("retry", kind) for kind in ("divert", "drain", "replace", "restore", "return")
    ]
    assert str(steps[0]) == "messages for shop@orders@retry go to shop@orders@retry@migrating"


def test_the_main_queue_is_made_anew_only_when_nothing_comes_from_the_retry_queue() -> None:
    steps: list[Step] = []
    migrate(ModelBroker(OLD[1]), steps)
    order = [(step.place, step.kind) for step in steps if step.place != "failed"]
    assert order.index(("retry", "drain")) < order.index(("main", "divert"))
    assert (
        order.index(("main", "restore"))
        < order.index(("retry", "return"))
        < order.index(("main", "return"))
    )


def test_bindings_that_the_file_does_not_know_are_kept() -> None:
    broker = ModelBroker(OLD[1])
    extra = Binding("elsewhere", "shop@orders", "x.#")
    broker.bindings.add(extra)
    migrate(broker)
    assert extra in broker.bindings


def test_what_is_as_asked_for_needs_nothing() -> None:
    assert not is_needed(NEW, ModelBroker(NEW).observe())
    assert not is_needed(NEW, Observed({}, {}, frozenset()))
    assert pauses(NEW, ModelBroker(NEW).observe()) == ()


def test_it_says_beforehand_what_pauses() -> None:
    delay, kind = (pauses(NEW, ModelBroker(old).observe()) for old in OLD[:2])
    assert [sentence.partition(" wait longer")[0] for sentence in delay] == [
        "messages in shop@orders@retry"
    ]
    assert len(kind) == 3


def test_a_name_that_leaves_no_room_for_the_transit_queue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the transit queue name"):
        transit_queue("q" * 250)


def test_a_failed_queue_that_stays_as_it_is_gets_nothing() -> None:
    assert into_failed(NEW, ModelBroker(OLD[0]).observe()) == ()


def test_a_failed_queue_that_is_made_anew_gets_what_it_had_and_what_stood_in_for_it() -> None:
    smaller = replace(NEW, max_failed=2)
    assert into_failed(smaller, ModelBroker(NEW).observe()) == (
        "shop@orders@failed",
        "shop@orders@failed@migrating",
    )


def test_what_does_not_fit_into_the_new_failed_queue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has 3 messages, but may hold only 2"):
        check_room(replace(NEW, max_failed=2), 3)


@pytest.mark.parametrize("most", [None, 3, 4])
def test_what_fits_into_the_new_failed_queue_may_go(most: int | None) -> None:
    check_room(replace(NEW, max_failed=most), 3)


def test_it_says_beforehand_what_waits_and_what_comes_back_sooner() -> None:
    assert pauses(NEW, ModelBroker(HELD_BACK).observe())[0] == (
        "it waits for messages that the broker holds back in shop@orders, up to 30 s"
    )
    assert pauses(HELD_BACK, ModelBroker(NEW).observe())[0].startswith(
        "messages in shop@orders@retry come back once the new queue is there"
    )


def test_a_retry_queue_that_is_left_beside_the_new_main_queue_is_emptied_and_goes() -> None:
    broker, old = ModelBroker(HELD_BACK), ModelBroker(NEW)
    retry = "shop@orders@retry"
    broker.queues[retry], broker.messages[retry] = old.queues[retry], {"waits"}
    broker.bindings.add(Binding("master.retry", retry, "shop@orders"))
    before = broker.everything
    migrate(broker, new=HELD_BACK)
    assert_migrated(broker, before, HELD_BACK)
