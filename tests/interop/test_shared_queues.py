"""redrive and services without it on the same queues: who publishes, handles, retries and sends
back what.

Peers count `x-death[0].count`. Where the broker goes on counting what a client has published, both
count the same attempts; where it does not (RabbitMQ 4), peers count none, and redrive counts its
own.
"""

from collections.abc import Callable
from dataclasses import replace

import pika
import pytest

from contract.plain import depth, publish_plain, wait_for_consumers
from contract.shells import Shell
from contract.support import Recorder, always_fails, both_shells, retrying
from interop.peer import Peer, Seen
from interop.shared import SharedService, beside
from redrive import Message
from redrive.topology.broker_version import BrokerVersion
from waiting import DEADLINE, wait_until

QUEUE = "ucenter@user"
PATTERN = "user.*"
MAX_RETRIES = 3
USER = {"id": 121, "name": '管 "宜尧"'}


@pytest.fixture
def counts_on(broker_version: BrokerVersion) -> bool:
    """Whether the broker goes on counting in what a client has published."""
    return broker_version.continues_client_x_death


@pytest.fixture
def service(peer: Peer) -> SharedService:
    """redrive on the peer's queue: as the peer declares it, and with the peer's delay."""
    return beside(peer, QUEUE, PATTERN, MAX_RETRIES)


def test_each_side_declares_after_the_other(service: SharedService, peer: Peer) -> None:
    service.declare()
    peer.declare(QUEUE, PATTERN)
    service.declare()


def test_a_peer_declares_first_with_the_delay_of_the_pattern(peer: Peer) -> None:
    usual = peer.with_ttl(30_000)
    usual.declare(QUEUE, PATTERN)
    beside(usual, QUEUE, PATTERN, MAX_RETRIES).declare()


def test_what_redrive_publishes_a_peer_consumes(service: SharedService, peer: Peer) -> None:
    service.declare()
    with service.publisher(codec=peer.codec) as publisher:
        publisher.publish(USER, "user.create", mandatory=True)

    (seen,) = peer.consume(QUEUE, PATTERN, attempts=1)

    assert seen.body == USER
    assert (seen.routing_key, seen.retries, seen.then) == ("user.create", 0, "done")


@both_shells
def test_what_a_peer_publishes_redrive_handles(
    service: SharedService, peer: Peer, shell: Shell
) -> None:
    service = replace(service, shell=shell)
    got: list[object] = []

    def handle(user: dict[str, object]) -> None:
        got.append(user)

    with service.subscriber(handle):
        peer.publish("user.create", USER)
        wait_until(lambda: got, "the message is handled")

    assert got == [USER]


@both_shells
def test_a_peer_fails_and_redrive_goes_on_where_it_stopped(
    service: SharedService, peer: Peer, shell: Shell
) -> None:
    service = replace(service, shell=shell)
    recorder = Recorder(always_fails)
    peer.declare(QUEUE, PATTERN)
    peer.publish("user.create", USER)
    seen = peer.consume(QUEUE, PATTERN, attempts=1, fails=True)

    with service.subscriber(recorder):
        (failed,) = service.wait_for_failed()

    assert seen[0].then == "retry"
    # The trip after the peer's attempt counts on every broker: redrive has one attempt less.
    assert [attempt.retries for attempt in recorder.attempts] == [1, 2, 3]
    assert {attempt.routing_key for attempt in recorder.attempts} == {"user.create"}
    assert (failed.reason, failed.retries, failed.routing_key, failed.json()) == (
        "retries-exhausted",
        3,
        "user.create",
        USER,
    )


def test_redrive_fails_and_a_peer_goes_on(
    service: SharedService, peer: Peer, counts_on: bool
) -> None:
    def fails_twice_and_stops(message: Message) -> None:
        if message.retries == 1:
            subscriber.stop()
        always_fails(message)

    twice = Recorder(fails_twice_and_stops)
    with service.publisher(codec=peer.codec) as publisher, service.subscriber(twice) as subscriber:
        publisher.publish(USER, "user.create", mandatory=True)
        assert subscriber.stopped(DEADLINE)
    assert len(twice.attempts) == 2

    seen = peer.consume(QUEUE, PATTERN, attempts=1, fails=True)

    assert {one.routing_key for one in seen} == {"user.create"}
    assert seen[0].retries == (2 if counts_on else 1)


@both_shells
def test_on_a_queue_that_both_consume_redrive_ends_what_always_fails(
    service: SharedService, peer: Peer, counts_on: bool, shell: Shell
) -> None:
    service = replace(service, shell=shell)
    recorder = Recorder(always_fails)
    peer.declare(QUEUE, PATTERN)
    with (
        peer.consuming(QUEUE, PATTERN, attempts=1000, fails=True, max_retries=1000) as seen,
        service.subscriber(recorder, prefetch=1),
    ):
        wait_for_consumers(service.url, service.queue, 2)
        peer.publish("user.create", USER)
        (failed,) = service.wait_for_failed()
        wait_until(lambda: depth(service.url, f"{QUEUE}@retry") == 0, "nothing is on its way")
    by_redrive = [attempt.retries for attempt in recorder.attempts]

    assert (failed.reason, failed.json()) == ("retries-exhausted", USER)
    if counts_on:
        # Every attempt counts, whoever makes it.
        assert len(by_redrive) + len(seen) == MAX_RETRIES + 1
    else:
        # redrive makes max_retries + 1 attempts, or one less where the peer came first, whatever
        # the peer did between them.
        assert by_redrive in ([0, 1, 2, 3], [1, 2, 3])


def set_aside_by_redrive(service: SharedService, peer: Peer) -> None:
    with (
        service.publisher(codec=peer.codec) as publisher,
        service.subscriber(always_fails, retry=retrying(0, peer.delay)),
    ):
        publisher.publish(USER, "user.create", mandatory=True)
        service.wait_for_failed()


def set_aside_by_the_peer(service: SharedService, peer: Peer) -> None:
    peer.declare(QUEUE, PATTERN)
    peer.publish("user.create", USER)
    (seen,) = peer.consume(QUEUE, PATTERN, attempts=1, fails=True, max_retries=0)
    assert seen.then == "failed"


def requeued_by_redrive(service: SharedService, peer: Peer) -> None:
    report = service.failed_queue.requeue()
    assert (report.requeued, report.failed) == (1, [])


def requeued_by_the_peer(service: SharedService, peer: Peer) -> None:
    peer.requeue(QUEUE, PATTERN, count=1)


def handled_by_redrive(service: SharedService, peer: Peer) -> Seen:
    recorder = Recorder()
    got: list[Message] = []

    def handle(message: Message) -> None:
        got.append(message)
        recorder(message)

    with service.subscriber(handle):
        wait_until(lambda: got, "the message is handled")
    return Seen(got[0].json(), got[0].routing_key, got[0].retries, "done")


def handled_by_the_peer(service: SharedService, peer: Peer) -> Seen:
    (seen,) = peer.consume(QUEUE, PATTERN, attempts=1)
    return seen


Step = Callable[[SharedService, Peer], None]
CurrentAttempt = Callable[[SharedService, Peer], Seen]


@pytest.mark.parametrize(
    ("set_aside", "requeue", "handle"),
    [
        (set_aside_by_the_peer, requeued_by_redrive, handled_by_the_peer),
        (set_aside_by_the_peer, requeued_by_redrive, handled_by_redrive),
        (set_aside_by_redrive, requeued_by_the_peer, handled_by_redrive),
        (set_aside_by_redrive, requeued_by_the_peer, handled_by_the_peer),
    ],
    ids=[
        "peer's, by redrive, to the peer",
        "peer's, by redrive, to redrive",
        "redrive's, by the peer, to redrive",
        "redrive's, by the peer, to it",
    ],
)
def test_either_side_requeues_what_the_other_set_aside(
    service: SharedService, peer: Peer, set_aside: Step, requeue: Step, handle: CurrentAttempt
) -> None:
    set_aside(service, peer)
    (failed,) = service.failed()
    requeue(service, peer)

    assert (failed.json(), failed.routing_key) == (USER, "user.create")
    assert handle(service, peer) == Seen(USER, "user.create", 0, "done")
    assert service.failed_queue.depth() == 0


def test_a_failed_message_without_any_header_is_seen_and_requeued(
    service: SharedService, peer: Peer
) -> None:
    peer.declare(QUEUE, PATTERN)
    nothing = pika.BasicProperties()  # type: ignore[no-untyped-call]
    publish_plain(service.url, QUEUE, b"{}", nothing, exchange=service.exchanges.failed)
    (failed,) = service.failed()
    requeued_by_redrive(service, peer)

    assert (failed.message_id, failed.routing_key, failed.reason, len(failed.failure_id)) == (
        None,
        QUEUE,
        None,
        64,
    )
    assert handled_by_redrive(service, peer) == Seen({}, QUEUE, 0, "done")
