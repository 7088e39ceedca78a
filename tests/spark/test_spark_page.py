"""The blocks of Python in docs/spark.md run, as they stand there, on a session of Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

from page_code import blocks_of
from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.reconciliation import Reconciliation
from spark.support import Failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/spark.md"
PLACE = '"s3a://incidents/redrive"'
FAILED = 40
PUBLISHED = 8


def test_the_code_of_the_page_on_spark_runs(
    spark: "SparkSession", archive: Archive, rabbitmq_url: str, tmp_path: Path
) -> None:
    failures = Failures(rabbitmq_url, "ucenter@user").fill(FAILED)
    place = str(tmp_path / "archive")  # where the fixture's archive is
    published = spark.range(PUBLISHED).selectExpr(
        "'sample.made' as routing_key", "cast(id as string) as body"
    )
    published.coalesce(1).write.json(str(tmp_path / "in"))
    # What the reader of the page has.
    names: dict[str, object] = {
        "__name__": "page",
        "spark": spark,
        "url": rabbitmq_url,
        "archive": archive,
        "df": published,
        "stream": spark.readStream.schema(published.schema).json(str(tmp_path / "in")),
        "place": str(tmp_path / "checkpoint"),
    }
    # No customer of a sample: what the page decides leaves all of them to what follows.
    spark.createDataFrame([("-1", "1")], "wrong string, right string").createOrReplaceTempView(
        "fixed_customers"
    )
    blocks = blocks_of(PAGE)
    assert sum(block.count(PLACE) for block in blocks) == 2
    for number, block in enumerate(blocks, start=1):
        code = block.replace(PLACE, repr(place))
        exec(compile(code, f"{PAGE}, block {number}", "exec"), names)

    (query,) = spark.streams.active
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    identity = names["identity"]
    assert isinstance(identity, Reconciliation)
    assert identity.holds
    assert identity.drained == FAILED
    main, failed = failures.depths()
    # Those that timed out were requeued, and both frames were published.
    assert main == FAILED - failed + 2 * PUBLISHED
    assert 0 < failed < FAILED
    renamed = names["rename"](  # type: ignore[operator]
        spark.createDataFrame([('{"custommer": 1}', b"")], ["body_text", "body_bytes"])
    )
    assert bytes(renamed.first()["body_bytes"]) == b'{"customer": 1}'
