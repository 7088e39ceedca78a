"""A queue of the in-memory model: its messages, their order and expiry."""

import heapq
import itertools
from bisect import insort
from collections import deque
from collections.abc import Iterator

from redrive.amqp.field_table import FieldValue, Table
from redrive.testing.memory.consumer_model import ConsumerChannel, ConsumerModel
from redrive.testing.memory.message_copy import Content, MessageCopy, with_headers
from redrive.testing.memory.queue_arguments import QueueArguments
from redrive.topology.broker_version import BrokerVersion

_COUNTS_FAILURES_ALONE = BrokerVersion(4, 3)


class QueueModel:
    """A queue with its consumers."""

    def __init__(
        self,
        name: str,
        table: Table,
        arguments: QueueArguments,
        version: BrokerVersion,
        *,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        now: float,
    ) -> None:
        self.name = name
        self.table = table
        self.arguments = arguments
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.unused_since = now
        self.consumers: list[ConsumerModel] = []
        self.unsettled = 0
        """Number of its messages held by consumers."""
        self.lingering: set[ConsumerChannel] = set()
        """Channels that have ended a consumer but are still open: redrive starts another one in
        that case, with a different prefetch."""
        self.undelivered: deque[Content] = deque()
        """Messages dead-lettered at least once that no queue has accepted yet."""
        self.scheduled: float | None = None
        self._version = version
        self._fresh: deque[MessageCopy] = deque()
        self._returned: deque[MessageCopy] = deque()
        self._held_back: list[tuple[float, int, MessageCopy]] = []
        self._bytes = 0
        self._positions = itertools.count()
        self._turn = 0

    # --- messages ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of ready messages."""
        return len(self._fresh) + len(self._returned)

    def contents(self) -> Iterator[MessageCopy]:
        """Yield the ready messages in delivery order, followed by those held back."""
        yield from self._returned
        yield from self._fresh
        yield from (copy for _, _, copy in sorted(self._held_back))

    def put(self, content: Content, now: float) -> tuple[bool, list[MessageCopy]]:
        """Append a message. Return whether it was accepted, and the messages dropped because of the
        length limit."""
        arguments = self.arguments
        if arguments.refuses_when_full and self._is_full(1, len(content.body)):
            return False, []
        returns = content.carried if self._continues_counts else 0
        self._fresh.append(
            MessageCopy(content, next(self._positions), self._expiry(content, now), returns)
        )
        self._bytes += len(content.body)
        dropped: list[MessageCopy] = []
        while self._is_full(0, 0) and (head := self._pop()) is not None:
            dropped.append(head)
        return True, dropped

    def take(self, consumer: ConsumerModel | None = None) -> MessageCopy | None:
        """Take the next ready message for a consumer. A stream keeps it, and only counts on."""
        if self.arguments.is_stream and consumer is not None:
            self.unsettled += 1
            consumer.offset += 1
            return self._fresh[consumer.offset - 1]
        copy = self._pop()
        if copy is not None:
            self.unsettled += 1
        return copy

    def settled(self, copy: MessageCopy) -> None:
        """Note that a consumer is done with a message, which is no longer in the queue."""
        self.unsettled -= 1

    def give_back(self, copy: MessageCopy, now: float, *, failed: bool) -> bool:
        """Take back a message from a consumer; return False if its delivery limit is exceeded.

        A quorum queue puts it behind messages that were returned earlier, a classic queue at its
        old place. Source: docs/brokers.md, "The order of a failed queue".
        """
        self.unsettled -= 1
        if self.arguments.is_stream:
            return True
        copy.acquired += 1
        if self.arguments.counts_returns and (failed or self._version < _COUNTS_FAILURES_ALONE):
            copy.returns += 1
            if copy.returns > self.arguments.delivery_limit:
                return False
        delay = self.arguments.delay_of(copy.returns if failed else copy.acquired, failed=failed)
        if delay is not None:
            heapq.heappush(self._held_back, (now + delay, copy.position, copy))
        else:
            self._make_ready(copy)
        return True

    def expire(self, now: float) -> list[MessageCopy]:
        """Remove expired messages at the head, and make held-back messages ready whose delay is
        over. A message behind one that has not expired stays."""
        while self._held_back and self._held_back[0][0] <= now:
            self._make_ready(heapq.heappop(self._held_back)[2])
        expired: list[MessageCopy] = []
        while (head := self._head()) is not None and _is_over(head, now):
            self._pop()
            expired.append(head)
        return expired

    def next_due(self) -> float | None:
        """Return when the queue next changes without input, in seconds of the broker's clock."""
        head = self._head()
        moments = [
            moment
            for moment in (
                head.expires_at if head is not None else None,
                self._held_back[0][0] if self._held_back else None,
                self._unused_until(),
            )
            if moment is not None
        ]
        return min(moments, default=None)

    def is_unused(self, now: float) -> bool:
        """Return whether nobody has used the queue for its `x-expires` time."""
        until = self._unused_until()
        return until is not None and until <= now

    def purge(self) -> int:
        """Delete ready and held-back messages; return how many were ready."""
        count = len(self)
        self._fresh.clear()
        self._returned.clear()
        self._held_back.clear()
        self._bytes = 0
        return count

    def encoded(self, copy: MessageCopy) -> bytes:
        """Return the properties of one of its messages as a consumer gets them."""
        if self.arguments.is_stream:
            offset: dict[str, FieldValue] = {"x-stream-offset": copy.position}
            return with_headers(copy.content.properties, offset).encode()
        return copy.encoded(
            counts_returns=self.arguments.counts_returns,
            counts_acquisitions=self.arguments.is_quorum
            and self._version >= _COUNTS_FAILURES_ALONE,
        )

    def carried_from(self, copy: MessageCopy, *, rejected: bool) -> int:
        """Return the `x-delivery-count` that a message dead-lettered here takes to its next queue.
        A rejection counts.

        Source: docs/architecture.md, measured: none on RabbitMQ 3.10.8; the sum of all is kept on
        4.0.5; from 4.3 on the next queue continues the count.
        """
        if not self.arguments.is_quorum or self._version < BrokerVersion(4, 0):
            return 0 if self._version < BrokerVersion(4, 0) else copy.content.carried
        before = 0 if self._continues_counts else copy.content.carried
        return before + copy.returns + (1 if rejected else 0)

    # --- consumers --------------------------------------------------------------------------------

    def add_consumer(self, consumer: ConsumerModel) -> None:
        """Add a consumer behind those of the same and of higher priority."""
        insort(self.consumers, consumer, key=lambda one: -one.priority)
        self.lingering.discard(consumer.receiver)

    def remove_consumer(self, consumer: ConsumerModel, now: float) -> bool:
        """Remove a consumer, and return whether the queue has to be deleted with it."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        self.unused_since = now
        return self.auto_delete and not self.consumers

    def consumer_with_room(self) -> ConsumerModel | None:
        """Return the consumer for the next message: consumers of the highest priority that have
        room take turns; with a single active consumer, only the first one gets messages."""
        if self.arguments.single_active_consumer:
            active = self.consumers[:1]
            return active[0] if active and active[0].has_room else None
        willing = [one for one in self.consumers if one.has_room]
        if self.arguments.is_stream:
            return next((one for one in willing if one.offset < len(self._fresh)), None)
        if len(willing) < 2:
            return willing[0] if willing else None
        highest = [one for one in willing if one.priority == willing[0].priority]
        self._turn += 1
        return highest[self._turn % len(highest)]

    @property
    def is_idle(self) -> bool:
        """Whether no consumer has a message from the queue or is about to get one."""
        return not self.unsettled and not (len(self) and self.lingering and not self.consumers)

    # --- internal ---------------------------------------------------------------------------------

    @property
    def _continues_counts(self) -> bool:
        return self.arguments.is_quorum and self._version >= _COUNTS_FAILURES_ALONE

    def _expiry(self, content: Content, now: float) -> float | None:
        own = content.properties.expiration
        times = [int(time) for time in (self.arguments.ttl_ms, own) if time is not None]
        return now + min(times) / 1000 if times else None

    def _is_full(self, more: int, more_bytes: int) -> bool:
        most, most_bytes = self.arguments.most, self.arguments.most_bytes
        return (most is not None and len(self) + more > most) or (
            most_bytes is not None and self._bytes + more_bytes > most_bytes
        )

    def _head(self) -> MessageCopy | None:
        if self._returned:
            return self._returned[0]
        return self._fresh[0] if self._fresh else None

    def _pop(self) -> MessageCopy | None:
        if not self._returned and not self._fresh:
            return None
        copy = (self._returned or self._fresh).popleft()
        self._bytes -= len(copy.content.body)
        return copy

    def _make_ready(self, copy: MessageCopy) -> None:
        self._bytes += len(copy.content.body)
        if self.arguments.is_quorum:
            self._returned.append(copy)
        else:
            insort(self._returned, copy, key=lambda one: one.position)

    def _unused_until(self) -> float | None:
        if self.arguments.expires_ms is None or self.consumers:
            return None
        return self.unused_since + self.arguments.expires_ms / 1000


def _is_over(copy: MessageCopy, now: float) -> bool:
    return copy.expires_at is not None and copy.expires_at <= now
