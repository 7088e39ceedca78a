"""The whole job on a real cluster: a master and two workers as processes of their own, from pyspark's own `spark-class`."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from contract.support import wait_until
from redrive.spark_reprocess.archive import Archive
from redrive.testing.ports import free_ports
from spark.support import Failures
from spark.test_killed import COUNT, assert_each_is_there, identity_of, job

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_SECONDS = 90.0


@contextlib.contextmanager
def running(log: Path, kind: str, *arguments: str) -> Iterator[None]:
    """A part of the cluster; at the end it is killed with all that it started."""
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
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster of two workers with a core each; its master's URL."""
    port, page = free_ports(2)
    address = f"spark://127.0.0.1:{port}"
    log = tmp_path / "master.log"
    with contextlib.ExitStack() as parts:
        parts.enter_context(running(log, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)))
        wait_until(lambda: b"I have been elected leader" in log.read_bytes(), "the master leads", START_SECONDS)
        for number in (1, 2):
            worker = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", address)
            parts.enter_context(running(tmp_path / f"worker-{number}.log", "worker.Worker", *worker))
        wait_until(lambda: log.read_bytes().count(b"Registering worker") == 2, "both workers are there", START_SECONDS)
        yield address


def test_all_phases_on_a_standalone_cluster_end_with_the_identity(cluster: str, archive: Archive, rabbitmq_url: str) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    settings = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
    with job(cluster, rabbitmq_url, archive, *settings, rate=10_000) as process:
        identity = identity_of(process)

    assert_each_is_there(failures, identity)
    assert failures.depths()[1] == 0
