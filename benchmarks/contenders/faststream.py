"""FastStream's RabbitBroker: concurrent publishes with confirms, and a subscriber."""

import asyncio
import logging
from itertools import islice

from faststream import FastStream
from faststream.rabbit import Channel, ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue

from benchmarks.measure import Clock, Ledger, Load, Place

IN_FLIGHT = 500


def publish(place: Place, load: Load, clock: Clock) -> int:
    """Publishes in groups of `IN_FLIGHT`."""
    return asyncio.run(_publish(place, load, clock))


async def _publish(place: Place, load: Load, clock: Clock) -> int:
    confirmed = 0
    exchange = RabbitExchange(place.exchange, type=ExchangeType.TOPIC, declare=False)
    async with RabbitBroker(place.url, logger=None) as broker:
        bodies = load.bodies()
        with clock:
            while group := list(islice(bodies, IN_FLIGHT)):
                await asyncio.gather(
                    *(
                        broker.publish(
                            body,
                            routing_key=place.routing_key,
                            exchange=exchange,
                            persist=True,
                            mandatory=True,
                        )
                        for body in group
                    )
                )
                confirmed += len(group)
    return confirmed


def consume(place: Place, ledger: Ledger) -> None:
    """Runs an application with one subscriber."""
    asyncio.run(_consume(place, ledger))


async def _consume(place: Place, ledger: Ledger) -> None:
    channel = None if place.prefetch is None else Channel(prefetch_count=place.prefetch)
    broker = RabbitBroker(place.url, logger=None, default_channel=channel)
    application = FastStream(broker, logger=None)
    ledger.when_complete(application.exit)

    @broker.subscriber(RabbitQueue(place.queue, declare=False))
    async def on_message(body: bytes) -> None:
        ledger.note(body)

    await application.run(log_level=logging.ERROR)
