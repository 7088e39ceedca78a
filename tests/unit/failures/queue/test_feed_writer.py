"""What a follower writes beside a look: bounded, and whatever becomes of its process or its disk,
nothing that is half true."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deliveries import failed
from effort import some_of
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.queue.failure_feed import Copy
from redrive.failures.queue.feed_writer import FeedWriter
from redrive.failures.store.index import Index
from redrive.failures.store.index_changes import ADDED, added_to, changes_since
from redrive.failures.store.index_reader import IndexedMessages
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.names import ExchangeFamily


def keeper_of(index: Index) -> FeedWriter:
    return FeedWriter(index, Connector("amqp://localhost", "test"), ExchangeFamily())


def come(keeper: FeedWriter, *bodies: bytes) -> None:
    """Has failures come just now."""
    now = datetime.now(UTC)
    keeper._keep([Copy(FailedMessage(failed(body=body)), now) for body in bodies], None)


def bodies(index: Index) -> list[bytes]:
    look = index.find(KEPT_QUEUE)
    assert look is not None
    return [one.body for one in IndexedMessages(index, look, changes=changes_since(index, look))]


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has no list of files be put in place."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(os, "replace", full)
        yield


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = index_in(tmp_path)
    keep(index, [failed(body=b"seen")])
    return index


@pytest.mark.nightly("each portion has its test")
def test_what_comes_in_small_portions_is_in_few_files(index: Index) -> None:
    keeper = keeper_of(index)
    expected = [b"seen"]
    for number in range(12):
        some = [f"{number}-{each}".encode() for each in range(1000)]
        come(keeper, *some)
        expected += some
    assert bodies(index) == expected
    assert len(added_to(index, KEPT_QUEUE).files) <= 3


def test_a_file_of_a_hundred_is_not_written_again(index: Index) -> None:
    keeper = keeper_of(index)
    come(keeper, *(str(number).encode() for number in range(100)))
    (first,) = added_to(index, KEPT_QUEUE).files
    come(keeper, *(str(number).encode() for number in range(100, 110)))
    come(keeper, *(str(number).encode() for number in range(110, 120)))
    former, (_, count) = added_to(index, KEPT_QUEUE).files
    assert (former, count) == (first, 20)


def test_what_came_is_counted_with_what_a_look_saw(index: Index) -> None:
    look = index.find(KEPT_QUEUE)
    assert look is not None
    before = IndexedMessages(index, look, changes=changes_since(index, look)).counts()
    come(keeper_of(index), b"1", b"2")
    after = IndexedMessages(index, look, changes=changes_since(index, look)).counts()
    assert (sum(before.values()), sum(after.values())) == (1, 3)


def test_another_process_goes_on_where_one_has_ended(index: Index) -> None:
    come(keeper_of(index), b"one")
    come(keeper_of(index), b"two")
    assert bodies(index) == [b"seen", b"one", b"two"]


def test_what_comes_to_a_queue_that_nobody_looked_at_waits_for_a_look(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    index.folder.mkdir(parents=True)
    keeper = keeper_of(index)
    come(keeper, b"early")
    assert list(index.folder.glob(f"*{ADDED}")) == []
    keep(index, [failed(body=b"early")])
    come(keeper, b"late")
    assert bodies(index) == [b"early", b"late"]


def test_a_full_disk_is_said_and_what_was_known_is_still_true(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(index)
    come(keeper, b"one")

    with full_disk(monkeypatch):
        come(keeper, b"two")
        assert keeper.problem == os.strerror(errno.ENOSPC)
        assert bodies(index) == [b"seen", b"one"]
    come(keeper, b"three")
    assert keeper.problem == ""
    assert bodies(index) == [b"seen", b"one", b"two", b"three"]


def test_what_came_while_the_disk_was_full_is_there_once_it_is_not(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keeper_of(index)
    come(keeper, b"one")

    with full_disk(monkeypatch):
        come(keeper, b"two")
        come(keeper)
        assert keeper.problem
    come(keeper)  # nothing more fails
    assert not keeper.problem
    assert bodies(index) == [b"seen", b"one", b"two"]


def test_what_comes_is_bounded_on_the_disk(tmp_path: Path) -> None:
    index = index_in(tmp_path, most_bytes=200_000)
    keep(index, [failed(body=b"seen")])
    keeper = keeper_of(index)
    for number in range(60):
        come(keeper, *(os.urandom(1000) + bytes([number]) for _ in range(5)))
    assert "more than may be kept" in keeper.problem
    named = added_to(index, KEPT_QUEUE).files
    assert sum((index.folder / name).stat().st_size for name, _ in named) < 200_000


KILLED = """
import os, signal, sys
from pathlib import Path
from kept_looks import index_in
from redrive.failures.queue import feed_writer
from redrive.failures.store import index_writer
from unit.failures.queue.test_feed_writer import come, keeper_of

index, calls, stop_at = index_in(Path(sys.argv[1])), 0, int(sys.argv[2])

def counting(function):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call

for place, name in (
    (os, "replace"), (index_writer, "_rows_given"), (index_writer.IndexWriter, "add"),
    (feed_writer.FeedWriter, "_write_manifest"),
):
    setattr(place, name, counting(getattr(place, name)))
keeper = keeper_of(index)
come(keeper, b"one")
come(keeper, b"two")
print(calls)
"""


def test_a_follower_that_is_killed_at_any_step_leaves_what_was_told_or_is(
    index: Index,
) -> None:
    whole = [b"seen", b"one", b"two"]
    to_its_end = killed_at(index, 10**9)
    assert to_its_end.returncode == 0, to_its_end.stderr
    assert bodies(index) == whole
    steps = int(to_its_end.stdout)
    assert steps > 5
    for step in some_of(range(1, steps + 1)):
        index.forget(KEPT_QUEUE)
        keep(index, [failed(body=b"seen")])
        done = killed_at(index, step)
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = bodies(index)
        assert found == whole[: len(found)]


def killed_at(index: Index, step: int) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(index.folder.parent.parent), str(step)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
