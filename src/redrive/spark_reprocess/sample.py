"""Sample failed messages for trials, as written by redrive and by PHP services that share its
queues."""

import json
import random
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.errors import RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare
from redrive.pubsub.confirms import Outgoing
from redrive.pubsub.lifecycle import default_name
from redrive.pubsub.transfer.confirmed_publisher import Sending
from redrive.topology import headers, rewrite
from redrive.topology.headers import Delivery
from redrive.topology.model import QueueType, Subscription

_BATCH = 1000
_BEGAN = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)
_ERRORS = (
    ("shop.PaymentError", "card {number} was refused", "pay"),
    ("TimeoutError", "no answer from stock-{shard} in 30 s", "reserve"),
    ("KeyError", "'customer'", "greet"),
)
_PHP_EVERY = 5
_FRAME_MAX = 131_072


def declare_queue(url: str, queue: str, queue_type: QueueType = "quorum") -> None:
    """Declare the queues of a subscription for samples."""
    declare(
        Connector(url, default_name("sample")),
        Subscription(queue, ["sample.*"], queue_type=queue_type),
    )


def samples(queue: str, count: int, *, size: int = 512, seed: int = 0) -> Iterator[rewrite.Publish]:
    """Yield messages to publish to the failed exchange; every fifth as a PHP service leaves it,
    without redrive's headers."""
    chance = random.Random(f"{queue} {seed}")
    exchanges = Subscription(queue, ["sample.*"]).exchanges
    for number in range(count):
        customer = {
            "id": number,
            "customer": chance.randrange(1000),
            "total": chance.randrange(10_000) / 100,
            "note": "",
        }
        customer["note"] = "x" * max(0, size - len(json.dumps(customer)))
        if number % _PHP_EVERY == 0:
            yield _from_php(queue, exchanges.failed, customer, chance)
            continue
        name, text, function = chance.choice(_ERRORS)
        delivery = Delivery(
            queue,
            exchanges.main,
            "sample.made",
            Properties(
                content_type="application/json",
                headers=Table.of(
                    {headers.ORIG_ROUTING_KEY: "sample.made", "tenant": f"t{number % 7}"}
                ),
                delivery_mode=2,
                message_id=f"{queue}-{number}",
                timestamp=int(_BEGAN.timestamp()) + number // 100,
            ),
            json.dumps(customer).encode(),
        )
        yield rewrite.give_up(
            delivery,
            exchanges,
            reason="retries-exhausted",
            error=rewrite.ErrorReport(
                name,
                text.format(number=chance.randrange(10**6), shard=chance.randrange(8)),
                _traceback(function, name),
            ),
            retries=3,
            context=rewrite.MoveContext(
                _BEGAN + timedelta(seconds=number / 50),
                str(uuid.UUID(int=chance.getrandbits(128), version=4)),
                "worker-1",
                _FRAME_MAX,
            ),
        )


def fill(url: str, queue: str, count: int, *, size: int = 512, seed: int = 0) -> None:
    """Put samples into the failed queue of `queue`."""
    room = threading.Semaphore(10 * _BATCH)
    errors: list[RedriveError] = []

    def settled(_: Outgoing, error: RedriveError | None) -> None:
        if error is not None:
            errors.append(error)
        room.release()

    with Sending(Connector(url, default_name("sample"))) as sending:
        sending.wait_until_up(30)
        batch: list[Outgoing] = []
        for made in samples(queue, count, size=size, seed=seed):
            room.acquire()
            batch.append(
                Outgoing(
                    made.exchange,
                    made.routing_key,
                    made.properties.encode(),
                    made.body,
                    "",
                    settled,
                )
            )
            if len(batch) >= _BATCH:
                sending.send(batch)
                batch = []
        sending.send(batch)
        for _ in range(10 * _BATCH):
            room.acquire()
    if errors:
        raise errors[0]


def _from_php(queue: str, exchange: str, body: object, chance: random.Random) -> rewrite.Publish:
    """Return a message as a PHP service leaves it: an envelope and the broker's `x-death`."""
    stamp = (_BEGAN + timedelta(seconds=chance.randrange(100_000))).strftime("%Y%m%d%H%M%S")
    envelope = {"body": body, "__id": f"{stamp}-{chance.getrandbits(64):016x}"}
    death: dict[str, FieldValue] = {
        "count": 3,
        "reason": "expired",
        "queue": f"{queue}@retry",
        "time": _BEGAN,
        "exchange": "master.retry",
        "routing-keys": [queue],
    }
    table = Table.of({headers.X_DEATH: [death], headers.ORIG_ROUTING_KEY: "sample.made"})
    return rewrite.Publish(
        exchange, queue, Properties(headers=table, delivery_mode=2), json.dumps(envelope).encode()
    )


def _traceback(function: str, error: str) -> str:
    frames = "".join(
        f'  File "/srv/shop/orders.py", line {10 + depth}, in {function}\n    step({depth})\n'
        for depth in range(6)
    )
    return f"Traceback (most recent call last):\n{frames}{error}\n"
