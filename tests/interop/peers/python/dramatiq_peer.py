"""A service on dramatiq, which retries once and then dead-letters into its `.XQ`."""

import time
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from orders import COUNT, FAILS, QUEUE, URL, Order, Progress, orders

broker = RabbitmqBroker(url=URL)
dramatiq.set_broker(broker)
progress = Progress()


@dramatiq.actor(queue_name=QUEUE or "default", max_retries=1, min_backoff=1, max_backoff=1)
def place(order: dict[str, Any]) -> None:
    progress.handle_at_second_attempt(Order(**order))


def main() -> None:
    broker.declare_queue(QUEUE, ensure=True)
    if FAILS:
        for order in orders():
            place.send(order._asdict())
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    while not progress.is_complete:
        time.sleep(0.05)
    # The last one is acknowledged or dead-lettered after its actor.
    worker.stop()
    broker.close()


if __name__ == "__main__" and COUNT:
    main()
