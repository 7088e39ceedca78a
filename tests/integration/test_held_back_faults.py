"""What the broker itself holds back outlives its workers and the broker."""

from datetime import timedelta
from pathlib import Path

import pytest
from worker_process import Notes, Supervised

from contract.plain import wait_for_consumers
from contract.shells import Shell
from contract.support import Service, both_shells, holds_back, retrying
from journey import let_the_broker_remember
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.testing import Broker
from waiting import DEADLINE, wait_for_count, wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.versions("delayed retries, new in 4.3")]

COUNT = 10_000
DELAY = timedelta(seconds=8)
PREFETCH = 100
WORKER_KILLS = 4
BROKER_KILLS = 1
"""Each returns a message once at most, and the handler fails it twice: 7 returns, where the eighth
would set it aside as crashed (3 retries and 5 crashes)."""


@both_shells
@pytest.mark.nightly("the torture run does so with what 4.3 holds back each time")
def test_ten_thousand_messages_are_handled_or_set_aside_while_workers_and_the_broker_are_killed(
    rabbitmq_broker: Broker, rabbitmq_url: str, shell: Shell, tmp_path: Path
) -> None:
    service = Service(rabbitmq_url, shell=shell, retry=retrying(delay=DELAY))
    if not holds_back(service):
        return
    service.declare(retry_via="broker")
    let_the_broker_remember(rabbitmq_broker)
    ids = service.publish_numbered(COUNT)
    never = {message_id for number, message_id in enumerate(ids) if number % 50 == 1}
    notes = Notes(tmp_path / "notes")

    def supervised() -> Supervised:
        return Supervised(
            service,
            notes,
            "fail by number",
            delay_ms=DELAY // timedelta(milliseconds=1),
            retry_via="broker",
            prefetch=PREFETCH,
        )

    with supervised() as one, supervised() as other:

        def begun() -> int:
            assert one.revived()
            assert other.revived()
            return len(notes.begun)

        def ended() -> int:
            begun()
            handled = len(notes.handled.keys() - never)
            return handled + min(service.failed_queue.depth(), len(never))

        for number in range(WORKER_KILLS):
            least = (number + 1) * COUNT // 10
            wait_for_count(begun, least, "messages are begun", DEADLINE)
            (one, other)[number % 2].kill()
        wait_until(
            lambda: one.revived() and other.revived() and held_back(rabbitmq_broker, service) > 0,
            "some are held back",
        )
        # One that was started anew gives up where it finds no broker at first.
        wait_for_consumers(service.url, service.queue, 2)
        rabbitmq_broker.kill()
        rabbitmq_broker.start()
        wait_for_count(ended, COUNT, "messages are handled or set aside", DEADLINE)
        deaths = one.deaths + other.deaths
    failed = service.failed()

    assert deaths == WORKER_KILLS
    assert notes.handled.keys() == set(ids) - never
    assert {message.message_id for message in failed} == never
    assert {message.reason for message in failed} == {"retries-exhausted"}
    # What a worker had done and not settled at a kill is done again.
    twice = notes.handled.total() - len(notes.handled) + len(failed) - len(never)
    assert twice <= PREFETCH * (WORKER_KILLS + 2 * BROKER_KILLS)
    # A message that a worker has when it dies has one attempt fewer.
    attempts = notes.begun
    assert min(attempts[message_id] for message_id in never) + WORKER_KILLS + BROKER_KILLS >= 4


def held_back(broker: Broker, service: Service) -> int:
    """How many messages the broker says it holds back."""
    with ManagementAPI(service.url, broker.management_url) as management:
        return management.held_back().get(service.queue) or 0
