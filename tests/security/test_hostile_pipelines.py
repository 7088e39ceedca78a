"""A message that tries to look like redrive's and the broker's goes through all that reads one, on
each broker, without an exception."""

import json
import random
from datetime import timedelta
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from deliveries import CIRCUMSTANCES, ERROR, FAMILY, FRAME_MAX
from field_tables import QUEUE, hostile_tables, properties
from redrive import FailedMessage, Message
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Malformed, Properties
from redrive.failures.message.cause import cause_of
from redrive.failures.message.columns import row_of
from redrive.failures.message.way import way_of
from redrive.pubsub.verdict import Decider
from redrive.topology import rewrite
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.fast_requeue import BulkRequeue
from redrive.topology.headers import Delivery, failure_id
from redrive.topology.model import Subscription

VERSIONS = [BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5), BrokerVersion(4, 3, 6)]
KINDS = [
    Subscription(QUEUE, ["user.*"]),
    Subscription(QUEUE, ["user.*"], queue_type="classic", retry_via="republish"),
]
WAYS = [
    ("master", "user.create"),
    ("", QUEUE),
    ("master", QUEUE),
    ("master.deliver", "0." * 27 + f"1.r.{QUEUE}"),
    ("master.failed", QUEUE),
]


def go_through_everything(received: Properties, exchange: str, routing_key: str) -> None:
    """Judges, moves and shows a message."""
    for version, subscription in product(VERSIONS, KINDS):
        judge = Decider(subscription, version, FRAME_MAX)
        delivery = Delivery(
            QUEUE, exchange, routing_key, received, b"\xff{", True, subscription.way_back
        )
        judge.arrival(delivery)
        judge.success()
        judge.failure(delivery, ValueError("no"))
        assert repr(Message(delivery))
    delivery = Delivery(QUEUE, exchange, routing_key, received, b'{"a": [NaN]}')
    for publish in (
        rewrite.give_up(
            delivery, FAMILY, reason="gave-up", error=ERROR, retries=0, context=CIRCUMSTANCES
        ),
        rewrite.republish(delivery, FAMILY, retries=0, counts_on=True, frame_max=FRAME_MAX),
        rewrite.postpone(
            delivery, FAMILY, retry=1, delay=timedelta(seconds=5), context=CIRCUMSTANCES
        ),
        rewrite.relocate(delivery, "elsewhere", retries=1, frame_max=FRAME_MAX),
        rewrite.relocate_failed(delivery, "elsewhere", frame_max=FRAME_MAX),
        rewrite.requeue(delivery, job="job-1", frame_max=FRAME_MAX),
        rewrite.restore(delivery, FAMILY, frame_max=FRAME_MAX),
    ):
        assert Properties.parse(publish.properties.encode()) == publish.properties
    BulkRequeue("job-1", FRAME_MAX).requeue(received.encode())
    message = FailedMessage(delivery)
    assert failure_id(delivery)
    assert all(isinstance(sentence, str) for sentence in way_of(message))
    cause_of(message)
    json.dumps({name: str(value) for name, value in row_of(delivery).items()}).encode()
    assert (message.retries, message.redrive_count) >= (0, 0)


@settings(max_examples=60)
@given(properties, hostile_tables(), st.sampled_from(WAYS))
def test_whatever_its_headers_say(received: Properties, table: Table, way: tuple[str, str]) -> None:
    go_through_everything(received._replace(headers=table), *way)


@settings(max_examples=15)
@given(properties, hostile_tables(), st.integers(0, 2**64 - 1))
def test_however_its_properties_are_damaged(received: Properties, table: Table, seed: int) -> None:
    chance = random.Random(seed)
    whole = received._replace(headers=table).encode()
    for _ in range(15):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            damaged = Properties.parse(bytes(data))
        except Malformed:
            continue
        assert Table.parse(damaged.headers.encode()) == damaged.headers
        go_through_everything(damaged, *chance.choice(WAYS))


def test_headers_as_deep_as_a_frame_allows() -> None:
    nested = b"V"
    while len(nested) < 65_000:
        nested = b"A" + len(nested).to_bytes(4, "big") + nested
    for name in ("x-death", "tenant", "redrive-count"):
        go_through_everything(Properties(headers=Table([(name, nested)])), "", QUEUE)
