"""A service on FastStream, whose subscriber rejects what it fails at."""

import asyncio
from typing import Any

from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue
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

broker = RabbitBroker(URL, logger=None)
progress = Progress()
finished = asyncio.Event()
main_queue = RabbitQueue(QUEUE or "orders", durable=True, arguments=DEAD_LETTER_ARGUMENTS)


@broker.subscriber(main_queue, ack_policy=AckPolicy.REJECT_ON_ERROR)
async def place(order: dict[str, Any]) -> None:
    try:
        progress.handle(Order(**order))
    finally:
        if progress.is_complete:
            finished.set()


async def main() -> None:
    await broker.connect()
    await broker.declare_queue(RabbitQueue(DEAD_LETTERS, durable=True))
    await broker.start()
    if FAILS:
        for order in orders():
            await broker.publish(order._asdict(), queue=main_queue)
    await finished.wait()
    # The last one is settled after its handler.
    await broker.stop()


if __name__ == "__main__" and COUNT:
    asyncio.run(main())
