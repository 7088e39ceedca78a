"""What the tests say things with: queues full of failed messages, and what is in a queue
afterwards."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from redrive.amqp.properties import Properties
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.transfer.queue_reader import QueueReader
from redrive.spark_reprocess.sample import declare_queue, fill, samples
from redrive.topology.headers import Delivery, failure_id
from redrive.topology.model import QueueType
from redrive.topology.names import failed_queue

QUEUE = "shop@orders"


class Found(NamedTuple):
    """A message in a queue."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes

    @property
    def number(self) -> int:
        """Which sample it is."""
        value = json.loads(self.body)
        return int(value.get("body", value)["id"])

    @property
    def failure_id(self) -> str:
        """Its identity."""
        return failure_id(
            Delivery(
                QUEUE, self.exchange, self.routing_key, Properties.parse(self.properties), self.body
            )
        )

    @property
    def headers(self) -> Mapping[str, object]:
        """Its headers."""
        return Properties.parse(self.properties).headers.to_dict()


@dataclass(frozen=True)
class Failures:
    """A subscription whose failed queue has samples."""

    url: str
    queue: str = QUEUE
    queue_type: QueueType = "quorum"

    def fill(self, count: int, *, size: int = 200, seed: int = 0) -> "Failures":
        """Declares it, and sets so many samples aside."""
        declare_queue(self.url, self.queue, self.queue_type)
        fill(self.url, self.queue, count, size=size, seed=seed)
        return self

    def ids(self, count: int, *, size: int = 200, seed: int = 0) -> list[str]:
        """The failure ids of so many samples, in their order."""
        return [
            failure_id(
                Delivery(self.queue, made.exchange, made.routing_key, made.properties, made.body)
            )
            for made in samples(self.queue, count, size=size, seed=seed)
        ]

    def depths(self) -> tuple[int, int]:
        """How many messages are in the main and in the failed queue."""
        with declaring(Connector(self.url, "test")) as declarer:
            main, failed = declarer.depth(self.queue), declarer.depth(failed_queue(self.queue))
        assert main is not None
        assert failed is not None
        return main.messages, failed.messages

    def in_main(self) -> list[Found]:
        """Takes all that is in the main queue."""
        return take_all(self.url, self.queue, self.depths()[0])

    def in_failed(self) -> list[Found]:
        """Takes all that is in the failed queue."""
        return take_all(self.url, failed_queue(self.queue), self.depths()[1])


def take_all(url: str, queue: str, count: int) -> list[Found]:
    """Takes so many messages out of a queue."""
    found: list[Found] = []
    if not count:
        return found
    with QueueReader(
        Connector(url, "test"), queue, prefetch=min(count, 1000), most=count, comes_back=False
    ) as taking:
        while len(found) < count:
            taken = taking.next(20, empty=lambda: False)
            assert taken is not None, f"{len(found)} of {count} messages came out of {queue}"
            received = taken.received
            found.append(
                Found(received.exchange, received.routing_key, received.properties, received.body)
            )
            taking.ack(taken)
    return found


def numbers(found: Iterable[Found]) -> list[int]:
    """Which samples these are, in order."""
    return sorted(one.number for one in found)
