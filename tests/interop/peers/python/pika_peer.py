"""A service on pika, which rejects what it can't handle into its dead-letter queue."""

import json

import pika
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


def main() -> None:
    with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
        channel = connection.channel()
        channel.queue_declare(DEAD_LETTERS, durable=True)
        channel.queue_declare(QUEUE, durable=True, arguments=DEAD_LETTER_ARGUMENTS)
        if FAILS:
            for order in orders():
                channel.basic_publish("", QUEUE, json.dumps(order._asdict()).encode())
        progress = Progress()
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(QUEUE):
            assert method is not None
            assert body is not None
            try:
                progress.handle(Order(**json.loads(body)))
            except (LookupError, ValueError, TimeoutError):
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_ack(method.delivery_tag)
            if progress.is_complete:
                break
        channel.cancel()


if __name__ == "__main__" and COUNT:
    main()
