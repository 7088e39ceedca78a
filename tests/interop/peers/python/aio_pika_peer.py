"""A service on aio-pika, whose messages are processed in its context manager."""

import asyncio
import json

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
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


async def main() -> None:
    async with await aio_pika.connect(URL) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        await channel.declare_queue(DEAD_LETTERS, durable=True)
        queue = await channel.declare_queue(QUEUE, durable=True, arguments=DEAD_LETTER_ARGUMENTS)
        if FAILS:
            for order in orders():
                message = aio_pika.Message(
                    json.dumps(order._asdict()).encode(), message_id=order.id
                )
                await channel.default_exchange.publish(message, QUEUE)
        progress = Progress()
        finished = asyncio.Event()

        async def on_message(message: AbstractIncomingMessage) -> None:
            try:
                async with message.process():  # rejects on an error
                    progress.handle(Order(**json.loads(message.body)))
            except (LookupError, ValueError, TimeoutError):
                pass
            if progress.is_complete:
                finished.set()

        await queue.consume(on_message)
        await finished.wait()


if __name__ == "__main__" and COUNT:
    asyncio.run(main())
