"""The broker in memory, its time, and what it says to what it can't do."""

import asyncio
from datetime import timedelta

import pika
import pytest

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from redrive.testing.memory_broker import MemoryBroker


def put(broker: MemoryBroker, queue: str, *bodies: bytes, ttl_ms: int | None = None) -> None:
    """Publishes messages into a queue that is made for them."""
    arguments = {} if ttl_ms is None else {"x-message-ttl": ttl_ms}
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        for body in bodies:
            channel.basic_publish("", queue, body, mandatory=True)


def test_time_passes_only_when_it_is_turned() -> None:
    with MemoryBroker() as broker:
        before = broker.now
        put(broker, "orders", b"1", b"2", ttl_ms=60_000)
        broker.turn(timedelta(seconds=59))
        assert [message.body for message in broker.messages("orders")] == [b"1", b"2"]
        broker.turn("1s")
        assert broker.messages("orders") == []
        assert broker.now - before == timedelta(minutes=1)


def test_what_a_lost_connection_had_is_ready_again() -> None:
    with MemoryBroker() as broker:
        put(broker, "orders", b"1")
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        method, _, _ = connection.channel().basic_get("orders")
        assert method is not None
        assert broker.messages("orders") == []
        broker.drop_connections()
        (message,) = broker.messages("orders")
        assert message.redelivered
        with pytest.raises(pika.exceptions.AMQPError):
            connection.process_data_events(60)


def test_virtual_hosts_know_nothing_of_each_other() -> None:
    with MemoryBroker() as broker:
        other = broker.create_virtual_host("other")
        put(broker, "orders")
        with declaring(Connector(other, "test")) as declarer:
            assert declarer.depth("orders") is None
            assert str(declarer.version) == "4.3.6"


def refusal_of(broker: MemoryBroker, url: str) -> RedriveError:
    with pytest.raises(RedriveError) as refused, declaring(Connector(url, "test")):
        pass
    return refused.value


def test_a_wrong_password_and_a_virtual_host_that_is_not_there_are_refused_as_by_rabbitmq() -> None:
    with MemoryBroker() as broker:
        assert isinstance(
            refusal_of(broker, broker.url.replace("guest:guest", "guest:secret")), PermissionDenied
        )
        assert "no virtual host 'nowhere'" in str(
            refusal_of(broker, broker.url.replace("%2F", "nowhere"))
        )


def test_what_it_has_not_is_said() -> None:
    with MemoryBroker(real_time=True) as broker:
        with pytest.raises(ConfigurationError, match="has no queue 'orders'"):
            broker.messages("orders")
        with pytest.raises(ConfigurationError, match="runs in real time"):
            broker.turn("1s")
        with pytest.raises(BrokerUnavailable, match="nobody consumes queue 'orders'"):
            broker.until_consumed("orders", timeout=0)
        put(broker, "orders", b"1")
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().basic_get("orders")
            with pytest.raises(BrokerUnavailable, match="not settled: 1 of queue 'orders'"):
                broker.until_idle(timeout=0)
    with pytest.raises(ConfigurationError, match="Give one of"):
        MemoryBroker("2.8")


def test_an_event_loop_is_not_made_to_stand_still() -> None:
    async def turns() -> None:
        with MemoryBroker() as broker:
            with pytest.raises(ConfigurationError, match="turn_async"):
                broker.turn("1s")
            with pytest.raises(ConfigurationError, match="until_idle_async"):
                broker.until_idle()
            before = broker.now
            await broker.turn_async("1s")
            await broker.until_idle_async()
            assert broker.now - before == timedelta(seconds=1)

    asyncio.run(turns())


def test_it_is_closed_once_and_refuses_connections_then() -> None:
    with MemoryBroker() as broker:
        pass
    broker.close()
    assert "nothing listens there" in str(refusal_of(broker, broker.url))
