"""Celery: a task sent with confirms, and its worker in one process (the `solo` pool), acking late
as the others do."""

import contextlib
import threading

import celery
import celery.worker.state

from benchmarks.measure import RETRY_SECONDS, Clock, Ledger, Load, Place


def _application(place: Place) -> celery.Celery:
    application = celery.Celery("benchmark", broker=place.url)
    application.conf.update(
        broker_transport_options={"confirm_publish": True},
        task_default_queue=place.queue,
        task_default_queue_type="quorum",
        task_default_exchange_type="topic",
        task_ignore_result=True,
        task_acks_late=True,
        worker_redirect_stdouts=False,
    )
    if place.prefetch is not None:
        application.conf.worker_prefetch_multiplier = place.prefetch
    return application


def publish(place: Place, load: Load, clock: Clock) -> int:
    """`task.delay` awaits the confirm."""
    application = _application(place)

    @application.task(name="on_message")
    def on_message(body: str) -> None:
        """Never called: the worker is another process."""

    with (
        application.connection_for_write() as connection,
        application.amqp.Producer(connection) as producer,
    ):
        for queue in application.amqp.queues.values():
            queue(connection.default_channel).declare()
        with clock:
            for text in load.texts():
                on_message.apply_async((text,), producer=producer)
    return load.count


def consume(place: Place, ledger: Ledger) -> None:
    """Runs the worker until the last task is done."""
    _run(place, ledger)


def consume_failing_once(place: Place, ledger: Ledger) -> None:
    """Each task fails once, and its `autoretry_for` sends it anew with a countdown."""
    _run(
        place,
        ledger,
        autoretry_for=(ConnectionRefusedError,),
        max_retries=1,
        default_retry_delay=RETRY_SECONDS,
    )


def _run(place: Place, ledger: Ledger, **retry: object) -> None:
    application = _application(place)

    @application.task(name="on_message", **retry)
    def on_message(body: str) -> None:
        if retry and ledger.is_tried_first(body):
            raise ConnectionRefusedError(111, "Connection refused")
        ledger.note(body)
        if ledger.complete.is_set():
            threading.Timer(0.5, _stop).start()  # the worker's last acks are still on its list

    with contextlib.suppress(SystemExit):  # how it ends
        application.Worker(pool="solo", concurrency=1, loglevel="ERROR", quiet=True).start()


def _stop() -> None:
    celery.worker.state.should_stop = 0
