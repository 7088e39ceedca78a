"""redrive itself."""

import logging
import threading
from datetime import timedelta

from benchmarks.measure import RETRY_SECONDS, Clock, Ledger, Load, Place
from redrive import FailedQueue, Publisher, RetryPolicy, Subscriber
from redrive.topology.model import RetryVia


def publish(place: Place, load: Load, clock: Clock) -> int:
    """`publish_many` with a generator."""
    with Publisher(place.url, exchange=place.exchange) as publisher:
        with clock:
            report = publisher.publish_many((body, place.routing_key) for body in load.bodies())
        assert not report.failed, report.failed[0]
        return report.confirmed - report.unroutable


def publish_one(place: Place, load: Load, clock: Clock) -> int:
    """`publish`, which returns when the message is confirmed, again and again on one thread."""
    with Publisher(place.url, exchange=place.exchange) as publisher:
        with clock:
            for body in load.bodies():
                publisher.publish(body, place.routing_key)
        return load.count - publisher.unroutable


def consume(place: Place, ledger: Ledger) -> None:
    """A subscriber with one handler thread."""
    subscriber = Subscriber(
        place.url,
        queue=place.queue,
        routing_keys=[place.pattern],
        exchange=place.exchange,
        prefetch=place.prefetch,
        queue_type=place.queue_type,
    )

    @subscriber.handler
    def on_message(body: bytes) -> None:
        ledger.note(body)

    threading.Thread(target=_stop_when_complete, args=(ledger, subscriber), daemon=True).start()
    subscriber.run()


def consume_by_ladder(place: Place, ledger: Ledger) -> None:
    """Each message fails once and waits on the delay ladder, as any does whose delay is not that of
    the retry queue."""
    _fail_once(place, ledger, RetryPolicy(max_retries=1, backoff=timedelta(seconds=RETRY_SECONDS)))


def consume_by_dead_lettering(place: Place, ledger: Ledger) -> None:
    """Each message fails once and waits in the retry queue."""
    _fail_once(place, ledger, RetryPolicy(max_retries=1, delay=RETRY_SECONDS))


def consume_held_back(place: Place, ledger: Ledger) -> None:
    """Each message fails once, and RabbitMQ 4.3 itself holds it back."""
    _fail_once(place, ledger, RetryPolicy(max_retries=1, delay=RETRY_SECONDS), "broker")


def _fail_once(
    place: Place, ledger: Ledger, policy: RetryPolicy, retry_via: RetryVia = "dead-letter"
) -> None:
    logging.getLogger("redrive").setLevel(
        logging.CRITICAL
    )  # it says of every message where it now is
    subscriber = Subscriber(
        place.url,
        queue=place.queue,
        routing_keys=[place.pattern],
        exchange=place.exchange,
        prefetch=place.prefetch,
        retry=policy,
        retry_via=retry_via,
    )

    @subscriber.handler
    def on_message(body: bytes) -> None:
        if ledger.is_tried_first(body):
            raise ConnectionRefusedError(111, "Connection refused")
        ledger.note(body)

    threading.Thread(target=_stop_when_complete, args=(ledger, subscriber), daemon=True).start()
    subscriber.run()


def requeue(place: Place, clock: Clock) -> int:
    """`FailedQueue.requeue` of all that failed; connecting and looking at the queue included."""
    with clock:
        report = FailedQueue(place.url, place.queue, place.exchange).requeue()
    assert not report.failed, report.failed[0]
    return report.requeued


def requeue_where(place: Place, clock: Clock) -> int:
    """The same with a filter that is asked of each message and is true of all, as
    `redrive failed requeue --where` asks it."""
    with clock:
        report = FailedQueue(place.url, place.queue, place.exchange).requeue(
            "error_type = 'RuntimeError' and retries = 1"
        )
    assert not report.failed, report.failed[0]
    return report.requeued


def _stop_when_complete(ledger: Ledger, subscriber: Subscriber) -> None:
    ledger.complete.wait()
    subscriber.stop()
