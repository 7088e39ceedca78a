"""Plain pika as somebody writes it who knows it well: SelectConnection, a window of confirms in
flight, every confirm accounted for."""

from collections.abc import Iterator

import pika

from benchmarks.measure import Clock, Load, Place

WINDOW = 2000  # as redrive's


class _Publishing:
    """Keeps the window full until the load is through."""

    def __init__(self, place: Place, load: Load, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._bodies: Iterator[bytes] = load.bodies()
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._in_flight: dict[int, bytes] = {}
        self._lowest = 1
        self._last_tag = 0
        self.confirmed = 0
        self.connection = pika.SelectConnection(
            pika.URLParameters(place.url),
            on_open_callback=self._connected,
            on_open_error_callback=self._failed,
            on_close_callback=lambda connection, reason: connection.ioloop.stop(),
        )

    def _connected(self, connection: pika.connection.Connection) -> None:
        connection.channel(on_open_callback=self._opened)

    def _failed(self, connection: pika.SelectConnection, error: BaseException) -> None:
        raise error

    def _opened(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=self._begin)

    def _begin(self, _: object) -> None:
        self._clock.start()
        self._fill()

    def _fill(self) -> None:
        in_flight, publish, persistent = (
            self._in_flight,
            self._channel.basic_publish,
            self._persistent,
        )
        exchange, routing_key = self._place.exchange, self._place.routing_key
        while len(in_flight) < WINDOW:
            body = next(self._bodies, None)
            if body is None:
                if not in_flight:
                    self._clock.stop()
                    self.connection.close()
                return
            self._last_tag += 1
            in_flight[self._last_tag] = body
            publish(exchange, routing_key, body, persistent, mandatory=True)

    def _on_confirm(
        self, frame: "pika.frame.Method[pika.spec.Basic.Ack | pika.spec.Basic.Nack]"
    ) -> None:
        method, in_flight = frame.method, self._in_flight
        tags = (
            range(self._lowest, method.delivery_tag + 1)
            if method.multiple
            else (method.delivery_tag,)
        )
        settled = 0
        for tag in tags:
            settled += in_flight.pop(tag, None) is not None
        if method.multiple:
            self._lowest = method.delivery_tag + 1
        if isinstance(method, pika.spec.Basic.Ack):
            self.confirmed += settled
        if (
            len(in_flight) <= WINDOW // 2
        ):  # many at a time: filling up after each confirm was slower
            self._fill()


def publish(place: Place, load: Load, clock: Clock) -> int:
    """Publishes with up to `WINDOW` messages unconfirmed."""
    publishing = _Publishing(place, load, clock)
    publishing.connection.ioloop.start()
    return publishing.confirmed
