"""A virtual host of the in-memory model: exchanges, queues, and the routing of messages. It does no
I/O; its clock is passed in."""

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import NoReturn

from redrive.amqp.field_table import FieldValue, Table
from redrive.testing.memory import queue_arguments
from redrive.testing.memory.consumer_model import ConsumerModel
from redrive.testing.memory.death import (
    Death,
    NotReadable,
    Reason,
    after_death,
    goes_in_a_circle,
)
from redrive.testing.memory.exchange_model import KINDS, BindingModel, ExchangeModel
from redrive.testing.memory.message_copy import Content, MessageCopy
from redrive.testing.memory.queue_arguments import QueueArguments
from redrive.testing.memory.queue_model import QueueModel
from redrive.testing.memory.refused import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    RefusedByModel,
)
from redrive.topology.broker_version import BrokerVersion

_MOST_ROUTES = 4096


class VirtualHost:
    """A virtual host with its exchanges and queues."""

    def __init__(self, name: str, version: BrokerVersion, now: Callable[[], float]) -> None:
        self.name = name
        self.version = version
        self.now = now
        self.queues: dict[str, QueueModel] = {}
        self.exchanges: dict[str, ExchangeModel] = {
            one: ExchangeModel(one, kind)
            for one, kind in (
                ("", "direct"),
                *((f"amq.{kind}", kind) for kind in KINDS),
                ("amq.match", "headers"),
            )
        }
        self._routes: dict[tuple[str, tuple[str, ...]], list[QueueModel]] = {}
        self._changed: dict[QueueModel, None] = {}
        self._due: list[tuple[float, int, QueueModel]] = []
        self._order = itertools.count()
        self._names = itertools.count(1)

    # --- exchanges --------------------------------------------------------------------------------

    def declare_exchange(self, wanted: ExchangeModel, *, passive: bool) -> None:
        """Create an exchange, or check that the existing one is the same."""
        name = wanted.name
        if passive:
            self._exchange(name)
            return
        if not name:
            _refuse_default_exchange()
        if wanted.kind not in KINDS:
            raise RefusedByModel(COMMAND_INVALID, f"unknown exchange type '{wanted.kind}'")
        current = self.exchanges.get(name)
        if current is None:
            if name.startswith("amq."):
                raise RefusedByModel(
                    ACCESS_REFUSED,
                    f"exchange name '{name}' contains reserved prefix 'amq.*'",
                )
            self.exchanges[name] = wanted
            self._rerouted()
            return
        alternate = "alternate-exchange"
        compared: list[tuple[str, FieldValue, FieldValue]] = [
            ("durable", wanted.durable, current.durable),
            ("auto_delete", wanted.auto_delete, current.auto_delete),
            ("internal", wanted.internal, current.internal),
        ]
        if wanted.kind != current.kind:
            raise self._unlike("type", "exchange", name, f"'{wanted.kind}'", f"'{current.kind}'")
        for what, given, found in compared:
            if given != found:
                raise self._unlike(
                    what, "exchange", name, f"'{str(given).lower()}'", f"'{str(found).lower()}'"
                )
        if wanted.alternate != current.alternate:
            raise self._unlike(
                alternate,
                "exchange",
                name,
                queue_arguments.told(wanted.alternate),
                queue_arguments.told(current.alternate),
            )

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange if it exists."""
        if not name:
            _refuse_default_exchange()
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if name.startswith("amq."):
            raise RefusedByModel(ACCESS_REFUSED, f"exchange name '{name}' is the broker's own")
        if if_unused and exchange.bindings:
            raise RefusedByModel(
                PRECONDITION_FAILED, f"exchange '{name}' in vhost '{self.name}' in use"
            )
        del self.exchanges[name]
        self._forget(name, is_queue=False)

    def bind(self, source: str, binding: BindingModel) -> None:
        """Bind a queue or an exchange to an exchange."""
        self._check_destination(binding)
        if not source:
            _refuse_default_exchange()
        self._exchange(source).bind(binding)
        self._rerouted()

    def unbind(self, source: str, binding: BindingModel) -> None:
        """Remove a binding if it exists."""
        exchange = self.exchanges.get(source)
        if exchange is not None and exchange.unbind(binding):
            self.delete_exchange(source, if_unused=False)
        self._rerouted()

    # --- queues -----------------------------------------------------------------------------------

    def declare_queue(
        self,
        name: str,
        table: Table,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        owner: object,
    ) -> QueueModel:
        """Create a queue, or check that the existing one is the same. Without a name it gets a
        generated one."""
        current = self.queues.get(name) if name else None
        if current is not None:
            self._check_owner(current, owner)
            if exclusive != (current.owner is not None):
                raise _locked(name, self.name)
            for what, given, found in (
                ("durable", durable, current.durable),
                ("auto_delete", auto_delete, current.auto_delete),
            ):
                if given != found:
                    raise self._unlike(
                        what, "queue", name, f"'{str(given).lower()}'", f"'{str(found).lower()}'"
                    )
            queue_arguments.check_same(name, self.name, current.table, table)
            current.unused_since = self.now()
            self.changed(current)
            return current
        if not name:
            name = f"amq.gen-{next(self._names)}"
        elif name.startswith("amq."):
            raise RefusedByModel(
                ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'"
            )
        arguments = QueueArguments.read(name, table, self.version)
        if arguments.is_quorum and (not durable or exclusive):
            raise RefusedByModel(
                PRECONDITION_FAILED,
                f"invalid property '{'exclusive-owner' if exclusive else 'non-durable'}' for queue "
                f"'{name}' in vhost '{self.name}'",
            )
        made = self.queues[name] = QueueModel(
            name,
            table,
            arguments,
            self.version,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner if exclusive else None,
            now=self.now(),
        )
        self._rerouted()
        self.changed(made)
        return made

    def queue(self, name: str, owner: object) -> QueueModel:
        """Return a queue, checking that the connection may use it."""
        found = self.queues.get(name)
        if found is None:
            raise RefusedByModel(NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'")
        self._check_owner(found, owner)
        return found

    def delete_queue(
        self, name: str, owner: object, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue with its messages, if it exists. Return how many messages were ready."""
        queue = self.queues.get(name)
        if queue is None:
            return 0
        self._check_owner(queue, owner)
        if if_unused and queue.consumers:
            raise RefusedByModel(
                PRECONDITION_FAILED, f"queue '{name}' in vhost '{self.name}' in use"
            )
        if if_empty and len(queue):
            raise RefusedByModel(
                PRECONDITION_FAILED, f"queue '{name}' in vhost '{self.name}' is not empty"
            )
        return self._drop(queue)

    def leave(self, owner: object) -> None:
        """Delete a connection's exclusive queues."""
        for queue in [one for one in self.queues.values() if one.owner is owner]:
            self._drop(queue)

    # --- messages ---------------------------------------------------------------------------------

    def publish(self, content: Content) -> tuple[bool, bool]:
        """Put a message into each queue that it is routed to. Return whether there were any queues,
        and whether all accepted it."""
        exchange = self._exchange(content.exchange)
        if exchange.internal:
            raise RefusedByModel(
                ACCESS_REFUSED,
                f"cannot publish to internal exchange '{exchange.name}' in vhost '{self.name}'",
            )
        queues = self.route(content)
        taken = [self._put(queue, content) for queue in queues]
        return bool(queues), all(taken)

    def route(self, content: Content) -> list[QueueModel]:
        """Return the queues that a message is routed to, following all exchanges and their
        alternates."""
        place = (content.exchange, content.routing_keys)
        known = self._routes.get(place)
        if known is not None:
            return known
        found: dict[QueueModel, None] = {}
        seen: set[str] = set()
        to_see = [content.exchange]
        by_key_alone = True
        while to_see:
            name = to_see.pop()
            exchange = self.exchanges.get(name)
            if exchange is None or name in seen:
                continue
            seen.add(name)
            by_key_alone = by_key_alone and exchange.kind != "headers"
            if not name:
                found |= {
                    self.queues[key]: None for key in content.routing_keys if key in self.queues
                }
                continue
            matching = exchange.matches(content.routing_keys, content.properties.headers)
            for binding in matching:
                if not binding.to_queue:
                    to_see.append(binding.destination)
                elif binding.destination in self.queues:
                    found[self.queues[binding.destination]] = None
            if not matching and exchange.alternate is not None:
                to_see.append(exchange.alternate)
        if by_key_alone:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[place] = list(found)
        return list(found)

    def dead_letter(self, queue: QueueModel, copy: MessageCopy, reason: Reason) -> None:
        """Dead-letter a message that was removed from a queue; drop it if there is no dead-letter
        exchange."""
        arguments = queue.arguments
        if arguments.dead_letter_exchange is None:
            return
        death = Death(
            queue.name,
            reason,
            self.now(),
            arguments.dead_letter_exchange,
            arguments.dead_letter_key,
            self.version,
        )
        carried = queue.carried_from(copy, rejected=reason == "rejected")
        try:
            content = after_death(copy.content, death, carried)
        except NotReadable:
            return
        if not self._dead_letter(content, reason) and arguments.at_least_once:
            queue.undelivered.append(content)

    def settle(self, queue: QueueModel, copy: MessageCopy) -> None:
        """Note that a consumer has handled a message."""
        queue.settled(copy)
        self.changed(queue)

    def reject(self, queue: QueueModel, copy: MessageCopy) -> None:
        """Dead-letter a message that a consumer has rejected."""
        queue.settled(copy)
        self.dead_letter(queue, copy, "rejected")
        self.changed(queue)

    def give_back(self, queue: QueueModel, copy: MessageCopy, *, failed: bool) -> None:
        """Return a message from a consumer to its queue."""
        if self.queues.get(queue.name) is not queue:
            return
        if not queue.give_back(copy, self.now(), failed=failed):
            self.dead_letter(queue, copy, "delivery_limit")
        self.changed(queue)

    # --- consumers --------------------------------------------------------------------------------

    def consume(self, queue: QueueModel, consumer: ConsumerModel) -> None:
        """Add a consumer to a queue."""
        if queue.consumers and (consumer.exclusive or queue.consumers[0].exclusive):
            raise RefusedByModel(
                ACCESS_REFUSED,
                f"queue '{queue.name}' in vhost '{self.name}' in exclusive use",
            )
        queue.add_consumer(consumer)
        self.changed(queue)

    def stop_consuming(self, queue: QueueModel, consumer: ConsumerModel) -> None:
        """Remove a consumer from a queue."""
        if queue.remove_consumer(consumer, self.now()):
            self._drop(queue)
        self.changed(queue)

    # --- time -------------------------------------------------------------------------------------

    def changed(self, queue: QueueModel) -> None:
        """Note that `run` has to process a queue."""
        self._changed[queue] = None

    def run(self) -> None:
        """Do everything that is due now: expire, dead-letter and deliver messages."""
        now = self.now()
        while True:
            while self._due and self._due[0][0] <= now:
                due = heapq.heappop(self._due)[2]
                due.scheduled = None
                self.changed(due)
            if not self._changed:
                return
            queue = next(iter(self._changed))
            del self._changed[queue]
            if self.queues.get(queue.name) is queue:
                self._serve(queue, now)

    def next_due(self) -> float | None:
        """Return when something happens next without input, in seconds of the clock; None for
        never."""
        while self._due:
            moment, _, queue = self._due[0]
            if self.queues.get(queue.name) is queue and queue.next_due() == moment:
                return moment
            heapq.heappop(self._due)
            queue.scheduled = None
            self._schedule(queue)
        return None

    @property
    def is_idle(self) -> bool:
        """Whether no consumer has an unsettled message or is about to get one."""
        return all(queue.is_idle for queue in self.queues.values())

    # --- internal ---------------------------------------------------------------------------------

    def _serve(self, queue: QueueModel, now: float) -> None:
        if queue.is_unused(now):
            self._drop(queue)
            return
        for _ in range(len(queue.undelivered)):
            content = queue.undelivered.popleft()
            if not self._dead_letter(content, "expired"):
                queue.undelivered.append(content)
        if queue.arguments.is_stream:
            self._serve_stream(queue)
            return
        expired = queue.expire(now)
        while True:
            for copy in expired:
                self.dead_letter(queue, copy, "expired")
            consumer = queue.consumer_with_room() if len(queue) else None
            if consumer is None:
                break
            taken = queue.take()
            if taken is None:
                break
            if consumer.no_ack:
                queue.settled(taken)
            else:
                consumer.unsettled += 1
            consumer.receiver.deliver(consumer, taken)
            expired = queue.expire(now)
        self._schedule(queue)

    def _serve_stream(self, queue: QueueModel) -> None:
        for consumer in queue.consumers:
            while consumer.has_room and (copy := queue.read(consumer)) is not None:
                consumer.unsettled += 1
                consumer.receiver.deliver(consumer, copy)

    def _schedule(self, queue: QueueModel) -> None:
        moment = queue.next_due()
        if moment is not None and moment != queue.scheduled:
            queue.scheduled = moment
            heapq.heappush(self._due, (moment, next(self._order), queue))

    def _put(self, queue: QueueModel, content: Content) -> bool:
        taken, dropped = queue.put(content, self.now())
        for copy in dropped:
            self.dead_letter(queue, copy, "maxlen")
        self.changed(queue)
        return taken

    def _dead_letter(self, content: Content, reason: Reason) -> bool:
        """Publish a dead-lettered message; return whether every queue that it is routed to accepted
        it."""
        if content.exchange not in self.exchanges:
            return False
        queues = [
            queue
            for queue in self.route(content)
            if reason == "rejected" or not goes_in_a_circle(content, queue.name)
        ]
        taken = [self._put(queue, content) for queue in queues]
        return bool(queues) and all(taken)

    def _drop(self, queue: QueueModel) -> int:
        count = queue.purge()
        del self.queues[queue.name]
        consumers, queue.consumers = queue.consumers, []
        self._forget(queue.name, is_queue=True)
        for consumer in consumers:
            consumer.receiver.cancelled(consumer)
        return count

    def _forget(self, name: str, *, is_queue: bool) -> None:
        self._rerouted()
        gone = [
            exchange.name
            for exchange in self.exchanges.values()
            if exchange.forget(name, is_queue=is_queue)
        ]
        for one in gone:
            self.delete_exchange(one, if_unused=False)

    def _rerouted(self) -> None:
        """Clear cached routes, and have undeliverable dead letters tried again."""
        self._routes.clear()
        for queue in self.queues.values():
            if queue.undelivered:
                self.changed(queue)

    def _exchange(self, name: str) -> ExchangeModel:
        found = self.exchanges.get(name)
        if found is None:
            raise RefusedByModel(NOT_FOUND, f"no exchange '{name}' in vhost '{self.name}'")
        return found

    def _check_destination(self, binding: BindingModel) -> None:
        known: Iterable[str] = self.queues if binding.to_queue else self.exchanges
        if binding.destination not in known:
            kind = "queue" if binding.to_queue else "exchange"
            raise RefusedByModel(
                NOT_FOUND, f"no {kind} '{binding.destination}' in vhost '{self.name}'"
            )

    def _check_owner(self, queue: QueueModel, owner: object) -> None:
        if queue.owner is not None and queue.owner is not owner:
            raise _locked(queue.name, self.name)

    def _unlike(
        self, argument: str, kind: str, name: str, given: str, found: str
    ) -> RefusedByModel:
        return RefusedByModel(
            PRECONDITION_FAILED,
            f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '{self.name}': received "
            f"{given} but current is {found}",
        )


def _locked(queue: str, host: str) -> RefusedByModel:
    return RefusedByModel(
        RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked queue '{queue}' in vhost '{host}'. It could be "
        "originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration.",
    )


def _refuse_default_exchange() -> NoReturn:
    raise RefusedByModel(ACCESS_REFUSED, "operation not permitted on the default exchange")
