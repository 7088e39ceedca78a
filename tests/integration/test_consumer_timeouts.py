"""A quorum queue of RabbitMQ 4.3 has a clock of its own for what stays unsettled."""

import threading
from collections.abc import Iterator

import pytest

from contract.shells import BLOCKING, Shell
from contract.support import Recorder, Service, mostly
from redrive import Message
from redrive.testing import Broker, private_broker
from redrive.topology.broker_version import BrokerVersion
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.versions("which clock a delivery has")

TOO_LATE = 20.0
"""Seconds after which a broker that waits for two has long acted: it looks every few seconds."""


@pytest.fixture
def impatient(broker_version: BrokerVersion) -> Iterator[Broker | None]:
    """A broker that lets a message stay unsettled for two seconds; None for an older one, whose
    channels have a clock that is looked at once a minute."""
    if not broker_version.has_a_consumer_timeout_for_each_consumer:
        yield None
        return
    with private_broker(config={"consumer_timeout": "2000"}) as broker:
        yield broker


@mostly(BLOCKING)
@pytest.mark.parametrize("ordered", [False, True], ids=["usual", "ordered"])
def test_a_subscriber_whose_consumer_was_stopped_leaves_and_comes_back(
    impatient: Broker | None, shell: Shell, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if impatient is None:
        return
    service = Service(impatient.url, shell=shell)
    was_stopped = threading.Event()

    def hold(message: Message) -> None:
        if message.body == b"long" and not message.redelivered:
            was_stopped.wait(DEADLINE)

    recorder = Recorder(hold)
    with service.subscriber(recorder, ordered=ordered, concurrency=1, prefetch=1):
        long = service.publish("long")
        wait_until(lambda: "to start over" in caplog.text, "the broker has stopped the consumer")
        was_stopped.set()
        recorder.wait_for_handled([long, service.publish("short")])


@mostly(BLOCKING)
def test_a_handler_that_may_take_longer_than_the_broker_waits_is_not_stopped(
    impatient: Broker | None, shell: Shell
) -> None:
    if impatient is None:
        return
    service = Service(impatient.url, shell=shell)
    recorder = Recorder(lambda _: threading.Event().wait(TOO_LATE))
    with service.subscriber(recorder, handler_timeout="40m", prefetch=1):
        message_id = service.publish()
        recorder.wait_for_handled([message_id])

    assert recorder.tried == {message_id: 1}
