"""The Spark data source `redrive`: `spark.read.format("redrive")` shows the messages of a failed
queue, with the columns of the filter language.

It is a look, by the same function as on one machine: the messages are held while they are read, and
are all back in their queue afterwards, in their order. So one task reads a queue.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from redrive.errors import ConfigurationError
from redrive.failures.failed_queue import FailedQueue
from redrive.failures.message.columns import COLUMNS
from redrive.failures.message.failed_message import FailedMessage
from redrive.pubsub.url import BrokerURL
from redrive.spark_reprocess.archive_reader import columns_ddl
from redrive.spark_reprocess.archive_row import batch_of

if TYPE_CHECKING:
    import pyarrow

NAME = "redrive"
_OPTIONS = ("url", "queue", "literal", "management_url")
_ROWS, _BYTES = 1000, 16 * 1024 * 1024
"""What is at most in a batch: Spark holds one at a time."""


class FailedMessages(DataSource):
    """A Spark data source of failed messages.

    Options: `url`; `queue` (a main queue, or any dead-letter queue); `literal` (true or false:
    whether this is the queue's own name); `management_url`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the filter language."""
        return columns_ddl()

    def reader(self, schema: StructType) -> "QueueReader":
        """Return a reader of the queue."""
        return QueueReader(dict(self.options))


class QueueReader(DataSourceReader):
    """A reader of one queue."""

    def __init__(self, options: Mapping[str, str]) -> None:
        for name in _OPTIONS[:2]:
            if not options.get(name):
                raise ConfigurationError(
                    f"the reader needs the option {name}",
                    "Give .options(url='amqp://…', queue='shop@orders').",
                )
        if unknown := set(options) - set(_OPTIONS):
            raise ConfigurationError(
                f"the option {min(unknown)!r} is unknown", f"Known are {', '.join(_OPTIONS)}."
            )
        BrokerURL.parse(options["url"])
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        """Return one partition: several consumers would not return messages in their order."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Yield the messages, oldest first; they stay in the queue."""
        options = self._options
        queue = FailedQueue(
            options["url"],
            options["queue"],
            management_url=options.get("management_url"),
            literal=options.get("literal", "false").lower() == "true",
        )
        waiting: list[FailedMessage] = []
        size = 0
        messages = queue.browse()
        try:
            for message in messages:
                waiting.append(message)
                size += len(message.body)
                if len(waiting) >= _ROWS or size >= _BYTES:
                    yield batch_of(waiting, COLUMNS)
                    waiting, size = [], 0
            if waiting:
                yield batch_of(waiting, COLUMNS)
        finally:
            messages.close()
