"""A service on Celery, whose queue dead-letters what its tasks fail at after one retry."""

import os
import signal
from typing import Any

from celery import Celery
from celery.signals import task_postrun
from kombu import Queue
from orders import (
    COUNT,
    DEAD_LETTER_ARGUMENTS,
    DEAD_LETTERS,
    FAILS,
    QUEUE,
    URL,
    Order,
    Progress,
    orders,
)

app = Celery("shop", broker=URL)
app.conf.update(
    broker_connection_retry_on_startup=False,
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    task_queues=[Queue(QUEUE, durable=True, queue_arguments=DEAD_LETTER_ARGUMENTS)],
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=100,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
)
progress = Progress()


@app.task(
    name="shop.place",
    autoretry_for=(LookupError, ValueError, TimeoutError),
    retry_kwargs={"max_retries": 1, "countdown": 0},
)
def place(order: dict[str, Any]) -> None:
    progress.handle_at_second_attempt(Order(**order))


def main() -> None:
    with app.connection_for_write() as connection:
        Queue(DEAD_LETTERS, durable=True)(connection.channel()).declare()
    if FAILS:
        for order in orders():
            place.apply_async((order._asdict(),), expires=3600)
    worker = app.Worker(
        pool="solo", loglevel="CRITICAL", quiet=True, without_mingle=True, without_gossip=True
    )

    @task_postrun.connect
    def stop(**_: Any) -> None:
        if progress.is_complete:
            # A warm shutdown: the message of this task is still acknowledged or rejected.
            os.kill(os.getpid(), signal.SIGTERM)

    worker.start()


if __name__ == "__main__" and COUNT:
    main()
