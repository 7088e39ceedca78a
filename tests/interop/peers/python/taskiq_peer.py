"""A service on taskiq, which retries once and whose worker then dies of each message: its queue
dead-letters what a worker has died of."""

import asyncio
import logging
import os
from typing import Any

from orders import COUNT, DEAD_LETTERS, FAILS, QUEUE, URL, Order, Progress, orders
from taskiq import SimpleRetryMiddleware
from taskiq.receiver import Receiver
from taskiq_aio_pika import AioPikaBroker, Queue

broker = AioPikaBroker(
    URL,
    qos=COUNT,
    task_queues=[Queue(name=QUEUE, arguments={"x-delivery-limit": 0})],
    dead_letter_queue=Queue(name=DEAD_LETTERS),
).with_middlewares(SimpleRetryMiddleware())
progress = Progress()
finished = asyncio.Event()
tried: set[str] = set()
hanging: set[str] = set()


@broker.task(task_name="shop.place", retry_on_error=True, max_retries=2)
async def place(order: dict[str, Any]) -> None:
    if FAILS and order["id"] in tried:
        hanging.add(order["id"])
        if len(hanging) == COUNT:
            os._exit(0)
        await asyncio.Event().wait()
    tried.add(order["id"])
    try:
        progress.handle_at_second_attempt(Order(**order))
    finally:
        if progress.is_complete:
            finished.set()


async def main() -> None:
    logging.disable()
    broker.is_worker_process = True
    await broker.startup()
    if FAILS:
        for order in orders():
            await place.kiq(order._asdict())
    await Receiver(broker, run_startup=False).listen(finished)
    await broker.shutdown()


if __name__ == "__main__" and COUNT:
    asyncio.run(main())
