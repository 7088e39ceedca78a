"""The whole job as a process of its own, to be killed: `python job_program.py MASTER URL PLACE RATE WHERE [SETTING=VALUE…]`."""

import sys

from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.job import requeue
from redrive.spark_reprocess.pace import Pace
from redrive.spark_reprocess.session import session_for
from spark.conftest import FRUGAL

if __name__ == "__main__":
    master, url, place, rate, where, *settings = sys.argv[1:]
    spark = session_for(master, settings={**FRUGAL, "spark.ui.enabled": "false", **dict(one.split("=", 1) for one in settings)})
    identity = requeue(spark, Archive(place), url, ["shop@orders"], where=where, pace=Pace(rate=float(rate), batch=100))
    print(identity.to_dict(), flush=True)
    spark.stop()
