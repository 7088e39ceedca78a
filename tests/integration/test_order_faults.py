"""The order of each key outlives workers and brokers that are killed."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from worker_process import Notes, Supervised

from contract.shells import BLOCKING, Shell
from contract.support import Service, mostly
from journey import let_the_broker_remember
from redrive.testing import Broker
from waiting import DEADLINE, wait_for_count

pytestmark = [pytest.mark.timeout(1800), pytest.mark.versions("the order of what comes back")]

KILLS = 6
RETRIES = 3 * KILLS
"""Each kill costs what the worker had in hand one of them."""


@mostly(BLOCKING)
@pytest.mark.nightly("the contract kills workers, and the torture run brokers")
@pytest.mark.parametrize(("count", "keys"), [(3_000, 100), (100_000, 1_000)])
def test_each_key_keeps_its_order_while_workers_and_the_broker_are_killed(
    rabbitmq_broker: Broker,
    rabbitmq_url: str,
    shell: Shell,
    tmp_path: Path,
    count: int,
    keys: int,
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    service.declare(ordered=True)
    let_the_broker_remember(rabbitmq_broker)
    published = publish(service, count, keys)
    never = {message_id for message_id in published if int(message_id.split("/")[0]) % 50 == 1}
    notes = Notes(tmp_path / "notes")

    def supervised() -> Supervised:
        return Supervised(
            service,
            notes,
            "fail by key",
            order_by="header:customer",
            concurrency=10,
            max_retries=RETRIES,
            max_crashes=100,
        )

    with supervised() as one, supervised() as other:

        def handled() -> int:
            assert one.revived()
            assert other.revived()
            return len(notes.handled)

        for number in range(KILLS):
            least = (number + 1) * count // (2 * KILLS)
            wait_for_count(handled, least, "messages are handled", DEADLINE)
            if number == KILLS // 2:
                rabbitmq_broker.kill()
                rabbitmq_broker.start()
            else:
                (one, other)[number % 2].kill()
        wait_for_count(
            lambda: handled() + service.failed_queue.depth(),
            count,
            "messages are handled or set aside",
            DEADLINE,
        )

    assert by_key(notes.handled_in_order) == by_key(one for one in published if one not in never)
    assert {message.message_id for message in service.failed()} == never


def publish(service: Service, count: int, keys: int) -> list[str]:
    """Publishes messages whose ids are their key and their number; returns the ids."""
    ids = [f"{number % keys}/{number // keys}" for number in range(count)]
    with service.publisher() as publisher:
        for message_id in ids:
            publisher.publish(
                "{}",
                "order.paid",
                headers={"customer": message_id.split("/")[0]},
                message_id=message_id,
                mandatory=True,
            )
    return ids


def by_key(ids: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of messages by their key, each as it came first."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, number in (one.split("/") for one in dict.fromkeys(ids)):
        found[key].append(int(number))
    return dict(found)
