"""The Spark data source `rabbitmq`: `df.write.format("rabbitmq")` and
`df.writeStream.format("rabbitmq")`.

Rows are published pipelined, mandatory and confirmed. Spark retries a task that fails; with a
ledger, the retry repeats only messages that were in flight.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from redrive.errors import ConfigurationError, PublishRefused
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.ledger import ArchiveLedger
from redrive.spark_reprocess.row_message import Mode, check_columns
from redrive.spark_reprocess.send_task import SendTask, sent_part
from redrive.spark_reprocess.settings import BATCH, LEAST_SHARE, TIMEOUT
from redrive.spark_reprocess.storage import Storage

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

NAME = "rabbitmq"


def register(spark: "SparkSession") -> None:
    """Register `format("rabbitmq")` with a session."""
    spark.dataSource.register(RabbitMQ)


class RabbitMQ(DataSource):
    """A Spark data source that publishes the rows of a DataFrame.

    Options: `url`; `exchange`; `ledger` (an archive's location), `job`, `run`; `batch`; `rate`
    (messages per second and task); `timeout` (seconds); `least_share`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return a writer for a DataFrame with this schema."""
        return BatchWriter(*_prepared(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        """Return a writer for a stream with this schema."""
        return StreamWriter(*_prepared(self.options, schema))


@dataclass(frozen=True)
class _Message(WriterCommitMessage):
    """A task's report to the driver: how many messages were refused, and the first error."""

    refused: int
    first_refusal: str


class BatchWriter(DataSourceArrowWriter):
    """A writer of the partitions of a DataFrame, each in a task. Without a ledger, messages that
    could not be sent raise an error at the end."""

    def __init__(self, task: SendTask, names: list[str]) -> None:
        self._task = task
        self._names = names

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Publish a partition."""
        return _send(self._task, self._names, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the write after all partitions; raise if messages were refused without a ledger."""
        _check(self._task, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing after a partition failed in all its attempts."""


class StreamWriter(DataSourceStreamArrowWriter):
    """A writer of the partitions of each micro-batch. Without a ledger, a retried micro-batch is
    sent again.

    Messages that could not be sent end the stream with an error, after the rest of their
    micro-batch was sent.
    """

    def __init__(self, task: SendTask, names: list[str]) -> None:
        self._task = task
        self._names = names

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        """Publish a partition of a micro-batch."""
        return _send(self._task, self._names, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """End a micro-batch after all its partitions; raise if messages were refused without a
        ledger."""
        _check(self._task, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing after a partition failed: Spark retries the micro-batch."""


def _send(task: SendTask, names: list[str], batches: "Iterator[pyarrow.RecordBatch]") -> _Message:
    sent = sent_part(task, names, batches)
    return _Message(sent.refused, sent.first_refusal)


def _check(task: SendTask, messages: list[WriterCommitMessage | None]) -> None:
    """Raise if messages were refused and there is no ledger that records them.

    Done at the end and not by the task, because Spark would make a failed task send all its rows
    again.
    """
    refused = [message for message in messages if isinstance(message, _Message) and message.refused]
    if task.ledger is None and refused:
        count = sum(message.refused for message in refused)
        raise PublishRefused(
            "",
            "",
            f"{count} of the messages could not be sent, all others were; the first error: "
            f"{refused[0].first_refusal}",
        )


def _prepared(options: Mapping[str, str], schema: StructType) -> tuple[SendTask, list[str]]:
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields})
    url = options.get("url")
    if not url:
        raise ConfigurationError(
            "the writer needs the option url",
            "Give .option('url', 'amqp://user:password@host:5672/virtual-host').",
        )
    BrokerURL.parse(url)
    job = options.get("job", "")
    ledger = options.get("ledger")
    if ledger and not (job and options.get("run")):
        raise ConfigurationError("a ledger needs a job and a run", "Give the options job and run.")
    task = SendTask(
        url,
        Mode.PUBLISH,
        job,
        ArchiveLedger(Storage.at(ledger), options["run"], job) if ledger else None,
        batch=int(_number(options, "batch", BATCH, 1)),
        rate=_number(options, "rate", 0, 0) or None,
        timeout=_number(options, "timeout", TIMEOUT, 0),
        least_share=_number(options, "least_share", LEAST_SHARE, 0),
        exchange=options.get("exchange", "master"),
    )
    return task, schema.fieldNames()


def _number(options: Mapping[str, str], name: str, default: float, least: float) -> float:
    text = options.get(name)
    try:
        number = default if text is None else float(text)
    except ValueError as error:
        raise ConfigurationError(f"the option {name} is {text!r}", "Give a number.") from error
    if not least <= number < float("inf"):
        raise ConfigurationError(f"the option {name} is {text!r}", f"Give a number from {least:g}.")
    return number
