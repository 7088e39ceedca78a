"""A service on kombu, with a mixin that consumes."""

from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.message import Message
from kombu.mixins import ConsumerMixin
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

EXCHANGE = Exchange("kombu.orders", type="direct", durable=True)
MAIN = Queue(QUEUE, EXCHANGE, routing_key="placed", queue_arguments=DEAD_LETTER_ARGUMENTS)


class Worker(ConsumerMixin):
    """Handles orders, and ends with the last one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._progress = Progress()

    def get_consumers(self, consumer_class: type[Consumer], channel: Any) -> list[Consumer]:
        return [consumer_class([MAIN], callbacks=[self._on_message], prefetch_count=100)]

    def _on_message(self, body: dict[str, Any], message: Message) -> None:
        try:
            self._progress.handle(Order(**body))
        except (LookupError, ValueError, TimeoutError):
            message.reject()
        else:
            message.ack()
        self.should_stop = self._progress.is_complete


def main() -> None:
    with Connection(URL) as connection:
        Queue(DEAD_LETTERS, durable=True)(connection.channel()).declare()
        MAIN(connection.channel()).declare()
        if FAILS:
            producer = Producer(connection.channel(), EXCHANGE)
            for order in orders():
                producer.publish(order._asdict(), routing_key="placed")
        Worker(connection).run()


if __name__ == "__main__" and COUNT:
    main()
