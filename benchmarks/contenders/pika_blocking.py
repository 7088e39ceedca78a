"""Plain pika as its tutorials show it: BlockingConnection, a confirm awaited for each publish, an
ack for each message."""

import pika
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks.measure import Clock, Ledger, Load, Place


def publish(place: Place, load: Load, clock: Clock) -> int:
    """`basic_publish` on a channel in confirm mode returns when the broker has confirmed."""
    with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        with clock:
            for body in load.bodies():
                channel.basic_publish(
                    place.exchange, place.routing_key, body, persistent, mandatory=True
                )
        return load.count


def consume(place: Place, ledger: Ledger) -> None:
    """`basic_consume`, and `basic_ack` after each message."""
    with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=place.prefetch or 0)

        def on_message(
            channel: BlockingChannel,
            method: pika.spec.Basic.Deliver,
            properties: pika.BasicProperties,
            body: bytes,
        ) -> None:
            ledger.note(body)
            channel.basic_ack(method.delivery_tag)
            if ledger.complete.is_set():
                channel.stop_consuming()

        channel.basic_consume(place.queue, on_message)
        channel.start_consuming()
