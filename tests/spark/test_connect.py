"""Spark Connect: the same run, in a client that has no SparkContext."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from redrive.spark_reprocess.archive import Archive
from spark.support import Failures, numbers

PROGRAM = Path(__file__).with_name("connect_program.py")
COUNT = 60


def test_a_run_over_a_connect_server_ends_with_the_identity(
    archive: Archive, rabbitmq_url: str
) -> None:
    failures = Failures(rabbitmq_url).fill(COUNT)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), rabbitmq_url, archive.storage.uri],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = ast.literal_eval(
        next(line for line in done.stdout.splitlines() if line.startswith("{'seen'"))
    )
    assert (found["seen"], found["drained"], found["holds"]) == (COUNT, COUNT, True)
    assert 0 < found["chosen"] == found["requeued"] == COUNT - found["restored"] < COUNT
    back = failures.in_main() + failures.in_failed()
    assert numbers(back) == list(range(COUNT))
