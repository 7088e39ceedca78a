"""The whole job, with its driver or an executor killed -9: run again it goes on, and the identity
holds."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dead_letters import DeadLetters
from effort import IS_NIGHTLY
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.journal import Journal
from redrive.failures.queue.snapshot import Snapshot
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.drain import rows_drained
from redrive.spark_reprocess.sample import samples
from redrive.topology.headers import ERROR_TYPE
from spark.support import QUEUE, Failures
from waiting import wait_until

PATIENCE = 900
COUNT = 1500
COUNT_OF_DEAD = 400
SLOW, FAST = 10, 10_000
"""Messages a second: in what is killed, so that it would take half a minute, and in all else."""
WHERE = "error_type = 'TimeoutError'"
PROGRAM = Path(__file__).with_name("job_program.py")


@contextlib.contextmanager
def job(
    master: str,
    url: str,
    archive: Archive,
    *settings: str,
    rate: int = FAST,
    restore_rate: int = FAST,
    where: str = "true",
) -> "Iterator[subprocess.Popen[str]]":
    """The job as a process, with all that it starts in one group."""
    command = [
        sys.executable,
        str(PROGRAM),
        master,
        url,
        archive.storage.uri,
        str(rate),
        str(restore_rate),
        where,
        *settings,
    ]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        yield process
    finally:
        kill_all(process)
        if process.stdout is not None:
            process.stdout.close()


def kill_all(process: "subprocess.Popen[str]") -> None:
    """Kills a job with all that it started, -9."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def identity_of(process: "subprocess.Popen[str]") -> dict[str, object]:
    """What a job says at its end."""
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    found: dict[str, object] = ast.literal_eval(out.strip().splitlines()[-1])
    return found


def sent(failures: Failures) -> int:
    """How many messages are in the main queue."""
    return failures.depths()[0]


def restored(failures: Failures) -> int:
    """How many messages are in the failed queue."""
    return failures.depths()[1]


def drained(archive: Archive) -> int:
    """How many rows are in the archive."""
    runs = archive.runs()
    return rows_drained(archive, runs[-1]) if runs else 0


def until(process: "subprocess.Popen[str]", condition: Callable[[], bool], what: str) -> None:
    """Waits until a job is so far, and has not ended before."""
    wait_until(lambda: condition() or process.poll() is not None, what, PATIENCE)
    assert process.poll() is None, process.communicate()[0]


def assert_each_is_there(failures: Failures, identity: dict[str, object]) -> None:
    """Each message is in the main queue, and no more twice than the report says."""
    times = Counter(one.number for one in failures.in_main())
    assert sorted(times) == list(range(COUNT))
    assert identity["holds"]
    assert identity["drained"] == identity["requeued"] == COUNT
    doubled = sum(times.values()) - COUNT
    assert doubled <= int(str(identity["possible_duplicates"]))


def test_a_driver_that_is_killed_in_each_phase_is_taken_up(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    wanted = {
        number
        for number, made in enumerate(samples(QUEUE, COUNT))
        if made.properties.headers.get(ERROR_TYPE) == "TimeoutError"
    }

    def killed(condition: Callable[[], bool], what: str, rate: int) -> None:
        with job(
            "local[1]", rabbitmq_url, archive, rate=rate, restore_rate=SLOW, where=WHERE
        ) as process:
            until(process, condition, what)
            kill_all(process)

    if IS_NIGHTLY:
        killed(lambda: drained(archive) > 0, "the draining is under way", SLOW)
        assert (drained(archive) < COUNT, sent(failures)) == (True, 0)
    killed(lambda: sent(failures) > 20, "the sending is under way", SLOW)
    assert sent(failures) < len(wanted)
    if IS_NIGHTLY:
        killed(lambda: restored(failures) > 20, "the restoring is under way", FAST)
        assert restored(failures) < COUNT - len(wanted)
    (run,) = archive.runs()
    assert not archive.is_ended(run)
    with job("local[1]", rabbitmq_url, archive, where=WHERE) as process:
        identity = identity_of(process)

    again, left = (
        Counter(one.number for one in failures.in_main()),
        Counter(one.number for one in failures.in_failed()),
    )
    assert again.keys() == wanted
    assert left.keys() == set(range(COUNT)) - wanted
    assert (identity["holds"], identity["drained"]) == (True, COUNT)
    assert (identity["requeued"], identity["restored"]) == (len(wanted), COUNT - len(wanted))
    assert again.total() + left.total() - COUNT <= int(str(identity["possible_duplicates"]))


@pytest.mark.nightly("a driver over a subscription is killed each time")
def test_a_driver_that_is_killed_over_a_dead_letter_queue_is_taken_up_as_the_same_job(
    archive: Archive,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = DeadLetters(rabbitmq_url)
    dead.declare()
    wanted = dead.fail(COUNT_OF_DEAD)
    strays = [f"stray-{number}" for number in range(5)]
    for stray in strays:
        dead.put(b"{}", stray)
    file = tmp_path / "journal.sqlite3"
    monkeypatch.setenv("REDRIVE_TEST_QUEUE", dead.place)
    monkeypatch.setenv("REDRIVE_TEST_JOURNAL", str(file))
    monkeypatch.setenv("REDRIVE_TEST_MANAGEMENT_URL", rabbitmq_management_url)

    def killed(condition: Callable[[], bool], what: str) -> JobRecord:
        with job("local[1]", rabbitmq_url, archive, rate=SLOW) as process:
            until(process, condition, what)
            kill_all(process)

        def interrupted() -> JobRecord | None:
            with Journal(rabbitmq_url, file) as journal:
                found = journal.jobs()[0]
            return found if found.state is State.INTERRUPTED else None

        found = wait_until(interrupted, "the broker has seen that it is gone")
        assert found is not None
        return found

    drained_job = killed(lambda: drained(archive) > 0, "the draining is under way")
    assert dead.depth(dead.queue) == 0
    sent_job = killed(lambda: dead.depth(dead.queue) > 20, "the sending is under way")
    assert dead.depth(dead.queue) < COUNT_OF_DEAD
    with job("local[1]", rabbitmq_url, archive) as process:
        identity = identity_of(process)

    times = Counter(id_ for id_, _ in dead.drain())
    assert sorted(times) == sorted(wanted)
    assert times.total() - len(wanted) <= int(str(identity["possible_duplicates"]))
    assert (identity["holds"], identity["drained"]) == (True, len(wanted) + len(strays))
    assert (identity["requeued"], identity["unchecked"]) == (len(wanted), len(strays))
    assert Counter(id_ for id_, _ in dead.drain(dead.place)) == Counter()
    left = {message.message_id for message in Snapshot(Path(archive.storage.uri)).browse()}
    assert left == set(strays)
    assert (drained_job.kind, sent_job.kind) == ("spark drain", "spark requeue")
    with Journal(rabbitmq_url, tmp_path / "theirs.sqlite3") as journal:
        done, drain = journal.jobs()
    assert (done.id, done.state, done.sent) == (sent_job.id, State.DONE, len(wanted))
    assert (drain.kind, drain.state, drain.sent) == (
        "spark drain",
        State.DONE,
        identity["rows"],
    )


@pytest.mark.nightly("fills a disk")
def test_a_draining_whose_disk_is_full_is_taken_up_once_there_is_room(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    place = tmp_path / "small"
    place.mkdir()
    # A disk that only this process sees, and that grows once it was full.
    script = f'mount -t tmpfs -o size=60k tmpfs {place} && exec "$@"'
    command = [
        sys.executable,
        str(PROGRAM),
        "local[1]",
        rabbitmq_url,
        str(place / "archive"),
        str(FAST),
        str(FAST),
        "true",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROGRAM.parent.parent),
        "REDRIVE_TEST_REMEDY": f"mount -o remount,size=100m {place} && echo More room",
    }
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment,
    )
    first, _, second = done.stdout.partition("More room")
    assert "No space left on device" in first, done.stdout
    assert done.returncode == 0, done.stdout
    assert_each_is_there(failures, ast.literal_eval(second.strip().splitlines()[-1]))
    assert failures.depths()[1] == 0
