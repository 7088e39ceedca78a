"""Applies a topology to a broker, and looks at what is there, over AMQP alone."""

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
    TopologyMismatch,
)
from redrive.pubsub import broker_errors
from redrive.pubsub.blocking import client_errors
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.delay_route import LEVELS
from redrive.topology.diff import Difference, Differs, Missing, Retired, sentence_of
from redrive.topology.ladder import HOW_TO_HAVE_THE_LADDER, Ladder, with_ladder
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology
from redrive.topology.names import ExchangeFamily

logger = logging.getLogger("redrive")

_IN_USE, _LOCKED = 406, 405
_PATIENCE = 60.0
"""Seconds that a broker has to tell of a queue or an exchange."""
_TRIES = 5
_BETWEEN_TRIES = 1.0
"""Seconds before a broker that failed at a declaration is asked for it again."""
_LEADER_IS_SILENT = 0.1
"""Seconds, well below the 0.25 for which a broker waits for a leader; the network's share is taken
off."""
_Answer = Any  # pika's frames are not typed
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
    """How much is in a queue.

    Args:
        messages: those ready for delivery.
        consumers: who consumes it.
        held: those that somebody looks at; counted for failed queues alone, and None for an unknown
            number.
    """

    messages: int
    consumers: int
    held: int | None = 0

    @property
    def total(self) -> int:
        """Those that are known to be in it."""
        return self.messages + (self.held or 0)

    def __str__(self) -> str:
        consumers = f"{self.consumers:,} consumer{'' if self.consumers == 1 else 's'}"
        return (
            f"{consumers} and {self.messages:,} waiting message{'' if self.messages == 1 else 's'}"
        )


_NOTHING = Depth(0, 0)


class Declarer:
    """Declares over one connection; a refusal costs its channel, not the connection."""

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
        """Makes it, or finds it as it is asked for."""
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
        """Declares all of a topology. Where another worker asks for other tags at the same moment,
        and deletes this one's filter, it is done again: who comes last counts."""
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
        """Removes a binding; one that is not there is no error."""
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
        """Whether a pointer names the filter that it is asked for with, or is not there."""
        if not self.exists(pointer):
            return True
        try:
            self.declare(pointer)
        except TopologyMismatch:
            return False
        return True

    def point(self, pointer: Exchange) -> None:
        """Has a pointer name the filter that is in use now, and deletes the one that it named
        before.

        The old filter goes first: whoever dies in between leaves a pointer to it, and the next one
        finishes.
        """
        try:
            self.declare(pointer)
        except TopologyMismatch as other:
            if other.argument != "alternate-exchange":
                raise
            self.delete(Exchange(other.found, "headers"))
            self.delete(pointer)
            self.declare(pointer)

    def delete(self, what: Exchange | Queue) -> None:
        """Deletes an exchange, or a queue with all that is in it; one that is not there is no
        error."""
        match what:
            case Exchange(name):
                self._do(what, lambda channel: channel.exchange_delete(name), "delete the")
            case Queue(name):
                self._do(what, lambda channel: channel.queue_delete(name), "delete the")

    def delete_unused(self, exchange: Exchange) -> bool:
        """Deletes an exchange to which nothing is bound; False where something is."""
        try:
            self._open_channel().exchange_delete(exchange.name, if_unused=True)
        except exceptions.ChannelClosedByBroker as error:
            if error.reply_code == _IN_USE:
                return False
            raise client_errors.of_channel(error, f"delete the {sentence_of(exchange)}") from error
        return True

    def is_locked(self, queue: str) -> bool:
        """Whether another connection has a queue of this name for itself. Who may not look at it is
        told that none has."""
        try:
            self._open_channel().queue_declare(queue, passive=True)
        except exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code == _LOCKED)
        return False

    def exists(self, what: Exchange | Queue) -> bool:
        """Whether an exchange or a queue of this name is there, whatever its arguments."""
        if isinstance(what, Queue):
            return self.depth(what.name) is not None
        return (
            self._found(lambda channel: channel.exchange_declare(what.name, passive=True), what)
            is not None
        )

    def may_exist(self, what: Exchange | Queue) -> bool:
        """The same, but true where this user may not even look: what it does next will tell.

        Source: RabbitMQ 4.3.6 lets nobody look at an object that they have no right on; 3.10.8 and
        4.0.5 let everybody.
        """
        try:
            return self.exists(what)
        except PermissionDenied:
            return True

    def depth(self, queue: str) -> Depth | None:
        """How much is in a queue; None where there is none of this name.

        A broker says that a quorum queue is empty where the queue's leader does not tell it within
        250 ms. It is asked again then, until the leader has time. Source:
        rabbit_quorum_queue:stat/2; measured on 3.10.8, 4.0.5 and 4.3.6 with a leader that was held
        up.
        """
        deadline = time.monotonic() + _PATIENCE
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
                    f"the leader of queue {queue!r} does not tell how much is in it",
                    "Look at the broker's log.",
                )

    def _round_trip(self) -> float:
        """Seconds that an answer takes which no queue is asked for, the shorter of two: a far
        broker is no silent leader."""
        channel = self._open_channel()
        began = time.monotonic()
        channel.basic_qos(prefetch_count=1)
        between = time.monotonic()
        channel.basic_qos(prefetch_count=1)
        return min(between - began, time.monotonic() - between)

    def purge(self, queue: str) -> int:
        """Deletes the messages of a queue that are ready; returns how many."""
        return int(
            self._do(
                Queue(queue), lambda channel: channel.queue_purge(queue), "purge the"
            ).method.message_count
        )

    def _found(self, look: _Call, what: Exchange | Queue) -> _Answer | None:
        try:
            with self._ending_silence(what):
                return look(self._open_channel())
        except exceptions.ChannelClosedByBroker as error:
            if broker_errors.says_missing(error.reply_code, error.reply_text):
                return None
            raise client_errors.of_channel(error, "look at it") from error

    @contextlib.contextmanager
    def _ending_silence(self, what: Exchange | Queue) -> Iterator[None]:
        """Ends the connection where no answer comes; pika would wait for it as long as heartbeats
        come.

        Source: RabbitMQ 4.3.6 looks up to 2,000 times for a classic queue whose node was lost, and
        answers nothing meanwhile (rabbit_amqqueue:retry_wait/4). That takes a minute where the
        node's host refuses connections, and was not over after four where the host is gone.
        """
        wire = self._connection._impl
        silence = BrokerUnavailable(
            self._address,
            f"it told nothing of {sentence_of(what)} for {_PATIENCE:g} s",
            "See whether all nodes of the cluster run; a classic queue is on one of them alone.",
        )
        timer = wire.ioloop.call_later(_PATIENCE, lambda: wire._terminate_stream(silence))
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

    def _open_channel(self) -> BlockingChannel:
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
        return self._channel


@contextlib.contextmanager
def declaring(connector: Connector) -> Iterator[Declarer]:
    """A declarer on a connection of its own; whatever pika raises in between leaves as an error of
    ours."""
    with connector.blocking() as connection:
        try:
            yield Declarer(connection, connector.url.address)
        except exceptions.AMQPError as error:
            raise client_errors.of_connection(error, connector.url) from error


def _asked_again(declares: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Has a broker that fails at a declaration asked again, up to five times.

    Source: on a busy machine, RabbitMQ 4.0.5 was seen to close the connection over a quorum queue
    that had no leader in time, with 541 and `cluster_not_formed`. What had been started of that
    queue is deleted then, as Ra's documentation of ra:start_or_restart_cluster/4 has it, but for
    what dead-letters for it at least once: that looks for a queue of this name for five minutes.
    Where it found none, 4.3.6 was seen to fail from then on at each queue with that strategy.
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
    """Declares everything that a subscription needs; a second run changes nothing.

    Bindings of patterns that are no longer asked for stay: AMQP alone can't list them.
    """
    with declaring(connector) as declarer:
        subscription.check_broker(declarer.version)
        topology = with_ladder(subscription)
        if again and not all(map(declarer.is_named_by, topology.pointers)):
            logger.warning(
                "queue %s: another worker asks for other tags by now, and they count",
                subscription.queue,
            )
            return declarer.version
        declarer.declare_all(topology)
        for what in Ladder(subscription.exchanges).topology(levels).objects if levels else ():
            declarer.declare(what)
        return declarer.version


@_asked_again
def declare_ladder(connector: Connector, exchanges: ExchangeFamily, levels: int) -> None:
    """Declares the lowest levels of a family's delay ladder. A user that may not declare is content
    to find them there."""
    topology = Ladder(exchanges).topology(levels)
    with declaring(connector) as declarer:
        try:
            for what in topology.objects:
                declarer.declare(what)
        except PermissionDenied as denied:
            if not all(map(declarer.may_exist, topology.exchanges)):
                raise PermissionDenied(denied.problem, HOW_TO_HAVE_THE_LADDER) from denied


def declare_exchanges(connector: Connector, exchanges: ExchangeFamily) -> None:
    """Declares the exchange family. A user that may not declare is content to find them there."""
    with declaring(connector) as declarer:
        for exchange in exchanges_of(exchanges):
            try:
                declarer.declare(exchange)
            except PermissionDenied:
                if not declarer.may_exist(exchange):
                    raise


def exchanges_of(exchanges: ExchangeFamily) -> tuple[Exchange, ...]:
    """The exchanges of a family."""
    return (Exchange(exchanges.main), Exchange(exchanges.retry), Exchange(exchanges.failed))


def differences(connector: Connector, topology: Topology) -> list[Difference]:
    """What `declare` would make or fail at, without making anything. Bindings can't be seen over
    AMQP."""
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
                )  # it exists: this makes nothing, and is how AMQP compares arguments
            except TopologyMismatch as mismatch:
                found.append(Differs(mismatch))
        for pointer in topology.pointers:
            found += _about_pointer(declarer, pointer)
    return found


def _about_pointer(declarer: Declarer, pointer: Exchange) -> Iterator[Difference]:
    """What `point` would make or take away."""
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
    """What is on a delay ladder.

    Args:
        levels: how many messages wait in each level that is there, from the lowest on, and the
            longest that one of them waits.
        parked: the messages that nobody wants any more; None where the ladder is not there.
    """

    levels: tuple[tuple[timedelta, int], ...] = ()
    parked: int | None = None

    @property
    def messages(self) -> int:
        """How many wait in all."""
        return sum(count for _, count in self.levels)


def waiting(connector: Connector, exchanges: ExchangeFamily) -> Waiting:
    """How many messages are on a family's delay ladder, whose levels are declared from the lowest
    on."""
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
