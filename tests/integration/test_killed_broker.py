"""A broker that dies in the middle of everything, and comes back."""

from datetime import timedelta

import pytest

from contract.shells import ASYNC, BLOCKING, Shell
from contract.support import Recorder, Service, fails_first, mostly
from journey import (
    COUNT,
    MOST_DUPLICATES,
    PREFETCH,
    Journey,
    fails,
    let_the_broker_remember,
    release_what_is_stuck,
)
from redrive import Publisher, RetryPolicy
from redrive.testing import Broker

pytestmark = [pytest.mark.timeout(600), pytest.mark.versions("what a killed broker keeps")]


def killed_and_started(broker: Broker) -> None:
    """What happens to the broker."""
    broker.kill()
    broker.start()


@mostly(BLOCKING)
@pytest.mark.nightly("the torture run kills one each time")
def test_a_broker_killed_in_the_middle_of_thousands_of_messages_loses_none_from_quorum_queues(
    rabbitmq_broker: Broker, rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    service.declare()
    let_the_broker_remember(rabbitmq_broker)
    journey = Journey(
        service,
        lambda: killed_and_started(rabbitmq_broker),
        lambda: release_what_is_stuck(rabbitmq_broker, rabbitmq_url),
    )

    assert journey.unconfirmed == 0
    assert journey.lost == set()
    assert journey.duplicates <= MOST_DUPLICATES


@pytest.mark.nightly("a figure for the documentation")
def test_what_a_killed_broker_loses_from_classic_queues_is_measured(
    rabbitmq_broker: Broker, rabbitmq_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journey = Journey(
        Service(rabbitmq_url, queue_type="classic"), lambda: killed_and_started(rabbitmq_broker)
    )
    with capsys.disabled():
        print(
            f"\n{rabbitmq_broker}: killed during {COUNT} messages, classic queues lost "
            f"{len(journey.lost)}, {journey.duplicates} came twice"
        )

    # Classic queues dead-letter without confirms: a node that dies may lose what is on its way to
    # or from the retry queue.
    assert all(fails(number) for number in journey.lost)
    assert journey.unconfirmed == 0
    assert journey.duplicates <= MOST_DUPLICATES


@pytest.mark.nightly("test_private_broker restarts and kills one with confirmed messages in it")
def test_what_was_confirmed_is_there_after_the_broker_was_killed(
    rabbitmq_broker: Broker, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    let_the_broker_remember(rabbitmq_broker)
    with Publisher(rabbitmq_url) as publisher:
        report = publisher.publish_many((str(number), "order.paid") for number in range(5000))
        rabbitmq_broker.kill()
    rabbitmq_broker.start()
    recorder = Recorder()
    with service.subscriber(recorder, prefetch=500):
        recorder.wait_for_attempts(report.confirmed)

    assert report.confirmed == 5000
    assert {int(attempt.body) for attempt in recorder.attempts} == set(range(5000))


@pytest.mark.nightly("the other kill is tried each time")
@mostly(ASYNC)
def test_what_waits_on_the_delay_ladder_outlives_a_killed_broker(
    rabbitmq_broker: Broker, rabbitmq_url: str, shell: Shell
) -> None:
    backoff = RetryPolicy(max_retries=2, backoff=[timedelta(seconds=1), timedelta(seconds=2)])
    service = Service(rabbitmq_url, shell=shell, retry=backoff)
    recorder = Recorder(fails_first(2))
    service.declare()
    scheduled = [service.publish("later", delay=timedelta(seconds=5))]  # declares the ladder
    let_the_broker_remember(rabbitmq_broker)
    with (
        service.subscriber(recorder, prefetch=PREFETCH, concurrency=4),
        service.publisher() as publisher,
    ):
        for second in (1, 2, 3, 5):
            scheduled.append(
                publisher.publish(
                    "later", "order.paid", delay=timedelta(seconds=second), mandatory=True
                )
            )
        ids = service.publish_numbered(500)
        recorder.wait_for_attempts(700)
        killed_and_started(rabbitmq_broker)
        try:
            recorder.wait_for_handled([*ids, *scheduled], 90)
        except AssertionError:
            if not release_what_is_stuck(rabbitmq_broker, rabbitmq_url):
                raise
            recorder.wait_for_handled([*ids, *scheduled], 150)

    assert recorder.handled.keys() == {*ids, *scheduled}
    # What was moved and not acked when the broker died is moved again.
    assert recorder.handled.total() - len(recorder.handled) <= PREFETCH
    assert service.failed() == []
