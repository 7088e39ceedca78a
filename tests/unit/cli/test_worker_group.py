"""When a worker is started again, and when all of them end."""

import signal
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from redrive.cli import worker_group
from redrive.cli.worker_group import WorkerGroup


class FakeWorker:
    """A process that ends when the test says so."""

    started: list["FakeWorker"]
    now: float

    def __init__(self, words: Sequence[str], name: str) -> None:
        self.words = words
        self.name = name
        self.began = FakeWorker.now
        self.code: int | None = None
        self.is_stopping = self.was_left = False
        FakeWorker.started.append(self)

    def stop(self) -> None:
        """It is told to."""
        self.is_stopping = True

    def leave(self) -> None:
        """It is told to, at once."""
        self.was_left = True


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """All that were started; the clock stands still but for a group's pauses."""
    FakeWorker.started, FakeWorker.now = [], 1000.0
    monkeypatch.setattr(worker_group, "WorkerProcess", FakeWorker)
    clock = SimpleNamespace(monotonic=lambda: FakeWorker.now, sleep=pass_time)
    monkeypatch.setattr(worker_group, "time", clock)
    return FakeWorker.started


def pass_time(seconds: float) -> None:
    """Turns the clock."""
    FakeWorker.now += seconds


def group_of(count: int) -> WorkerGroup:
    """A group of these, each told its number; they run."""
    group = WorkerGroup(count, lambda number: [str(number)])
    assert not group._is_done()
    return group


def seconds_until_another(group: WorkerGroup, workers: list[FakeWorker]) -> float:
    """How long it takes until one more is started."""
    count, began = len(workers), FakeWorker.now
    while len(workers) == count:
        assert not group._is_done()
    return workers[-1].began - began


def about(*seconds: float) -> object:
    """These times, as exact as a group looks at its workers."""
    times = list(seconds)
    return pytest.approx(times if len(times) > 1 else times[0], abs=0.11)


def test_each_worker_is_told_its_number(workers: list[FakeWorker]) -> None:
    group_of(3)

    assert [one.words for one in workers] == [["1"], ["2"], ["3"]]


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGSEGV, 3, -77])
def test_a_worker_that_dies_is_started_again_with_its_number(
    workers: list[FakeWorker], code: int
) -> None:
    group = group_of(2)
    workers[1].code = code

    assert seconds_until_another(group, workers) == about(0.1)
    assert workers[2].words == ["2"]
    assert not workers[0].is_stopping


def test_one_that_keeps_dying_is_started_after_longer_and_longer_pauses(
    workers: list[FakeWorker],
) -> None:
    group = group_of(1)
    pauses = []
    for _ in range(10):
        workers[-1].code = -signal.SIGKILL
        pauses.append(seconds_until_another(group, workers))

    assert pauses == about(0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30)


def test_one_that_has_lived_well_is_started_again_soon(workers: list[FakeWorker]) -> None:
    group = group_of(1)
    for _ in range(4):
        workers[-1].code = -signal.SIGKILL
        seconds_until_another(group, workers)
    pass_time(61)
    workers[-1].code = -signal.SIGKILL

    assert seconds_until_another(group, workers) == about(0.1)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_one_that_is_done_or_can_not_run_ends_them_all_with_its_code(
    workers: list[FakeWorker], code: int
) -> None:
    group = group_of(2)
    workers[0].code = code
    assert not group._is_done()
    assert workers[1].is_stopping
    workers[1].code = 0

    assert group._is_done()
    assert group._code == code
    assert len(workers) == 2


def test_one_that_was_started_again_and_finds_no_broker_is_started_once_more(
    workers: list[FakeWorker],
) -> None:
    """The others run, and wait for the broker to come back."""
    group = group_of(2)
    workers[0].code = -signal.SIGKILL
    seconds_until_another(group, workers)
    workers[2].code = 2

    assert seconds_until_another(group, workers) == about(0.2)
    assert not workers[1].is_stopping


def test_none_is_started_again_once_they_are_to_end(workers: list[FakeWorker]) -> None:
    group = group_of(2)
    workers[0].code = -signal.SIGKILL
    assert not group._is_done()
    group._stop()
    workers[1].code = -signal.SIGTERM

    assert group._is_done()
    assert group._code == 0
    assert len(workers) == 2
