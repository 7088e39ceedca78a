"""The whole job on a real cluster: a master and two workers as processes of their own, from
pyspark's own `spark-class`. What it has to survive there, it survives in one run: each costs the
start of six Javas."""

import contextlib
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from cli_support import redrive
from redrive.spark_reprocess.archive import Archive
from redrive.testing import Broker
from redrive.testing.ports import free_ports
from spark.support import Failures
from spark.test_killed import (
    COUNT,
    assert_each_is_there,
    drained,
    identity_of,
    job,
    sent,
    until,
)
from waiting import wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_SECONDS = 90.0
NEARBY = (
    "spark.executor.memory=512m",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
)


@contextlib.contextmanager
def running(log: Path, kind: str, *arguments: str) -> Iterator[int]:
    """A part of the cluster, by its process group; at the end it is killed with all that it
    started."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(log.parent / "work"),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


class Cluster(NamedTuple):
    """A standalone cluster of two workers with a core each.

    Args:
        master: its master's URL.
        workers: the process groups of the workers, and of the executors that they start.
    """

    master: str
    workers: list[int]

    def executors(self) -> list[int]:
        """The executors that are running."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (
                    os.getpgid(int(folder.name)) in self.workers
                    and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes()
                ):
                    found.append(int(folder.name))
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that was started for this test."""
    port, page = free_ports(2)
    address = f"spark://127.0.0.1:{port}"
    log = tmp_path / "master.log"
    with contextlib.ExitStack() as parts:
        parts.enter_context(
            running(
                log,
                "master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--webui-port",
                str(page),
            )
        )
        wait_until(
            lambda: b"I have been elected leader" in log.read_bytes(),
            "the master leads",
            START_SECONDS,
        )
        workers = []
        for number in (1, 2):
            worker = (
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                address,
            )
            log_of_worker = tmp_path / f"worker-{number}.log"
            workers.append(parts.enter_context(running(log_of_worker, "worker.Worker", *worker)))
        wait_until(
            lambda: log.read_bytes().count(b"Registering worker") == 2,
            "both workers are there",
            START_SECONDS,
        )
        yield Cluster(address, workers)


@pytest.mark.nightly("starts a cluster of Spark")
def test_executors_that_are_killed_on_a_cluster_with_speculation_lose_nothing(
    cluster: Cluster, archive: Archive, rabbitmq_url: str, rabbitmq_broker: Broker
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    settings = ("spark.speculation=true", *NEARBY)
    with job(cluster.master, rabbitmq_url, archive, *settings, rate=100) as process:
        until(process, lambda: drained(archive) > 0, "the draining is under way")
        os.kill(cluster.executors()[0], signal.SIGKILL)
        until(process, lambda: sent(failures) > 200, "the sending is under way")
        os.kill(cluster.executors()[-1], signal.SIGKILL)
        rabbitmq_broker.restart()
        identity = identity_of(process)
    assert_each_is_there(failures, identity)
    assert failures.depths()[1] == 0


@pytest.mark.nightly("starts a cluster of Spark")
def test_executors_with_a_bare_python_need_only_what_is_packed(
    cluster: Cluster,
    archive: Archive,
    rabbitmq_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    venv.create(tmp_path / "bare")
    bare = tmp_path / "bare" / "bin" / "python"
    without = subprocess.run([str(bare), "-c", "import pika"], capture_output=True, check=False)
    assert b"No module named 'pika'" in without.stderr
    packed = tmp_path / "redrive-executors.zip"
    done = redrive("spark", "package", "-o", str(packed), "--output", "json")
    assert done.code == 0, done.err
    settings = [f"{name}={value}" for name, value in done.json()["settings"].items()]
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    where = "error_type = 'TimeoutError'"
    with job(cluster.master, rabbitmq_url, archive, *settings, *NEARBY, where=where) as process:
        identity = identity_of(process)
    assert identity["holds"]
    assert failures.depths() == (identity["requeued"], identity["restored"])
    assert sum(failures.depths()) == COUNT
