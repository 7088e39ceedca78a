"""aio-pika: confirms in flight by `gather`, and a consumer callback that acks."""

import asyncio
from itertools import islice

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.measure import Clock, Ledger, Load, Place

IN_FLIGHT = 500


def publish(place: Place, load: Load, clock: Clock) -> int:
    """Publishes in groups of `IN_FLIGHT`."""
    return asyncio.run(_publish(place, load, clock))


async def _publish(place: Place, load: Load, clock: Clock) -> int:
    confirmed = 0
    async with await aio_pika.connect(place.url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.get_exchange(place.exchange, ensure=False)
        bodies = load.bodies()
        with clock:
            while group := list(islice(bodies, IN_FLIGHT)):
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT),
                            place.routing_key,
                        )
                        for body in group
                    )
                )
                confirmed += len(group)
    return confirmed


def consume(place: Place, ledger: Ledger) -> None:
    """Consumes with a callback."""
    asyncio.run(_consume(place, ledger))


async def _consume(place: Place, ledger: Ledger) -> None:
    complete = asyncio.Event()
    ledger.when_complete(complete.set)
    async with await aio_pika.connect(place.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=place.prefetch or 0)
        queue = await channel.get_queue(place.queue, ensure=False)

        async def on_message(message: AbstractIncomingMessage) -> None:
            ledger.note(message.body)
            await message.ack()

        tag = await queue.consume(on_message)
        await complete.wait()
        await queue.cancel(tag)
