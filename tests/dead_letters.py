"""A service in plain pika, with a dead-letter queue that nobody of redrive's has made."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import pika
from pika.adapters.blocking_connection import BlockingChannel

from contract.plain import depth, plain_channel, wait_for_consumers
from waiting import wait_until

EXCHANGE, KEY, BYSTANDER = "shop", "order.new", "audit"
Arrival = Literal["default", "topic", "fanout"]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The queue `orders`, whose consumer rejects, and `undelivered`, whose name says nothing.

    Args:
        url: the broker's address.
        queue_type: of both.
        arrival: the kind of exchange by which messages come to `undelivered`.
        limit: its delivery limit; None for the broker's own.
    """

    url: str
    queue_type: str = "quorum"
    arrival: Arrival = "default"
    limit: int | None = None
    queue: str = "orders"
    place: str = "undelivered"

    def declare(self) -> None:
        """Makes the exchanges and queues, as such a service does, and another service's queue."""
        dead = "" if self.arrival == "default" else f"{self.place}-{self.arrival}"
        with plain_channel(self.url) as channel:
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            own = {"x-queue-type": self.queue_type}
            limit = {} if self.limit is None else {"x-delivery-limit": self.limit}
            channel.queue_declare(self.place, durable=True, arguments={**own, **limit})
            if dead:
                channel.exchange_declare(dead, self.arrival, durable=True)
                channel.queue_bind(self.place, dead, self.place)
            way = {"x-dead-letter-exchange": dead, "x-dead-letter-routing-key": self.place}
            channel.queue_declare(self.queue, durable=True, arguments={**own, **way})
            channel.queue_bind(self.queue, EXCHANGE, "order.*")
            channel.queue_declare(BYSTANDER, durable=True)
            channel.queue_bind(BYSTANDER, EXCHANGE, "#")

    def fail(self, count: int, first: int = 0) -> list[str]:
        """Publishes messages, has the consumer reject them, and returns their ids."""
        ids = [str(number) for number in range(first, first + count)]
        with plain_channel(self.url) as channel:
            before = self.depth()
            for id_ in ids:
                channel.basic_publish(
                    EXCHANGE,
                    KEY,
                    json.dumps({"id": int(id_)}).encode(),
                    _properties(id_, {"tenant": "acme", "rate": 1}),
                )
            for _ in ids:
                self._reject_one(channel)
            wait_until(lambda: self.depth() == before + count, "all are dead-lettered")
        return ids

    def put(self, body: bytes, id_: str) -> None:
        """Puts a message into the dead-letter queue that failed nowhere."""
        with plain_channel(self.url) as channel:
            channel.basic_publish("", self.place, body, _properties(id_, None))

    def depth(self, queue: str | None = None) -> int:
        """How many messages are ready in a queue; the dead-letter queue, if none is named."""
        return depth(self.url, queue or self.place)

    def drain(self, queue: str | None = None) -> list[tuple[str, pika.BasicProperties]]:
        """Takes what is in a queue, `orders` if none is named: ids and properties."""
        found: list[tuple[str, pika.BasicProperties]] = []
        with plain_channel(self.url) as channel:
            while True:
                method, properties, _ = channel.basic_get(queue or self.queue, auto_ack=True)
                if method is None or properties is None:
                    return found
                found.append((properties.message_id or "", properties))

    @contextlib.contextmanager
    def consumer(self, succeeds: Callable[[str], bool]) -> Iterator[list[str]]:
        """A consumer that acks or rejects; gives the ids that it has acked."""
        handled: list[str] = []
        over = threading.Event()

        def run() -> None:
            with plain_channel(self.url) as channel:
                channel.basic_qos(prefetch_count=1)
                for method, properties, _ in channel.consume(self.queue, inactivity_timeout=0.1):
                    if method is not None and properties is not None:
                        id_ = properties.message_id or ""
                        if succeeds(id_):
                            handled.append(id_)
                            channel.basic_ack(method.delivery_tag)
                        else:
                            channel.basic_reject(method.delivery_tag, requeue=False)
                    if over.is_set():
                        return

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_for_consumers(self.url, self.queue)
            yield handled
        finally:
            over.set()
            thread.join()

    def _reject_one(self, channel: BlockingChannel) -> None:
        def rejected() -> bool:
            method, _, _ = channel.basic_get(self.queue)
            if method is None:
                return False
            channel.basic_reject(method.delivery_tag, requeue=False)
            return True

        wait_until(rejected, "it is there to be rejected")


def _properties(id_: str, headers: dict[str, object] | None) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=id_, delivery_mode=2, headers=headers)  # type: ignore[no-untyped-call]
