"""The whole job, with its driver or an executor killed -9: run again it goes on, and the identity holds."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.support import wait_until
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.draining import rows_drained
from redrive.spark_reprocess.sample import samples
from redrive.testing import Broker
from redrive.topology.headers import ERROR_TYPE
from spark.support import QUEUE, Failures

PATIENCE = 400
COUNT = 6000
PROGRAM = Path(__file__).with_name("job_program.py")


@contextlib.contextmanager
def job(
    master: str, url: str, archive: Archive, *settings: str, rate: int = 1000, where: str = "true"
) -> "Iterator[subprocess.Popen[str]]":
    """The job as a process, with all that it starts in one group."""
    command = [sys.executable, str(PROGRAM), master, url, archive.storage.uri, str(rate), where, *settings]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment
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


def is_planning(archive: Archive) -> bool:
    """Whether all is drained, which is what comes before the plan."""
    return any(archive.is_drained(run) for run in archive.runs())


def drained(archive: Archive) -> int:
    """How many rows are in the archive."""
    runs = archive.runs()
    return rows_drained(archive, runs[-1]) if runs else 0


def until(process: "subprocess.Popen[str]", condition: Callable[[], bool], what: str) -> None:
    """Waits until a job is so far, and has not ended before."""
    wait_until(lambda: condition() or process.poll() is not None, what, PATIENCE)
    assert process.poll() is None, process.communicate()[0]


def executors(process: "subprocess.Popen[str]") -> list[int]:
    """The executors of a job that are running."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(folder.name)) == process.pid and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def assert_each_is_there(failures: Failures, identity: dict[str, object]) -> None:
    """Each message is in the main queue, and no more twice than the report says."""
    times = Counter(one.number for one in failures.in_main())
    assert sorted(times) == list(range(COUNT))
    assert identity["holds"]
    assert identity["drained"] == identity["redelivered"] == COUNT
    doubled = sum(times.values()) - COUNT
    assert doubled <= int(str(identity["possible_duplicates"]))


def test_a_driver_that_is_killed_in_each_phase_is_taken_up(archive: Archive, rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    wanted = {number for number, made in enumerate(samples(QUEUE, COUNT)) if made.properties.headers.get(ERROR_TYPE) == "TimeoutError"}

    def killed(condition: Callable[[], bool], what: str) -> None:
        with job("local[2]", rabbitmq_url, archive, where="error_type = 'TimeoutError'") as process:
            until(process, condition, what)
            kill_all(process)

    killed(lambda: drained(archive) > 0, "the draining is under way")
    killed(lambda: is_planning(archive), "the plan is under way")
    assert sent(failures) == 0
    killed(lambda: sent(failures) > 200, "the sending is under way")
    assert sent(failures) < len(wanted)
    killed(lambda: restored(failures) > 500, "the restoring is under way")
    assert restored(failures) < COUNT - len(wanted)
    killed(lambda: restored(failures) >= COUNT - len(wanted), "the counting is under way")
    (run,) = archive.runs()
    assert not archive.is_ended(run)
    with job("local[2]", rabbitmq_url, archive, where="error_type = 'TimeoutError'") as process:
        identity = identity_of(process)

    again, left = Counter(one.number for one in failures.in_main()), Counter(one.number for one in failures.in_failed())
    assert again.keys() == wanted
    assert left.keys() == set(range(COUNT)) - wanted
    assert (identity["holds"], identity["drained"]) == (True, COUNT)
    assert (identity["redelivered"], identity["restored"]) == (len(wanted), COUNT - len(wanted))
    assert again.total() + left.total() - COUNT <= int(str(identity["possible_duplicates"]))


def test_a_draining_whose_disk_is_full_is_taken_up_once_there_is_room(rabbitmq_url: str, tmp_path: Path) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    place = tmp_path / "small"
    place.mkdir()
    # A disk that only these processes see, and that grows between them.
    script = f"""
        mount -t tmpfs -o size=200k tmpfs {place}
        if "$@"; then exit 3; fi
        mount -o remount,size=100m {place}
        echo More room
        exec "$@"
    """
    command = [sys.executable, str(PROGRAM), "local[2]", rabbitmq_url, str(place / "archive"), "10000", "true"]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
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


def test_executors_that_are_killed_on_a_cluster_with_speculation_lose_nothing(
    archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    with job("local-cluster[2,1,1024]", rabbitmq_url, archive, "spark.speculation=true", "spark.executor.memory=512m") as process:
        until(process, lambda: drained(archive) > 0, "the draining is under way")
        os.kill(executors(process)[0], signal.SIGKILL)
        until(process, lambda: sent(failures) > 500, "the sending is under way")
        os.kill(executors(process)[-1], signal.SIGKILL)
        time.sleep(1)
        rabbitmq_broker.restart()
        identity = identity_of(process)
    assert_each_is_there(failures, identity)
    assert failures.depths()[1] == 0
