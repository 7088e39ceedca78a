"""The index keeps one whole look at each queue, and whatever becomes of its files, it says nothing
that is half true."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deliveries import failed
from effort import effort, some_of
from kept_looks import KEPT_QUEUE, URL, index_in, keep, kept, look_at
from redrive.failures.store import index as index_module
from redrive.failures.store.index import Index, default_folder, forget
from redrive.failures.store.index_reader import IndexedMessages
from redrive.failures.store.index_writer import IndexWriter
from redrive.failures.store.kept_messages import IndexUnusable
from redrive.pubsub.url import BrokerURL
from redrive.topology.headers import Delivery


def numbered(count: int) -> list[Delivery]:
    return [failed(body=str(number).encode()) for number in range(count)]


def test_nothing_is_known_of_a_queue_that_was_not_looked_at(tmp_path: Path) -> None:
    assert index_in(tmp_path).find(KEPT_QUEUE) is None


def test_a_look_is_known_with_its_facts(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    look = index.find(KEPT_QUEUE)
    assert look is not None
    assert (look.queue, look.total, look.looked_at, look.missing) == (KEPT_QUEUE, 3, 3, 0)
    assert (look.who, look.broker) == ("ann@here as guest", "localhost:5672//")
    assert 0 <= look.age_seconds < 60


def test_a_look_replaces_the_former_one_of_its_queue_alone(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    keep(index, numbered(2), "another@failed")
    keep(index, numbered(5))
    assert (kept(index).count(), kept(index, "another@failed").count()) == (5, 2)
    assert len(list(index.folder.glob("*.parquet"))) == 2


def test_whoever_reads_a_look_that_is_replaced_reads_it_to_its_end(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    former = keep(index, numbered(2500))
    begun = next(former)
    keep(index, numbered(1))
    assert [begun.body, *(one.body for one in former)] == [one.body for one in numbered(2500)]


def test_an_empty_queue_is_known_to_be_empty(tmp_path: Path) -> None:
    found = keep(index_in(tmp_path), [])
    assert (found.count(), list(found)) == (0, [])


@pytest.mark.parametrize("change", [{"missing": 1}, {"missing": None}, {"total": 9}])
def test_a_look_that_did_not_see_all_replaces_nothing(
    tmp_path: Path, change: dict[str, int | None]
) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    data = tmp_path / "data"
    data.write_bytes(b"data")
    with pytest.raises(ValueError, match="not see all"):
        index.keep(replace(look_at(index, 1), **change), data)  # type: ignore[arg-type]
    assert kept(index).count() == 3


def test_what_is_kept_is_its_users_alone(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    rights = {
        stat.S_IMODE(path.stat().st_mode) for path in index.folder.iterdir() if path.is_file()
    }
    assert rights == {0o600}
    assert stat.S_IMODE(index.folder.stat().st_mode) == 0o700


def test_nothing_of_a_password_is_kept(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    assert all(b"secret" not in path.read_bytes() for path in index.folder.iterdir())


def test_each_virtual_host_has_its_own(tmp_path: Path) -> None:
    keep(index_in(tmp_path), numbered(3))
    other = Index(BrokerURL.parse("amqp://guest:guest@localhost/other"), tmp_path / "index")
    assert other.find(KEPT_QUEUE) is None
    same = Index(BrokerURL.parse("amqp://ann:pass@localhost/"), tmp_path / "index")
    assert same.find(KEPT_QUEUE) is not None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"ended_at": 7}', "\0" * 100, '{"a": ' * 5000],
)
def test_a_damaged_record_is_said_to_be_and_deleted(tmp_path: Path, text: str) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    index.record_of(KEPT_QUEUE).write_text(text)
    with pytest.raises(IndexUnusable, match="is damaged"):
        index.find(KEPT_QUEUE)
    assert index.find(KEPT_QUEUE) is None
    assert not list(index.folder.iterdir())


def test_a_record_names_no_file_elsewhere(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    record = index.record_of(KEPT_QUEUE)
    values = json.loads(record.read_text())
    record.write_text(json.dumps({**values, "file": "../../elsewhere.parquet"}))
    with pytest.raises(IndexUnusable, match="is damaged"):
        index.find(KEPT_QUEUE)


def test_messages_that_were_cut_are_damaged(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    data = next(index.folder.glob("*.parquet"))
    os.truncate(data, data.stat().st_size // 2)
    with pytest.raises(IndexUnusable, match="is damaged"):
        index.find(KEPT_QUEUE)


def test_messages_that_are_gone_are_not_known(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    next(index.folder.glob("*.parquet")).unlink()
    assert index.find(KEPT_QUEUE) is None


def test_what_another_version_has_written_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    monkeypatch.setattr(index_module, "_FORMAT", 0)
    with pytest.raises(IndexUnusable, match="another version"):
        index.find(KEPT_QUEUE)
    assert index.find(KEPT_QUEUE) is None


def test_the_oldest_look_goes_first_when_there_is_no_room(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    for place, queue in enumerate(("a@failed", "b@failed", "c@failed")):
        keep(index, numbered(200), queue)
        os.utime(index.record_of(queue), (place, place))
    sizes = sum(path.stat().st_size for path in index.folder.glob("*.parquet"))
    small = index_in(tmp_path, sizes * 2 // 3 + 10)
    os.utime(index.record_of("c@failed"))
    keep(small, numbered(200), "c@failed")
    assert small.find("a@failed") is None
    assert small.find("b@failed") is not None
    assert small.find("c@failed") is not None
    assert len(list(index.folder.glob("*.parquet"))) == 2


def test_what_is_forgotten_leaves_no_file(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    keep(index, numbered(3))
    index.forget(KEPT_QUEUE)
    index.forget(KEPT_QUEUE)
    assert index.find(KEPT_QUEUE) is None
    assert not list(index.folder.iterdir())


def test_a_queue_is_forgotten_by_its_broker_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    index = Index(URL, default_folder())
    keep(index, numbered(3))
    forget(URL, KEPT_QUEUE)
    assert index.find(KEPT_QUEUE) is None


KILLED = """
import os, signal, sys
from pathlib import Path
from deliveries import failed
from kept_looks import KEPT_QUEUE, index_in, keep
from redrive.failures.store import index as module
from redrive.failures.store import index_writer

index, calls, stop_at = index_in(Path(sys.argv[1])), 0, int(sys.argv[2])
keep(index, [failed(body=b"former")] * 3)

def counting(function):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call

for place, name in (
    (os, "replace"), (os, "fdopen"), (os, "fsync"), (index_writer, "_rows_given"),
    (module, "_file_in"), (module.Index, "_make_room"), (module.Index, "keep"),
):
    setattr(place, name, counting(getattr(place, name)))
keep(index, [failed(body=b"next")] * 2500)
print(calls)
"""
"""A process that keeps two looks, and is killed at the given step of the second."""


def killed_at(folder: Path, step: int) -> "subprocess.CompletedProcess[str]":
    tests = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(step)],
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.nightly("one that follows a queue is killed each time")
def test_a_process_that_is_killed_leaves_the_former_look_or_the_next(tmp_path: Path) -> None:
    whole = killed_at(tmp_path / "whole", 10**9)
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    seen = set()
    for step in some_of(range(1, steps + 1)):
        folder = tmp_path / str(step)
        done = killed_at(folder, step)
        assert done.returncode == -signal.SIGKILL, done.stderr
        index = index_in(folder)
        found = index.find(KEPT_QUEUE)
        assert found is not None
        bodies = [one.body for one in kept(index)]
        assert bodies in ([b"former"] * 3, [b"next"] * 2500)
        seen.add(len(bodies))
        # The next look takes away what is left of the one that was killed.
        keep(index, numbered(1))
        assert not list(index.folder.glob("fill-*"))
        assert kept(index).count() == 1
    assert seen == {3, 2500}


def test_two_processes_fill_and_ask_at_the_same_time(tmp_path: Path) -> None:
    tests = Path(__file__).parents[3]
    program = (
        "import sys; from pathlib import Path; from deliveries import failed;"
        "from kept_looks import index_in, keep\n"
        f"for count in range({effort(4, nightly=12)}):\n"
        "    keep(index_in(Path(sys.argv[1])), [failed()] * (count * 100 + 1))"
    )
    filling = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(tests)},
        )
        for _ in range(2)
    ]
    index, answers = index_in(tmp_path), 0
    while any(process.poll() is None for process in filling) or not answers:
        # Replaced between two steps of this loop: then it is looked at anew.
        with contextlib.suppress(IndexUnusable):
            look = index.find(KEPT_QUEUE)
            if look is not None:
                found = IndexedMessages(index, look)
                assert sum(1 for _ in found) == found.count()
                answers += 1
    assert [process.wait() for process in filling] == [0, 0]
    assert answers
    assert index.find(KEPT_QUEUE) is not None


def test_a_writer_that_is_left_keeps_nothing(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    with IndexWriter(index):
        pass
    assert index.find(KEPT_QUEUE) is None
    assert not list(index.folder.iterdir())
