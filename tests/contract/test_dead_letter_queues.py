"""Dead-letter queues that redrive did not make: each message goes back to where it failed."""

import pytest

from contract.plain import plain_channel
from contract.shells import KeepsFailed, Shell
from contract.support import Service, both_types
from dead_letters import BYSTANDER, EXCHANGE, KEY, DeadLetters
from redrive import ConfigurationError
from redrive.topology.model import QueueType


@pytest.fixture
def dead(rabbitmq_url: str, queue_type: QueueType) -> DeadLetters:
    """A service in plain pika, whose queues are there."""
    found = DeadLetters(rabbitmq_url, queue_type)
    found.declare()
    return found


@pytest.fixture
def failed(dead: DeadLetters, shell: Shell, rabbitmq_management_url: str) -> KeepsFailed:
    """Its dead-letter queue, by the name that it has."""
    return shell.failed_queue(dead.url, dead.place, management_url=rabbitmq_management_url)


@pytest.mark.versions("x-death")
@both_types
def test_what_failed_goes_back_to_the_queue_that_it_failed_in(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    ids = dead.fail(20)
    report = failed.requeue()

    assert (report.requeued, report.no_way_back, report.failed) == (20, 0, [])
    back = dead.drain()
    assert [id_ for id_, _ in back] == ids
    assert all(
        properties.headers["tenant"] == "acme"
        and properties.headers["x-orig-routing-key"] == KEY
        and "x-death" not in properties.headers
        for _, properties in back
    )
    assert len(dead.drain(BYSTANDER)) == 20  # of the first publish: nobody gets a second copy


@pytest.mark.versions("x-death")
@both_types
def test_a_message_says_where_and_how_it_failed(dead: DeadLetters, failed: KeepsFailed) -> None:
    dead.fail(1)
    (message,) = failed.browse()

    assert (message.queue, message.dead_letter_queue) == (dead.queue, dead.place)
    assert (message.exchange, message.routing_key) == (EXCHANGE, KEY)
    assert str(message.way_back) == dead.queue
    assert (message.dialect, message.reason, message.retries) == ("unknown", "rejected", 0)
    assert message.failed_at is not None


@both_types
def test_what_nothing_says_of_where_it_failed_is_counted_and_left(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    dead.put(b"{}", "stray")
    ids = dead.fail(5)
    report = failed.requeue()

    assert (report.requeued, report.skipped, report.unchecked) == (5, 1, 1)
    assert [id_ for id_, _ in dead.drain()] == ids
    assert [message.message_id for message in failed.browse()] == ["stray"]


@both_types
def test_what_failed_nowhere_goes_to_a_queue_that_is_named(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    dead.put(b"{}", "stray")
    assert failed.requeue(to=dead.queue).requeued == 1

    ((id_, properties),) = dead.drain()
    assert id_ == "stray"
    assert "x-orig-routing-key" not in properties.headers  # nobody knows it


@both_types
def test_by_the_first_exchange_every_queue_that_is_bound_there_gets_a_copy(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    ids = dead.fail(3)
    dead.drain(BYSTANDER)
    assert failed.requeue(via=True).requeued == 3

    assert [id_ for id_, _ in dead.drain()] == [id_ for id_, _ in dead.drain(BYSTANDER)] == ids


@both_types
def test_what_is_not_chosen_keeps_its_order(dead: DeadLetters, failed: KeepsFailed) -> None:
    ids = dead.fail(20)
    report = failed.requeue(lambda message: int(message.message_id or 0) % 3 == 0)

    assert report.requeued == 7
    assert [message.message_id for message in failed.browse()] == [
        id_ for id_ in ids if int(id_) % 3
    ]


def test_a_queue_that_was_deleted_since_gets_nothing_and_nothing_is_lost(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    ids = dead.fail(3)
    with plain_channel(dead.url) as channel:
        channel.queue_delete(dead.queue)
    report = failed.requeue()

    assert (report.requeued, report.contradicted) == (0, 3)
    assert [message.message_id for message in failed.browse()] == ids


def test_a_snapshot_is_restored_to_the_dead_letter_queue(
    dead: DeadLetters, failed: KeepsFailed
) -> None:
    ids = dead.fail(3)
    kept = [message.delivery for message in failed.browse()]
    failed.purge()
    assert failed.restore(kept).confirmed == 3

    assert [message.message_id for message in failed.browse()] == ids
    assert {message.queue for message in failed.browse()} == {dead.queue}


def test_a_subscription_is_meant_before_a_queue_of_the_same_name(
    service: Service, shell: Shell
) -> None:
    ids = service.fail(2)
    by_name = shell.failed_queue(service.url, service.queue)
    by_its_failed_queue = shell.failed_queue(service.url, f"{service.queue}@failed")
    literally = shell.failed_queue(service.url, service.queue, literal=True)

    for failed in (by_name, by_its_failed_queue):
        assert [message.message_id for message in failed.browse()] == ids
    assert list(literally.browse()) == []


def test_a_subscription_without_its_failed_queue_is_not_taken_for_a_dead_letter_queue(
    service: Service, shell: Shell
) -> None:
    service.declare()
    with plain_channel(service.url) as channel:
        channel.queue_delete(f"{service.queue}@failed")

    with pytest.raises(ConfigurationError, match=f"there is no queue '{service.queue}@failed'"):
        shell.failed_queue(service.url, service.queue).depth()
