"""dramatiq: an actor enqueued with confirms, and its Worker with the threads that its command line
starts in one process."""

import functools
import logging
from collections.abc import Callable

import dramatiq
import dramatiq.worker
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.measure import RETRY_SECONDS, Clock, Ledger, Load, Place


class _QuorumBroker(RabbitmqBroker):
    """dramatiq declares classic queues and has no option for another type; the comparison needs the
    same type for all."""

    def _build_queue_arguments(self, queue_name: str) -> dict[str, object]:
        return {**super()._build_queue_arguments(queue_name), "x-queue-type": "quorum"}


def _actor(
    place: Place, handler: Callable[[str], None], **retry: int
) -> dramatiq.Actor[[str], None]:
    broker = _QuorumBroker(url=place.url, confirm_delivery=True)
    dramatiq.set_broker(broker)
    return dramatiq.actor(
        handler, actor_name="on_message", queue_name=place.queue, broker=broker, **retry
    )


def publish(place: Place, load: Load, clock: Clock) -> int:
    """`actor.send` awaits the confirm."""
    actor = _actor(place, lambda body: None)
    actor.broker.declare_queue(place.queue, ensure=True)
    with clock:
        for text in load.texts():
            actor.send(text)
    actor.broker.close()
    return load.count


def consume(place: Place, ledger: Ledger) -> None:
    """Runs a Worker until the last message is done."""
    _run(place, ledger, _note)


def consume_failing_once(place: Place, ledger: Ledger) -> None:
    """Each message fails once, and the middleware `Retries` enqueues it anew with a delay."""
    logging.getLogger("dramatiq").setLevel(
        logging.CRITICAL
    )  # it logs each failure with its traceback
    delay_ms = RETRY_SECONDS * 1000
    _run(place, ledger, _fail_once, max_retries=1, min_backoff=delay_ms, max_backoff=delay_ms)


def _run(place: Place, ledger: Ledger, handle: Callable[[Ledger, str], None], **retry: int) -> None:
    if place.prefetch is not None:
        dramatiq.worker.QUEUE_PREFETCH = (
            place.prefetch
        )  # else an environment variable, read at the import
    actor = _actor(place, functools.partial(handle, ledger), **retry)
    worker = dramatiq.Worker(actor.broker)
    worker.start()
    ledger.complete.wait()
    worker.stop()
    actor.broker.close()


def _note(ledger: Ledger, body: str) -> None:
    ledger.note(body)


def _fail_once(ledger: Ledger, body: str) -> None:
    if ledger.is_tried_first(body):
        raise ConnectionRefusedError(111, "Connection refused")
    ledger.note(body)
