"""redrive's asyncio shell."""

import asyncio

from benchmarks.measure import Clock, Ledger, Load, Place
from redrive import AsyncPublisher, AsyncSubscriber


def publish(place: Place, load: Load, clock: Clock) -> int:
    """`publish_many` with a generator."""
    return asyncio.run(_publish(place, load, clock))


async def _publish(place: Place, load: Load, clock: Clock) -> int:
    async with AsyncPublisher(place.url, exchange=place.exchange) as publisher:
        with clock:
            report = await publisher.publish_many(
                (body, place.routing_key) for body in load.bodies()
            )
        assert not report.failed, report.failed[0]
        return report.confirmed - report.unroutable


def consume(place: Place, ledger: Ledger) -> None:
    """A subscriber with one handler at a time."""
    asyncio.run(_consume(place, ledger))


async def _consume(place: Place, ledger: Ledger) -> None:
    subscriber = AsyncSubscriber(
        place.url,
        queue=place.queue,
        routing_keys=[place.pattern],
        exchange=place.exchange,
        prefetch=place.prefetch,
        queue_type=place.queue_type,
    )

    @subscriber.handler
    async def on_message(body: bytes) -> None:
        ledger.note(body)

    ledger.when_complete(subscriber.stop)
    await subscriber.run()
