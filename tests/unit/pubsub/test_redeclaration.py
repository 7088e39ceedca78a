"""What a running subscriber finds missing is declared, once at a time."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from redrive.errors import PermissionDenied
from redrive.pubsub.redeclaration import Redeclarer
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy
from unit.pubsub.fake_wire import FakeLink

PATIENCE = 60
CONSTANT = Subscription("shop@orders", ("order.*",), ExchangeFamily(), RetryPolicy())


class Nobody:
    """A listener that nothing is told."""

    def ended(self) -> None:
        """The link has ended."""


class Declaring:
    """A broker on which declaring takes until a test lets it end."""

    def __init__(self) -> None:
        self.link = FakeLink(Nobody())  # type: ignore[arg-type]
        self.declared: list[int] = []
        self.error: Exception | None = None
        self.may_end = threading.Event()
        self.threads: list[str] = []
        self.redeclarer = Redeclarer(CONSTANT, self.declare, self.link)

    def declare(self, levels: int, _: bool) -> None:
        """Declares so many levels of the ladder."""
        assert self.may_end.wait(PATIENCE)
        self.threads.append(threading.current_thread().name)
        self.declared.append(levels)
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Lets it end, and runs what the link's thread is to run then."""
        self.may_end.set()
        for thread in threading.enumerate():
            if thread.name == "redrive-mend":
                thread.join(PATIENCE)
        while self.link.calls:
            self.link.calls.popleft()()


@pytest.fixture
def declaring() -> Iterator[Declaring]:
    found = Declaring()
    yield found
    found.end()


def test_it_is_declared_on_a_thread_of_its_own_and_told_on_the_links(declaring: Declaring) -> None:
    done: list[str] = []
    declaring.redeclarer.begin(then=lambda: done.append(threading.current_thread().name))
    assert declaring.redeclarer.under_way
    assert done == []
    declaring.end()
    assert declaring.threads == ["redrive-mend"]
    assert done == [threading.current_thread().name]
    assert not declaring.redeclarer.under_way


def test_whoever_asks_meanwhile_waits_for_the_same_declaring(declaring: Declaring) -> None:
    done: list[int] = []
    for number in range(3):
        declaring.redeclarer.begin(then=lambda number=number: done.append(number))  # type: ignore[misc]
    declaring.end()
    assert declaring.declared == [0]
    assert done == [0, 1, 2]


def test_a_retry_that_needs_more_of_the_ladder_has_it_declared(declaring: Declaring) -> None:
    assert declaring.redeclarer.lacks(3)
    declaring.redeclarer.begin(3)
    declaring.end()
    assert declaring.declared == [3]
    assert not declaring.redeclarer.lacks(3)
    assert declaring.redeclarer.lacks(4)


def test_what_was_declared_before_is_declared_with_what_is_missing_now(
    declaring: Declaring,
) -> None:
    for levels in (3, 1):
        declaring.redeclarer.begin(levels)
        declaring.end()
    assert declaring.declared == [3, 3]


def test_what_is_refused_is_told_and_tried_again(
    declaring: Declaring, caplog: pytest.LogCaptureFixture
) -> None:
    declaring.error = PermissionDenied("the user may not configure it", "Grant it.")
    done: list[bool] = []
    for _ in range(2):
        declaring.redeclarer.begin(then=lambda: done.append(True))
        declaring.end()
    assert done == [True, True]
    assert caplog.text.count("queue shop@orders: its topology could not be declared") == 2


def test_where_nothing_may_be_declared_nothing_is_missing() -> None:
    redeclarer = Redeclarer(CONSTANT, None, FakeLink(Nobody()))  # type: ignore[arg-type]
    redeclarer.begin(3, lambda: None)
    assert not redeclarer.lacks(3)
    assert not redeclarer.under_way


def test_a_policy_whose_delays_are_on_the_ladder_has_their_levels_from_the_start() -> None:
    policy = RetryPolicy(backoff=[timedelta(seconds=1), timedelta(seconds=9)])
    subscription = Subscription("shop@orders", ("order.*",), ExchangeFamily(), policy)
    redeclarer = Redeclarer(subscription, lambda *_: None, FakeLink(Nobody()))  # type: ignore[arg-type]
    assert not redeclarer.lacks(1)
    assert redeclarer.lacks(40)
