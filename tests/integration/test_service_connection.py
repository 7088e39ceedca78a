"""A service that has a connection of aio-pika's already gives it to redrive."""

import asyncio

import aio_pika

from redrive import AsyncFailedQueue, AsyncPublisher, AsyncSubscriber, GiveUp, Message

PATIENCE = 60


def test_a_service_publishes_handles_and_looks_with_the_connection_that_it_has(
    rabbitmq_url: str,
) -> None:
    handled: list[bytes] = []
    received: list[bytes] = []

    async def work() -> None:
        all_handled = asyncio.Event()
        connection = await aio_pika.connect_robust(rabbitmq_url, client_properties={"team": "shop"})
        subscriber = AsyncSubscriber(connection, "shop@orders", ["order.*"])

        @subscriber.handler
        async def on_message(message: Message) -> None:
            handled.append(message.body)
            if len(handled) == 2:
                all_handled.set()
            if message.body == b"odd":
                raise GiveUp("never")

        async with connection, subscriber, AsyncPublisher(connection) as publisher:
            await publisher.publish("socks", "order.paid")
            await publisher.publish("odd", "order.paid")
            await asyncio.wait_for(all_handled.wait(), PATIENCE)
            failed = AsyncFailedQueue(connection, "shop@orders")
            async with asyncio.timeout(PATIENCE):
                while not await failed.depth():
                    await asyncio.sleep(0.05)
            received.extend([message.body async for message in failed.browse()])
            # It is still the service's.
            channel = await connection.channel()
            mine = await channel.declare_queue("mine", exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"plain"), mine.name)
            received.append((await mine.get(timeout=PATIENCE)).body)

    asyncio.run(work())
    assert sorted(handled) == [b"odd", b"socks"]
    assert received == [b"odd", b"plain"]
