"""Apply a topology to a broker and inspect what exists, over AMQP alone."""

import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import pika
from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
    RedriveError,
    TopologyMismatch,
)
from redrive.pubsub import broker_errors
from redrive.pubsub.blocking import client_errors
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.lifecycle import ANSWER_TIMEOUT
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.control import control_queue
from redrive.topology.delay_route import LEVELS
from redrive.topology.diff import Difference, Differs, Missing, Retired, sentence_of
from redrive.topology.ladder import HOW_TO_HAVE_THE_LADDER, Ladder, with_ladder
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology
from redrive.topology.names import ExchangeFamily

logger = logging.getLogger("redrive")

_IN_USE, _LOCKED = 406, 405
_PERSISTENT = 2
_TRIES = 5
_BETWEEN_TRIES = 1.0
"""Seconds to wait before a declaration that failed in the broker is retried."""
_LEADER_IS_SILENT = 0.1
"""Seconds, well below the 0.25 for which a broker waits for a leader; the network's round trip is
deducted."""
_Answer = Any  # pika's frames are untyped
_Call = Callable[[BlockingChannel], _Answer]
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


_BINDS: dict[str, Callable[[BlockingChannel], _Answer]] = {
    "queue": lambda channel: channel.queue_bind,
    "exchange": lambda channel: channel.exchange_bind,
}
_UNBINDS: dict[str, Callable[[BlockingChannel], _Answer]] = {
    "queue": lambda channel: channel.queue_unbind,
    "exchange": lambda channel: channel.exchange_unbind,
}


@dataclass(frozen=True, slots=True)
class Depth:
    """Number of messages and consumers of a queue.

    Args:
        messages: number of messages ready for delivery.
        consumers: number of consumers.
        held: number of messages held by looks; counted for failed queues only, and None if unknown.
    """

    messages: int
    consumers: int
    held: int | None = 0

    @property
    def total(self) -> int:
        """The number of messages known to be in the queue."""
        return self.messages + (self.held or 0)

    def __str__(self) -> str:
        consumers = f"{self.consumers:,} consumer{'' if self.consumers == 1 else 's'}"
        return (
            f"{consumers} and {self.messages:,} waiting message{'' if self.messages == 1 else 's'}"
        )


_NOTHING = Depth(0, 0)


class Declarer:
    """A connection for declaring and inspecting; a refusal costs its channel, not the
    connection."""

    def __init__(self, connection: pika.BlockingConnection, address: str) -> None:
        self._connection = connection
        self._address = address
        self._channel: BlockingChannel | None = None

    @property
    def version(self) -> BrokerVersion:
        """The broker's version."""
        properties = self._connection._impl.server_properties or {}
        return BrokerVersion.parse(properties.get("version"))

    def declare(self, what: Exchange | Queue | Binding) -> None:
        """Create the object, or check that the existing one is the same."""
        with self._ending_silence(what):
            match what:
                case Exchange(name, kind, arguments):
                    self._do(
                        what,
                        lambda channel: channel.exchange_declare(
                            name, kind, durable=True, arguments=dict(arguments)
                        ),
                    )
                case Queue(name, arguments, auto_delete):
                    self._do(
                        what,
                        lambda channel: channel.queue_declare(
                            name, durable=True, auto_delete=auto_delete, arguments=dict(arguments)
                        ),
                    )
                case Binding(source, destination, routing_key, to, arguments):
                    self._do(
                        what,
                        lambda channel: _BINDS[to](channel)(
                            destination, source, routing_key, arguments=dict(arguments)
                        ),
                    )

    def declare_all(self, topology: Topology) -> None:
        """Declare a whole topology.

        If another worker subscribes with other tags at the same moment and deletes this worker's
        filter, the declaration is repeated: the last one wins.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                for what in topology.objects:
                    self.declare(what)
                for pointer in topology.pointers:
                    self.point(pointer)
                for binding in topology.unwanted:
                    self.unbind(binding)
                return
            except (ConfigurationError, TopologyMismatch):
                if not (tries_left and topology.pointers) or all(
                    map(self.exists, topology.exchanges)
                ):
                    raise

    def unbind(self, binding: Binding) -> None:
        """Remove a binding if it exists."""
        source, destination, key, arguments = (
            binding.source,
            binding.destination,
            binding.routing_key,
            dict(binding.arguments),
        )
        self._do(
            binding,
            lambda channel: _UNBINDS[binding.to](channel)(
                destination, source, key, arguments=arguments
            ),
            "remove the",
        )

    def is_named_by(self, pointer: Exchange) -> bool:
        """Return whether a pointer exchange refers to the given filter, or does not exist."""
        if not self.exists(pointer):
            return True
        try:
            self.declare(pointer)
        except TopologyMismatch:
            return False
        return True

    def point(self, pointer: Exchange) -> None:
        """Make a pointer exchange refer to the filter now in use, and delete the previous filter.

        The old filter is deleted first: if the process dies in between, a pointer to it remains,
        and the next call finishes the job.
        """
        try:
            self.declare(pointer)
        except TopologyMismatch as other:
            if other.argument != "alternate-exchange":
                raise
            self.delete(Exchange(other.found, "headers"))
            self.delete(pointer)
            self.declare(pointer)

    def replace(self, queue: Queue) -> None:
        """Delete a queue with all its messages, and create it with its new arguments.

        The broker gets both requests at once: between them, a consumer that loses the old queue
        would have the time to connect again, and to declare it as it was.
        """

        def both(channel: BlockingChannel) -> object:
            channel._impl.queue_delete(queue.name)  # without a callback, no answer is asked for
            return channel.queue_declare(
                queue.name,
                durable=True,
                auto_delete=queue.auto_delete,
                arguments=dict(queue.arguments),
            )

        self._do(queue, both, "replace the")

    def delete(self, what: Exchange | Queue) -> None:
        """Delete an exchange, or a queue with all its messages, if it exists."""
        match what:
            case Exchange(name):
                self._do(what, lambda channel: channel.exchange_delete(name), "delete the")
            case Queue(name):
                self._do(what, lambda channel: channel.queue_delete(name), "delete the")

    def delete_unused(self, exchange: Exchange) -> bool:
        """Delete an exchange to which nothing is bound; return False if something is bound."""
        try:
            self._open_channel().exchange_delete(exchange.name, if_unused=True)
        except exceptions.ChannelClosedByBroker as error:
            if error.reply_code == _IN_USE:
                return False
            raise client_errors.of_channel(error, f"delete the {sentence_of(exchange)}") from error
        return True

    def is_locked(self, queue: str) -> bool:
        """Return whether another connection holds a queue of this name exclusively; False if the
        user may not look at it."""
        try:
            self._open_channel().queue_declare(queue, passive=True)
        except exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == _LOCKED)
        return False

    def exists(self, what: Exchange | Queue) -> bool:
        """Return whether an exchange or a queue of this name exists, whatever its arguments."""
        if isinstance(what, Queue):
            return self.depth(what.name) is not None
        return (
            self._found(lambda channel: channel.exchange_declare(what.name, passive=True), what)
            is not None
        )

    def may_exist(self, what: Exchange | Queue) -> bool:
        """Return what `exists` returns, but True if this user may not look: the next operation will
        tell.

        Source: RabbitMQ 4.3.6 lets nobody look at an object without a permission on it; 3.10.8 and
        4.0.5 let everybody.
        """
        try:
            return self.exists(what)
        except PermissionDenied:
            return True

    def depth(self, queue: str) -> Depth | None:
        """Return a queue's counts, or None if it does not exist.

        A broker reports a quorum queue as empty if the queue's leader does not answer it within 250
        ms. In that case it is asked again until the leader answers. Source:
        rabbit_quorum_queue:stat/2; measured on 3.10.8, 4.0.5 and 4.3.6 with a leader that was held
        up.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while True:
            began = time.monotonic()
            ok = self._found(
                lambda channel: channel.queue_declare(queue, passive=True), Queue(queue)
            )
            took = time.monotonic() - began
            if ok is None:
                return None
            depth = Depth(ok.method.message_count, ok.method.consumer_count)
            if (
                depth != _NOTHING
                or took < _LEADER_IS_SILENT
                or took - self._round_trip() < _LEADER_IS_SILENT
            ):
                return depth
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    self._address,
                    f"the leader of queue {queue!r} does not report its message count",
                    "Check the broker's log.",
                )

    def _round_trip(self) -> float:
        """Return the seconds that a reply takes when no queue is involved, as the shorter of two
        measurements: a distant broker must not count as a silent leader."""
        channel = self._open_channel()
        began = time.monotonic()
        channel.basic_qos(prefetch_count=1)
        between = time.monotonic()
        channel.basic_qos(prefetch_count=1)
        return min(between - began, time.monotonic() - between)

    def purge(self, queue: str) -> int:
        """Delete the ready messages of a queue and return how many there were."""
        return int(
            self._do(
                Queue(queue), lambda channel: channel.queue_purge(queue), "purge the"
            ).method.message_count
        )

    def append(self, stream: str, body: bytes, user: str) -> None:
        """Publish a message to a queue or a stream, and return once the broker has it. The broker
        checks that the user is the one that has logged in; leave it empty not to name one."""
        channel = self._connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=_PERSISTENT,
            user_id=user or None,
            app_id="redrive",
        )  # type: ignore[no-untyped-call]
        try:
            channel.basic_publish("", stream, body, properties, mandatory=True)
        except exceptions.ChannelClosedByBroker as error:
            raise client_errors.of_channel(error, f"write to the stream {stream!r}") from error
        except (exceptions.UnroutableError, exceptions.NackError) as error:
            raise ConfigurationError(
                f"the stream {stream!r} does not exist, or takes nothing now",
                "Let somebody with the configure permission run this once.",
            ) from error
        channel.close()

    def _found(self, look: _Call, what: Exchange | Queue) -> _Answer | None:
        try:
            with self._ending_silence(what):
                return look(self._open_channel())
        except exceptions.ChannelClosedByBroker as error:
            if broker_errors.says_missing(error.reply_code, error.reply_text):
                return None
            raise client_errors.of_channel(error, "look at it") from error

    @contextlib.contextmanager
    def _ending_silence(self, what: Exchange | Queue | Binding) -> Iterator[None]:
        """Close the connection if no answer comes; pika would wait as long as heartbeats arrive.

        Source: RabbitMQ 4.3.6 looks up to 2,000 times for a classic queue whose node was lost, and
        does not answer in the meantime (rabbit_amqqueue:retry_wait/4). That takes a minute if the
        node's host refuses connections, and was not over after four if the host is gone. A process
        of a classic queue that does not answer is waited for without an end (3.10.8 to 4.3.6).
        """
        wire = self._connection._impl
        silence = BrokerUnavailable(
            self._address,
            f"it did not answer about {sentence_of(what)} for {ANSWER_TIMEOUT:g} s",
            "Check that all nodes of the cluster are running; a classic queue is on only one.",
        )
        timer = wire.ioloop.call_later(ANSWER_TIMEOUT, lambda: wire._terminate_stream(silence))
        try:
            yield
        finally:
            wire.ioloop.remove_timeout(timer)

    def _do(
        self, what: Exchange | Queue | Binding, call: _Call, verb: str = "declare the"
    ) -> _Answer:
        try:
            return call(self._open_channel())
        except exceptions.ChannelClosedByBroker as error:
            raise client_errors.of_channel(error, f"{verb} {sentence_of(what)}") from error

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _open_channel(self) -> BlockingChannel:
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
        return self._channel


@contextlib.contextmanager
def declaring(connector: Connector, *, publishes: bool = False) -> Iterator[Declarer]:
    """Provide a declarer on its own channel; pika's errors inside the block are converted to
    redrive's.

    Args:
        connector: the broker.
        publishes: whether the block publishes. Then the connection is not used again: a broker
            with a resource alarm stops reading from it.
    """
    with connector.blocking() if publishes else connector.shared() as connection:
        declarer = Declarer(connection, connector.url.address)
        try:
            yield declarer
            declarer.close()
        except exceptions.AMQPError as error:
            raise client_errors.of_connection(error, connector.url) from error


def _asked_again(declares: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Retry a declaration that failed in the broker, up to five attempts in all.

    Source: on a busy machine, RabbitMQ 4.0.5 was seen to close the connection with 541 and
    `cluster_not_formed` because a quorum queue had no leader in time. What had been started of that
    queue is deleted then, according to Ra's documentation of ra:start_or_restart_cluster/4, except
    for its at-least-once dead-lettering: that looks for a queue of this name for five minutes. If
    it found none, 4.3.6 was seen to fail from then on for each queue with that strategy.
    """

    @functools.wraps(declares)
    def declares_again(*given: _Given.args, **named: _Given.kwargs) -> _Found:
        for _ in range(_TRIES - 1):
            try:
                return declares(*given, **named)
            except BrokerUnavailable as error:
                if not client_errors.is_internal(error.__cause__):
                    raise
                logger.warning("declaring at %s again: %s", error.address, error.reason)
                time.sleep(_BETWEEN_TRIES)
        return declares(*given, **named)

    return declares_again


@_asked_again
def declare(
    connector: Connector, subscription: Subscription, levels: int = 0, *, again: bool = False
) -> BrokerVersion:
    """Declare everything that a subscription needs. Running it again changes nothing.

    Bindings of patterns that are no longer wanted remain, because AMQP alone can't list them.
    """
    with declaring(connector) as declarer:
        subscription.check_broker(declarer.version)
        topology = with_ladder(subscription)
        if again and not all(map(declarer.is_named_by, topology.pointers)):
            logger.warning(
                "queue %s: another worker has subscribed with other tags since; those apply",
                subscription.queue,
            )
            return declarer.version
        declarer.declare_all(topology)
        for what in Ladder(subscription.exchanges).topology(levels).objects if levels else ():
            declarer.declare(what)
        declare_control(declarer, subscription.exchanges)
        return declarer.version


def declare_control(declarer: Declarer, exchanges: ExchangeFamily) -> None:
    """Create the stream of pauses, so that workers can follow it before the first one.

    Failing to create it is ignored: the user may lack the permission, the broker may have no
    streams, or it has just restarted and does not know its streams yet. Workers that can't follow
    it log that, and work without it.
    """
    with contextlib.suppress(RedriveError):
        declarer.declare(control_queue(exchanges))


@_asked_again
def declare_ladder(connector: Connector, exchanges: ExchangeFamily, levels: int) -> None:
    """Declare the lowest levels of a family's delay ladder. If the user may not declare, it is
    enough that they exist."""
    topology = Ladder(exchanges).topology(levels)
    with declaring(connector) as declarer:
        try:
            for what in topology.objects:
                declarer.declare(what)
        except PermissionDenied as denied:
            if not all(map(declarer.may_exist, topology.exchanges)):
                raise PermissionDenied(denied.problem, HOW_TO_HAVE_THE_LADDER) from denied


def declare_exchanges(connector: Connector, exchanges: ExchangeFamily) -> None:
    """Declare the exchange family. If the user may not declare, it is enough that the exchanges
    exist."""
    with declaring(connector) as declarer:
        for exchange in exchanges_of(exchanges):
            try:
                declarer.declare(exchange)
            except PermissionDenied:
                if not declarer.may_exist(exchange):
                    raise


def exchanges_of(exchanges: ExchangeFamily) -> tuple[Exchange, ...]:
    """Return the exchanges of a family."""
    return (Exchange(exchanges.main), Exchange(exchanges.retry), Exchange(exchanges.failed))


def differences(connector: Connector, topology: Topology) -> list[Difference]:
    """Return what `declare` would create or fail at, without creating anything. Bindings can't be
    inspected over AMQP."""
    found: list[Difference] = []
    with declaring(connector) as declarer:
        wanted: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
        for what in wanted:
            if not declarer.exists(what):
                found.append(Missing(what))
                continue
            try:
                declarer.declare(
                    what
                )  # it exists: this creates nothing, and is how AMQP compares arguments
            except TopologyMismatch as mismatch:
                found.append(Differs(mismatch))
        for pointer in topology.pointers:
            found += _about_pointer(declarer, pointer)
    return found


def _about_pointer(declarer: Declarer, pointer: Exchange) -> Iterator[Difference]:
    """Yield what `point` would create or delete."""
    if not declarer.exists(pointer):
        yield Missing(pointer)
        return
    try:
        declarer.declare(pointer)
    except TopologyMismatch as mismatch:
        if mismatch.argument != "alternate-exchange":
            yield Differs(mismatch)
            return
        other = Exchange(mismatch.found, "headers")
        if declarer.exists(other):
            yield Retired(other)
        yield Retired(Exchange(pointer.name, pointer.type, {"alternate-exchange": other.name}))


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages on a delay ladder.

    Args:
        levels: for each existing level, from the lowest up, how long a message waits at most, and
            how many messages are in it.
        parked: the number of messages that could no longer be routed; None if the ladder does
            not exist.
    """

    levels: tuple[tuple[timedelta, int], ...] = ()
    parked: int | None = None

    @property
    def messages(self) -> int:
        """The number of messages on all levels."""
        return sum(count for _, count in self.levels)


def waiting(connector: Connector, exchanges: ExchangeFamily) -> Waiting:
    """Return how many messages are on a family's delay ladder. Levels are declared from the lowest
    up, so the first missing one ends the search."""
    ladder = Ladder(exchanges)
    with declaring(connector) as declarer:
        parked = declarer.depth(exchanges.unrouted)
        if parked is None:
            return Waiting()
        levels = itertools.takewhile(
            lambda found: found[1] is not None,
            (
                (ladder.due_within(number), declarer.depth(ladder.level(number)))
                for number in range(LEVELS)
            ),
        )
        return Waiting(
            tuple((due, depth.messages) for due, depth in levels if depth is not None),
            parked.messages,
        )
