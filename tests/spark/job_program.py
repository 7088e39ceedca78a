"""The whole job as a process of its own, to be killed:
`python job_program.py MASTER URL PLACE RATE RESTORE_RATE WHERE [SETTING=VALUE…]`.

Where it fails and REDRIVE_TEST_REMEDY is a command, it runs that and tries once more.
REDRIVE_TEST_QUEUE names another queue, REDRIVE_TEST_JOURNAL the local file of a journal, and
REDRIVE_TEST_MANAGEMENT_URL where the management API is.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from redrive.errors import RedriveError
from redrive.failures.jobs.journal import Journal
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.reprocess import requeue
from redrive.spark_reprocess.session import session_for
from redrive.spark_reprocess.settings import JobOptions, SendSettings
from spark.conftest import FRUGAL

if __name__ == "__main__":
    master, url, place, rate, restore_rate, where, *settings = sys.argv[1:]
    remedy = os.environ.get("REDRIVE_TEST_REMEDY")
    spark = session_for(
        master,
        settings={
            **FRUGAL,
            "spark.ui.enabled": "false",
            **dict(one.split("=", 1) for one in settings),
        },
    )

    options = JobOptions(
        sending=SendSettings(float(rate), float(restore_rate), batch=100),
        tasks=4,
        management_url=os.environ.get("REDRIVE_TEST_MANAGEMENT_URL"),
    )

    queue = os.environ.get("REDRIVE_TEST_QUEUE", "shop@orders")
    file = os.environ.get("REDRIVE_TEST_JOURNAL")

    def job() -> Reconciliation:
        with contextlib.nullcontext() if file is None else Journal(url, Path(file)) as journal:
            return requeue(
                spark,
                Archive(place),
                url,
                [queue],
                where=where,
                options=options,
                journal=journal,
            )

    try:
        identity = job()
    except RedriveError as error:
        if remedy is None:
            raise
        print(error, flush=True)
        subprocess.run(remedy, shell=True, check=True)
        identity = job()
    print(identity.to_dict(), flush=True)
    spark.stop()
