"""Failed messages for the requeue: as many as are asked for, each like one that has really failed,
twice, headers and all."""

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import cycle

from benchmarks.measure import Load, Place
from redrive import FailedMessage, FailedQueue, Publisher, RetryPolicy, Subscriber
from redrive.topology import headers
from redrive.topology.headers import Delivery

_REALLY_FAILED = 200


def fill(place: Place, load: Load) -> int:
    """Has a handler fail on a few messages, and sets aside as many like them as the load asks for,
    each with ids of its own.

    To have each of them fail takes a multiple of the time of the run that is measured, and makes
    the same bytes.
    """
    logging.getLogger("redrive").setLevel(
        logging.CRITICAL
    )  # it says of every message where it now is
    failed = FailedQueue(place.url, place.queue, place.exchange)
    _fail(place, failed, min(load.count, _REALLY_FAILED))
    patterns = list(failed.browse())
    failed.purge()
    report = failed.restore(_like(patterns, load))
    assert not report.failed, report.failed[0]
    return failed.depth()


def _fail(place: Place, failed: FailedQueue, count: int) -> None:
    subscriber = Subscriber(
        place.url,
        queue=place.queue,
        routing_keys=[place.pattern],
        exchange=place.exchange,
        retry=RetryPolicy(max_retries=1, delay=timedelta(milliseconds=1)),
        prefetch=500,
    )

    @subscriber.handler
    def on_message(body: bytes) -> None:
        _charge(body)

    subscriber.declare()
    with Publisher(place.url, exchange=place.exchange) as publisher:
        publisher.publish_many((body, place.routing_key) for body in Load(count, 512).bodies())

    def stop_when_all_have_failed() -> None:
        while failed.depth() < count:
            time.sleep(0.1)
        subscriber.stop()

    threading.Thread(target=stop_when_all_have_failed, daemon=True).start()
    subscriber.run()


def _like(patterns: list[FailedMessage], load: Load) -> Iterator[Delivery]:
    for body, message in zip(load.bodies(), cycle(patterns), strict=False):
        delivery = message.delivery
        table = delivery.properties.headers.with_values({headers.FAILURE_ID: str(uuid.uuid4())})
        yield replace(
            delivery,
            body=body,
            properties=delivery.properties._replace(headers=table, message_id=str(uuid.uuid4())),
        )


def _charge(body: bytes) -> None:
    try:
        raise ConnectionRefusedError(111, "Connection refused")
    except OSError as error:
        raise RuntimeError(
            f"payment provider did not answer for order {body[:16].decode()}"
        ) from error
