"""Lanes keep the order of each key, whatever fails, crashes and comes back in the meantime."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.pubsub.lanes import BlockedKey, Lanes


@dataclass
class Copy:
    """A message of a queue."""

    key: str
    number: int
    returns: int = 0


@dataclass
class Worker:
    """What a consumer has in hand, in the order of its delivery tags."""

    lanes: Lanes[Copy]
    in_hand: list[Copy] = field(default_factory=list)
    running: list[Copy] = field(default_factory=list)

    def take(self, copy: Copy, *, redelivered: bool) -> None:
        """Take a delivery."""
        self.in_hand.append(copy)
        self.begin(self.lanes.add(copy, copy.key, copy.returns if redelivered else None))

    def begin(self, ready: Iterable[Copy]) -> None:
        """Begin what is ready; never two messages of one key."""
        self.running += ready
        keys = [copy.key for copy in self.running]
        assert len(keys) == len(set(keys))


class World:
    """A quorum queue with a single active consumer, as it was measured: what was returned comes
    before what is new, in the order in which it was returned."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.fresh: deque[Copy] = deque()
        self.returned: deque[Copy] = deque()
        self.published: dict[str, list[int]] = defaultdict(list)
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.worker = Worker(Lanes(prefetch))

    def publish(self, key: str) -> None:
        """Publish the next message of a key."""
        number = len(self.published[key])
        self.published[key].append(number)
        self.fresh.append(Copy(key, number))

    def deliver(self) -> None:
        """Deliver as many messages as there is room for; nothing more comes for a while."""
        worker = self.worker
        while len(worker.in_hand) < self.prefetch and (self.returned or self.fresh):
            redelivered = bool(self.returned)
            copy = (self.returned or self.fresh).popleft()
            worker.take(copy, redelivered=redelivered)
        if worker.lanes.collected is not None:
            worker.begin(worker.lanes.all_are_back())

    def succeed(self, copy: Copy) -> None:
        """A handler returns: its message is acked."""
        self._end(copy)
        self.handled[copy.key].append(copy.number)
        self.worker.begin(self.worker.lanes.done(copy.key))

    def fail(self, copy: Copy) -> None:
        """A handler raises: its message goes back, and comes again before all others."""
        self._end(copy)
        self.worker.lanes.goes_back(copy.key, 0.0)
        copy.returns += 1
        self.returned.append(copy)

    def crash(self) -> None:
        """The worker dies, and another one takes its place."""
        for copy in self.worker.in_hand:
            copy.returns += 1
            self.returned.append(copy)
        self.worker = Worker(Lanes(self.prefetch))

    def _end(self, copy: Copy) -> None:
        self.worker.running.remove(copy)
        self.worker.in_hand.remove(copy)


@given(
    st.integers(1, 6),
    st.lists(st.sampled_from("aab"), min_size=4, max_size=12),
    st.lists(
        st.tuples(st.sampled_from(["end", "fail", "fail", "crash"]), st.integers(0, 9)),
        min_size=8,
        max_size=30,
    ),
)
def test_each_key_is_handled_in_the_order_in_which_it_was_published(
    prefetch: int, keys: list[str], acts: list[tuple[str, int]]
) -> None:
    world = World(prefetch)
    for key in keys:
        world.publish(key)
    for act, which in acts:
        world.deliver()
        running = world.worker.running
        if act == "crash":
            world.crash()
        elif running:
            copy = running[which % len(running)]
            (world.succeed if act == "end" else world.fail)(copy)
    while world.handled != world.published:
        world.deliver()
        world.succeed(world.worker.running[0])
    assert not world.worker.in_hand
    assert world.worker.lanes.waiting == 0


def lanes_with(*keys: str, room: int = 9) -> tuple[Lanes[int], list[int]]:
    """Lanes that got new messages with these keys, numbered from 0, and those whose turn it is."""
    lanes: Lanes[int] = Lanes(room)
    ready = [one for number, key in enumerate(keys) for one in lanes.add(number, key, None)]
    return lanes, ready


def test_other_keys_go_on_beside_one_that_waits() -> None:
    lanes, ready = lanes_with("a", "b", "a")
    assert ready == [0, 1]
    lanes.goes_back("a", 5.0)
    assert list(lanes.done("b")) == []
    assert list(lanes.add(3, "b", None)) == [3]
    assert list(lanes.add(4, "a", None)) == []
    assert lanes.blocked() == [BlockedKey("a", 5.0, 2)]
    assert list(lanes.add(0, "a", 1)) == [0]
    assert list(lanes.done("a")) == [2]
    assert lanes.blocked() == []


def test_a_key_waits_since_its_first_failure() -> None:
    lanes, _ = lanes_with("a")
    lanes.goes_back("a", 5.0)
    list(lanes.add(0, "a", 1))
    lanes.goes_back("a", 9.0)
    assert lanes.blocked() == [BlockedKey("a", 5.0, 0)]


def test_messages_without_a_key_share_a_lane() -> None:
    lanes: Lanes[int] = Lanes(9)
    assert [*lanes.add(0, None, None), *lanes.add(1, None, None)] == [0]


def test_what_came_back_waits_until_all_of_it_is_there() -> None:
    lanes: Lanes[int] = Lanes(9)
    assert [*lanes.add(3, "a", 1), *lanes.add(1, "a", 2)] == []
    assert (lanes.collected, lanes.waiting) == (2, 2)
    assert list(lanes.add(5, "b", None)) == [1, 5]
    assert list(lanes.done("a")) == [3]
    assert lanes.collected is None


def test_with_the_prefetch_full_nothing_more_can_come_back() -> None:
    lanes: Lanes[int] = Lanes(2)
    assert [*lanes.add(3, "a", 1), *lanes.add(1, "a", 2)] == [1]


def test_lanes_that_are_empty_take_no_memory() -> None:
    lanes: Lanes[int] = Lanes(9)
    for number in range(1000):
        assert list(lanes.add(number, str(number), None)) == [number]
        assert list(lanes.done(str(number))) == []
    assert not lanes._lanes


@pytest.mark.parametrize("collecting", [True, False])
def test_what_waits_is_given_back_when_it_ends(collecting: bool) -> None:
    lanes, _ = lanes_with("a", "a") if not collecting else (Lanes[int](9), [])
    if collecting:
        list(lanes.add(1, "a", 1))
    assert lanes.drop_waiting() == [1]
    assert lanes.waiting == 0
    assert list(lanes.done("a")) == []


def parking(*, held: bool = False) -> Lanes[str]:
    """Lanes in which what begins with `!` goes first."""
    return Lanes(9, lambda item: item.startswith("!"), held=held)


def test_what_goes_first_is_handled_before_what_came_since() -> None:
    lanes = parking()
    ready = [one for item in ("new", "!1", "new2", "!2") for one in lanes.add(item, "a", None)]
    assert ready == ["new"]
    assert list(lanes.defer("new", "a")) == ["!1"]
    assert list(lanes.done("a")) == ["!2"]
    assert list(lanes.done("a")) == ["new"]
    assert list(lanes.done("a")) == ["new2"]
    assert list(lanes.done("a")) == []
    assert lanes.waiting == 0


def test_what_was_put_back_waits_for_the_next_that_goes_first() -> None:
    lanes = parking()
    list(lanes.add("new", "a", None))
    assert list(lanes.defer("new", "a")) == []
    assert list(lanes.add("new2", "a", None)) == []
    assert list(lanes.add("!1", "a", None)) == ["!1"]
    assert list(lanes.done("a")) == ["new"]


def test_what_was_put_back_can_be_asked_for() -> None:
    lanes = parking()
    list(lanes.add("new", "a", None))
    list(lanes.defer("new", "a"))
    assert lanes.waiting == 1
    assert list(lanes.wait_no_longer()) == ["new"]
    assert (lanes.waiting, list(lanes.wait_no_longer())) == (0, [])


def test_nothing_is_handled_before_it_may_begin() -> None:
    lanes = parking(held=True)
    assert [*lanes.add("2", "a", 1), *lanes.add("1", "a", 2), *lanes.add("3", "b", None)] == []
    assert lanes.collected == 3
    assert list(lanes.begin()) == ["1", "3"]
    assert lanes.collected is None


def test_what_may_begin_waits_all_the_same_until_all_is_back() -> None:
    lanes = parking(held=True)
    assert [*lanes.begin(), *lanes.add("1", "a", 2)] == []
    assert list(lanes.all_are_back()) == ["1"]


def test_lanes_stand_still_if_everything_in_hand_waits_for_a_retry() -> None:
    lanes, _ = lanes_with("a", "a", "b", room=3)
    told = [lanes.stand_still]
    lanes.goes_back("a", 0.0)
    told.append(lanes.stand_still)
    lanes.goes_back("b", 0.0)
    told.append(lanes.stand_still)
    assert list(lanes.add(2, "b", 1)) == [2]
    told.append(lanes.stand_still)
    assert told == [False, False, True, False]
