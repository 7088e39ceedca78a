"""A client's channel in the in-memory model: its consumers, unsettled messages and confirms."""

from collections.abc import Callable

from redrive.amqp.frames import content_frames, method_frame
from redrive.amqp.properties import Malformed, Properties
from redrive.testing.memory import method_arguments as encoded
from redrive.testing.memory.consumer_model import ConsumerModel
from redrive.testing.memory.message_copy import Content, MessageCopy
from redrive.testing.memory.queue_model import QueueModel
from redrive.testing.memory.refused import (
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    SYNTAX_ERROR,
    RefusedByModel,
)
from redrive.testing.memory.virtual_host import VirtualHost

_BASIC = 60
_RETURN, _DELIVER, _GET_OK, _GET_EMPTY, _ACK, _NACK, _CANCEL = 50, 60, 71, 72, 80, 120, 30
_MOST_OF_A_QUORUM_QUEUE = 2000
"""The prefetch that a quorum queue uses for "unlimited". Source: measured on RabbitMQ 3.10.8."""
_NO_ROUTE = 312


class SessionChannel:
    """A channel of one client connection."""

    def __init__(
        self,
        number: int,
        host: VirtualHost,
        write: Callable[[bytes], None],
        frame_max: int,
        user: str,
    ) -> None:
        self.number = number
        self._host = host
        self._write = write
        self._frame_max = frame_max
        self._user = user
        self.prefetch = 0
        self.confirms = False
        self.transaction: list[tuple[Content, bool]] | None = None
        """Messages published since `tx.select` but not committed; None outside a transaction."""
        self._published = 0
        self._delivered = 0
        self._consumers: dict[str, tuple[ConsumerModel, QueueModel]] = {}
        self._unsettled: dict[int, tuple[QueueModel, MessageCopy, ConsumerModel | None]] = {}
        self._lingers_on: list[QueueModel] = []
        self._last_tag = 0

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self, exchange: str, routing_key: str, mandatory: bool, properties: bytes, body: bytes
    ) -> None:
        """Process a message from the client."""
        content = self._content(exchange, routing_key, properties, body)
        if self.transaction is not None:
            self.transaction.append((content, mandatory))
            return
        self._route(content, mandatory)

    def commit(self) -> None:
        """Publish the messages of the transaction."""
        gathered, self.transaction = self.transaction or [], []
        for content, mandatory in gathered:
            self._route(content, mandatory)

    def _route(self, content: Content, mandatory: bool) -> None:
        is_routed, is_taken = self._host.publish(content)
        if mandatory and not is_routed:
            arguments = (
                encoded.short(_NO_ROUTE)
                + encoded.text("NO_ROUTE")
                + encoded.text(content.exchange)
                + encoded.text(content.routing_key)
            )
            self._write(method_frame(self.number, _BASIC, _RETURN, arguments))
            self._write_content(content.encode(), content.body)
        if self.confirms:
            self._published += 1
            self._write(
                method_frame(
                    self.number,
                    _BASIC,
                    _ACK if is_taken else _NACK,
                    encoded.longlong(self._published) + b"\0",
                )
            )

    def _content(self, exchange: str, routing_key: str, raw: bytes, body: bytes) -> Content:
        try:
            properties = Properties.parse(raw)
        except Malformed as error:
            raise RefusedByModel(SYNTAX_ERROR, str(error)) from error
        if len(body) > self._host.version.largest_message:
            raise RefusedByModel(
                PRECONDITION_FAILED,
                f"message size {len(body)} is larger than configured max size "
                f"{self._host.version.largest_message}",
            )
        if properties.user_id is not None and properties.user_id != self._user:
            raise RefusedByModel(
                PRECONDITION_FAILED,
                f"user_id property set to '{properties.user_id}' but authenticated user was "
                f"'{self._user}'",
            )
        expiration = properties.expiration
        if expiration is not None and not (expiration.isascii() and expiration.isdigit()):
            raise RefusedByModel(PRECONDITION_FAILED, f"invalid expiration '{expiration}'")
        keys = [routing_key]
        for name in ("CC", "BCC"):
            if name in properties.headers:
                keys += self._copies(name, properties)
        if "BCC" in properties.headers:
            properties = properties._replace(headers=properties.headers.without("BCC".__eq__))
            raw = properties.encode()
        return Content(exchange, tuple(keys), properties, raw, body)

    def _copies(self, name: str, properties: Properties) -> list[str]:
        value = properties.headers[name]
        if not isinstance(value, list):
            raise RefusedByModel(
                PRECONDITION_FAILED, f"invalid header '{name}': not a list of routing keys"
            )
        return [key for key in value if isinstance(key, str)]

    # --- consuming --------------------------------------------------------------------------------

    def consume(
        self,
        queue: QueueModel,
        tag: str,
        *,
        priority: int,
        no_ack: bool,
        exclusive: bool,
        offset: int,
    ) -> None:
        """Start a consumer."""
        if tag in self._consumers:
            raise RefusedByModel(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        prefetch = self.prefetch
        if not prefetch and queue.arguments.is_quorum and not no_ack:
            prefetch = _MOST_OF_A_QUORUM_QUEUE
        consumer = ConsumerModel(
            tag,
            self,
            prefetch=0 if no_ack else prefetch,
            priority=priority,
            no_ack=no_ack,
            exclusive=exclusive,
            offset=offset,
        )
        self._host.consume(queue, consumer)
        self._consumers[tag] = consumer, queue

    def new_tag(self) -> str:
        """Return a tag for a consumer that came without one."""
        self._last_tag += 1
        return f"amq.ctag-{self.number}-{self._last_tag}"

    def cancel(self, tag: str) -> None:
        """End a consumer if it exists."""
        consumer, queue = self._consumers.pop(tag, (None, None))
        if consumer is not None and queue is not None:
            queue.lingering.add(self)
            self._lingers_on.append(queue)
            self._host.stop_consuming(queue, consumer)

    def deliver(self, consumer: ConsumerModel, copy: MessageCopy) -> None:
        """Send the client a message."""
        _, queue = self._consumers[consumer.tag]
        tag = self._unsettle(queue, copy, consumer)
        content = copy.content
        arguments = b"".join(
            (
                encoded.text(consumer.tag),
                encoded.longlong(tag),
                b"\1" if copy.is_redelivered else b"\0",
                encoded.text(content.exchange),
                encoded.text(content.routing_key),
            )
        )
        self._write(method_frame(self.number, _BASIC, _DELIVER, arguments))
        self._write_content(queue.encoded(copy), content.body)

    def cancelled(self, consumer: ConsumerModel) -> None:
        """Tell the client that a consumer's queue is gone."""
        if self._consumers.pop(consumer.tag, None) is not None:
            arguments = encoded.text(consumer.tag) + b"\1"
            self._write(method_frame(self.number, _BASIC, _CANCEL, arguments))

    def get(self, queue: QueueModel, *, no_ack: bool) -> None:
        """Send the client one message, or the reply that there is none.

        Source: measured on RabbitMQ 3.10.8, for quorum queues.
        """
        if queue.arguments.single_active_consumer and queue.arguments.is_quorum:
            raise RefusedByModel(
                RESOURCE_LOCKED,
                f"cannot obtain access to locked queue '{queue.name}' in vhost "
                f"'{self._host.name}'. basic.get operations are not supported by quorum queues "
                "with single active consumer",
            )
        copy = queue.take()
        if copy is None:
            self._write(method_frame(self.number, _BASIC, _GET_EMPTY, b"\0"))
            return
        if no_ack:
            queue.settled(copy)
            self._delivered += 1
            tag = self._delivered
        else:
            tag = self._unsettle(queue, copy, None)
        content = copy.content
        arguments = b"".join(
            (
                encoded.longlong(tag),
                b"\1" if copy.is_redelivered else b"\0",
                encoded.text(content.exchange),
                encoded.text(content.routing_key),
                encoded.long(len(queue)),
            )
        )
        self._write(method_frame(self.number, _BASIC, _GET_OK, arguments))
        self._write_content(queue.encoded(copy), content.body)

    # --- settling ---------------------------------------------------------------------------------

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Settle deliveries that the client has handled."""
        for queue, copy in self._taken(tag, multiple):
            self._host.settle(queue, copy)

    def reject(self, tag: int, *, multiple: bool, requeue: bool, failed: bool) -> None:
        """Settle deliveries that the client rejects."""
        for queue, copy in self._taken(tag, multiple):
            if requeue:
                self._host.give_back(queue, copy, failed=failed)
            else:
                self._host.reject(queue, copy)

    def recover(self) -> None:
        """Return all unsettled messages, for `basic.recover`."""
        for queue, copy in self._taken(0, True):
            self._host.give_back(queue, copy, failed=False)

    def end(self) -> None:
        """Close the channel: end its consumers and return unsettled messages in order."""
        for tag in list(self._consumers):
            self.cancel(tag)
        for queue, copy in self._taken(0, True):
            self._host.give_back(queue, copy, failed=True)
        for queue in self._lingers_on:
            queue.lingering.discard(self)

    def _taken(self, tag: int, multiple: bool) -> list[tuple[QueueModel, MessageCopy]]:
        if multiple:
            tags = list(self._unsettled) if not tag else []
            for one in self._unsettled if tag else ():
                if one > tag:
                    break
                tags.append(one)
        else:
            tags = [tag]
        if tag and tag not in self._unsettled and not (multiple and tags):
            raise RefusedByModel(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        taken: list[tuple[QueueModel, MessageCopy]] = []
        for one in tags:
            queue, copy, consumer = self._unsettled.pop(one)
            if consumer is not None:
                consumer.unsettled -= 1
                self._host.changed(queue)
            taken.append((queue, copy))
        return taken

    def _unsettle(
        self, queue: QueueModel, copy: MessageCopy, consumer: ConsumerModel | None
    ) -> int:
        self._delivered += 1
        if consumer is None or not consumer.no_ack:
            self._unsettled[self._delivered] = queue, copy, consumer
        return self._delivered

    def _write_content(self, properties: bytes, body: bytes) -> None:
        self._write(content_frames(self.number, properties, body, self._frame_max))
