"""A run over Spark Connect as a process of its own, since a process has either Spark's own
sessions or Connect's: `python connect_program.py URL PLACE`. It starts its server, and prints what
it did."""

import os
import sys

import redrive.spark
from redrive.failures.queue.order import Order
from redrive.failures.store.filter import Filter
from spark.conftest import FRUGAL
from spark.support import QUEUE

if __name__ == "__main__":
    _, url, place = sys.argv
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Its server then takes any free port; otherwise 15002, which another run may have.
    os.environ["SPARK_TESTING"] = "1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[1]")
    for name, value in FRUGAL.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
    failed = redrive.spark.read(spark, url, QUEUE)
    seen = failed.count()
    order = Order(Filter("error_type = 'TimeoutError'"))
    plan = redrive.spark.plan(failed, order)
    identity = redrive.spark.requeue(failed, url, place, QUEUE, order=order)
    assert identity is not None
    print({"seen": seen, "chosen": plan.chosen, **identity.to_dict()}, flush=True)
    spark.stop()
