"""Publishing more than fits in memory, and more than the broker takes."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from contract.plain import depth
from contract.support import Service, assert_it_helps
from effort import effort
from redrive import PublishRefused
from redrive.testing import Broker, private_broker

COUNT = effort(25_000, nightly=100_000)
_LIMIT = 100_000

# In a process of its own: the memory of this one has been through all the tests before.
_PUBLISH_MANY = """
import json, resource, sys
from redrive import Publisher

def messages(count):
    for number in range(count):
        yield b"x" * 1000 + str(number).encode(), "nobody.listens"

with Publisher(sys.argv[1]) as publisher:
    publisher.publish_many(messages(5_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = publisher.publish_many(messages(int(sys.argv[2])))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told = {"confirmed": report.confirmed, "unroutable": report.unroutable}
print(json.dumps({**told, "grown_kib": after - before}))
"""


def test_messages_of_a_generator_by_the_ten_thousand_pass_through_flat_memory(
    rabbitmq_url: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PUBLISH_MANY, rabbitmq_url, str(COUNT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["confirmed"] == COUNT
    assert found["unroutable"] == COUNT
    # A kilobyte for each went through.
    assert found["grown_kib"] < 16 * 1024


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Broker]:
    """A broker that takes only small messages."""
    with private_broker(config={"max_message_size": str(_LIMIT)}) as broker:
        yield broker


def test_a_message_over_the_brokers_limit_costs_none_of_the_thousand_around_it(
    strict_broker: Broker,
) -> None:
    service = Service(strict_broker.create_virtual_host("many"))
    service.declare()
    messages = [
        (b"x" * (_LIMIT + 1) if number == 500 else str(number), "order.paid")
        for number in range(1000)
    ]
    with service.publisher() as publisher:
        report = publisher.publish_many(messages)
        publisher.publish("and one more", "order.paid", mandatory=True)

    assert report.confirmed == 999
    assert [(failed.position, type(failed.error)) for failed in report.failed] == [
        (500, PublishRefused)
    ]
    # What was in flight with it was sent again, and may be there twice.
    assert depth(service.url, service.queue) >= 1000


def test_several_messages_over_the_brokers_limit_are_each_reported(strict_broker: Broker) -> None:
    service = Service(strict_broker.create_virtual_host("several"))
    service.declare()
    too_large = [3, 4, 50, 199]
    messages = [
        (b"x" * (_LIMIT + 1) if number in too_large else str(number), "order.paid")
        for number in range(200)
    ]
    with service.publisher() as publisher:
        report = publisher.publish_many(messages)

    assert report.confirmed == 196
    assert [failed.position for failed in report.failed] == too_large


def test_a_message_over_the_brokers_limit_is_refused_with_the_limit(strict_broker: Broker) -> None:
    service = Service(strict_broker.create_virtual_host("one"))
    service.declare()
    with service.publisher() as publisher:
        with pytest.raises(PublishRefused) as told:
            publisher.publish(b"x" * (_LIMIT + 1), "order.paid", message_id="order-7")
        publisher.publish(b"x" * _LIMIT, "order.paid", mandatory=True)

    assert_it_helps(told.value, "order-7", str(_LIMIT))
