"""What redrive relies on inside aiormq, and that it touches nobody else's connections."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

import aiormq
import pytest
from aiormq import connection

from contract.shells import ASYNC
from contract.support import Recorder, Service
from redrive import AsyncPublisher, AsyncSubscriber, ConfigurationError, Message
from redrive.testing import Proxy
from waiting import wait_until

_MEND = "aiormq has changed: look at redrive/pubsub/aio/wire.py before this test"


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(function).parameters)


def test_aiormq_takes_a_stream_that_is_open_already() -> None:
    assert "transport_factory" in parameters_of(aiormq.Connection), _MEND
    assert parameters_of(connection.TransportFactory.create) == ["self", "url", "kwargs"], _MEND
    assert {"connect", "close"} <= set(dir(aiormq.Connection)), _MEND


def test_aiormq_writes_whole_frames_past_which_the_hook_can_write() -> None:
    assert "writer.write(channel_frame.payload)" in inspect.getsource(connection.Connection), _MEND


def test_what_the_hook_reads_of_a_connection_is_there(rabbitmq_url: str) -> None:
    async def look() -> None:
        async with await aiormq.connect(rabbitmq_url) as plain:
            assert plain.connection_tune.frame_max, _MEND
            assert isinstance(plain.server_properties, dict), _MEND
            assert plain.server_properties["version"], _MEND
            assert hasattr(plain, "vhost"), _MEND

    asyncio.run(look())


def test_a_lost_wire_leaves_nothing_of_aiormq_behind_and_is_told_by_redrive_alone(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> set[str]:
        with Proxy(rabbitmq_url) as proxy:
            async with AsyncPublisher(proxy.url) as publisher:
                for _ in range(3):
                    await publisher.publish("socks", "order.paid")
                    proxy.cut()
                await publisher.publish("socks", "order.paid")
                return {
                    task.get_name()
                    for task in asyncio.all_tasks()
                    if "aiormq" in repr(task.get_coro())
                }

    with caplog.at_level(logging.INFO):
        asyncio.run(work())

    assert [
        record.message for record in caplog.records if record.name.startswith(("aiormq", "asyncio"))
    ] == []
    assert sum("trying again" in record.message for record in caplog.records) == 3


def test_a_connection_that_is_never_silent_outlives_aiormqs_watch_for_heartbeats(
    rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A broker that sends messages sends no heartbeats, and aiormq never sees the messages.
    service = Service(rabbitmq_url, shell=ASYNC)
    recorder = Recorder()
    with (
        service.subscriber(recorder, url=f"{rabbitmq_url}?heartbeat=2"),
        service.publisher() as publisher,
    ):
        began = time.monotonic()
        while time.monotonic() < began + 12:  # aiormq's patience is 9 s
            publisher.publish("socks", "order.paid")
        wait_until(lambda: recorder.tried == recorder.handled, "all are handled")

    assert "lost" not in caplog.text
    assert set(recorder.tried.values()) == {1}


def test_a_plain_connection_in_the_same_process_reads_and_writes_as_ever(rabbitmq_url: str) -> None:
    received: list[dict[str, Any]] = []

    async def work() -> None:
        subscriber = AsyncSubscriber(rabbitmq_url, "shop@orders", ["order.*"])

        @subscriber.handler
        async def on_message(message: Message) -> None: ...

        async with subscriber, await aiormq.connect(rabbitmq_url) as plain:
            channel = await plain.channel()
            await channel.queue_declare("mine", durable=True)
            properties = aiormq.spec.Basic.Properties(
                message_id="plain", headers={"number": 7, "list": [1, "two"]}
            )
            await channel.basic_publish(b"socks", routing_key="mine", properties=properties)
            delivered = await channel.basic_get("mine", no_ack=True)
            received.append(dict(delivered.header.properties.headers or {}))

    asyncio.run(work())
    assert received == [{"number": 7, "list": [1, "two"]}]


def test_an_exchange_that_is_not_there_is_told_to_each_of_those_in_flight(
    rabbitmq_url: str,
) -> None:
    # It closes the channel; how one is closed and opened again is the hook's own.
    async def work() -> None:
        async with AsyncPublisher(rabbitmq_url, declare=False) as publisher:
            results = await asyncio.gather(
                *(publisher.publish("socks", "order.paid") for _ in range(5)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [ConfigurationError] * 5
            assert "no exchange 'master'" in str(results[0])

    asyncio.run(work())
