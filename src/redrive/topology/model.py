"""The objects that a subscription needs on the broker, as data.

A `Topology` is one value that can be declared, printed and compared; one small function per client
applies it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Literal, get_args

from redrive.amqp.field_table import MAX_SHORT_STRING
from redrive.errors import ConfigurationError
from redrive.topology import binding_pattern, delay_route, names, tags
from redrive.topology.backoff import Delays, Linear
from redrive.topology.broker_version import CONSUMER_TIMEOUT, BrokerVersion
from redrive.topology.delay_policy import DelayPolicy
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import MAX_TTL_MS, RetryPolicy, longest_wait_but, longest_wait_of
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import TextFilter

QueueType = Literal["quorum", "classic"]
RetryVia = Literal["dead-letter", "republish", "broker"]
DelayBy = Literal["argument", "policy"]
WhenGivenUp = Literal["continue", "park"]
Argument = str | int

DELIVERY_LIMIT = 1_000_000_000
"""The delivery limit of all quorum queues of redrive. The default of RabbitMQ 4 (20) deletes
messages from a failed queue that is looked at; -1 deletes at the first return on 3.10. Source:
measured on 3.10.8, 4.0.5 and 4.3.6."""

LONGEST_IN_PLACE = CONSUMER_TIMEOUT - timedelta(minutes=5)
"""The longest wait of a retry in an ordered queue: the message is unsettled meanwhile,
and the handler needs some of the time."""

AT_LEAST_ONCE: Mapping[str, Argument] = MappingProxyType(
    {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
)
"""Arguments that make a quorum queue dead-letter with confirms, which requires reject-publish.
Source: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering"""

_MILLISECOND = timedelta(milliseconds=1)
_NO_ARGUMENTS: Mapping[str, Argument] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange; always durable."""

    name: str
    type: str = "topic"
    arguments: Mapping[str, Argument] = field(default_factory=lambda: _NO_ARGUMENTS, hash=False)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue; always durable, never exclusive.

    Args:
        auto_delete: whether it is deleted with its last consumer.
    """

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=lambda: _NO_ARGUMENTS, hash=False)
    auto_delete: bool = False

    @property
    def type(self) -> str:
        """`quorum` or `classic`."""
        return str(self.arguments.get("x-queue-type", "classic"))


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """A binding: messages from `source` that match `routing_key` go to `destination`, a queue or an
    exchange.

    Args:
        arguments: the headers that a headers exchange matches; in a binding that redrive did not
            create, any JSON values, including lists and tables.
    """

    source: str
    destination: str
    routing_key: str
    to: Literal["queue", "exchange"] = "queue"
    arguments: tuple[tuple[str, object], ...] = field(default=(), compare=False)
    _compared: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        # A broker keeps no order of arguments: two bindings that differ only in it are equal. They
        # are compared as text: a list has no hash, and a number can't be compared with a text.
        by_name = tuple(sorted(self.arguments, key=lambda one: one[0]))
        object.__setattr__(self, "arguments", by_name)
        object.__setattr__(self, "_compared", json.dumps(by_name, sort_keys=True, default=str))


@dataclass(frozen=True, slots=True)
class Topology:
    """Exchanges, queues and bindings, in the order in which they are declared.

    Args:
        unwanted: bindings that must not exist, if known beforehand; removed after everything else
            is declared.
        pointers: exchanges that nobody publishes to. The alternate exchange of each one names the
            filter in use: AMQP offers no other way to find out which one an earlier worker
            declared. The filter that it named before is deleted.
        delay_policies: delays that policies set. Setting them takes the management API: AMQP has no
            policies.
    """

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    unwanted: tuple[Binding, ...] = ()
    pointers: tuple[Exchange, ...] = ()
    delay_policies: tuple[DelayPolicy, ...] = ()

    @property
    def objects(self) -> tuple[Exchange | Queue | Binding, ...]:
        """All objects, in the order in which they are declared."""
        return (*self.exchanges, *self.queues, *self.bindings)

    def __add__(self, other: "Topology") -> "Topology":
        """Merge two topologies, with common objects once."""
        return Topology(
            tuple(dict.fromkeys((*self.exchanges, *other.exchanges))),
            tuple(dict.fromkeys((*self.queues, *other.queues))),
            tuple(dict.fromkeys((*self.bindings, *other.bindings))),
            tuple(dict.fromkeys((*self.unwanted, *other.unwanted))),
            tuple(dict.fromkeys((*self.pointers, *other.pointers))),
            tuple(dict.fromkeys((*self.delay_policies, *other.delay_policies))),
        )


@dataclass(frozen=True, slots=True)
class Subscription:
    """A queue, its bindings, and the treatment of its failures.

    Args:
        queue: the main queue's name, by convention `service@subscription`; at most 248 bytes.
        routing_keys: binding patterns of the topic exchange (`user.*`, `order.#`).
        exchanges: the exchange family.
        retry: the retry policy.
        queue_type: `quorum` or `classic`.
        retry_via: how a failed attempt comes back: through the retry queue, dead-lettered by the
            broker or published there, or held back in the main queue by the broker itself.
        tags: the tags that it wants, besides the routing keys; None for any.
        broadcast: whether the queue belongs to a single instance: it is deleted with its consumer,
            and failed messages are dropped.
        ordered: whether one consumer at a time handles messages, those of one key one after the
            other: a failed message is retried in its place, and none of its key overtakes it.
        max_failed: how many messages the failed queue accepts; None for any number. When it is
            full, further failed messages stay in the main queue, unsettled, until there is room.
        delay_by: what sets the delay of messages that the broker holds back: an `argument` of the
            queue, which can't be changed, or a `policy`, which can be changed while the queue is in
            use.
        when_given_up: what happens to the later messages of a key of an ordered queue once one of
            them is set aside: `continue` handles them, `park` sets them aside behind it.
        where: the filter that messages must match, besides the routing keys and the tags; None for
            any. The broker selects by what it can, and the subscriber by all of it.
        failed_queues: further failed queues, by the kinds of errors that they are for, besides
            those that error rules of the retry policy name.

    Raises:
        ConfigurationError: a name, a pattern or a choice is invalid.
    """

    queue: str
    routing_keys: Sequence[str] = ()
    exchanges: ExchangeFamily = field(default_factory=ExchangeFamily)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    queue_type: QueueType = "quorum"
    retry_via: RetryVia = "dead-letter"
    tags: TagFilter | None = None
    broadcast: bool = False
    ordered: bool = False
    max_failed: int | None = None
    delay_by: DelayBy = "argument"
    when_given_up: WhenGivenUp = "continue"
    failed_queues: Sequence[str] = ()
    where: TextFilter | None = None

    def __post_init__(self) -> None:
        names.check_queue_name(self.queue)
        if isinstance(self.routing_keys, str):
            raise ConfigurationError(
                f"routing_keys is the string {self.routing_keys!r}",
                f"Give a list: [{self.routing_keys!r}].",
            )
        object.__setattr__(self, "routing_keys", tuple(dict.fromkeys(self.routing_keys)))
        for key in self.routing_keys:
            names.check_routing_key(key)
        for name, choices in (
            ("queue_type", get_args(QueueType)),
            ("retry_via", get_args(RetryVia)),
            ("delay_by", get_args(DelayBy)),
            ("when_given_up", get_args(WhenGivenUp)),
        ):
            if getattr(self, name) not in choices:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}",
                    f"Choose {' or '.join(map(repr, choices))}.",
                )
        if not isinstance(self.exchanges, ExchangeFamily):
            raise ConfigurationError(f"exchanges is {self.exchanges!r}", "Give an ExchangeFamily.")
        if not isinstance(self.retry, RetryPolicy):
            raise ConfigurationError(f"retry is {self.retry!r}", "Give a RetryPolicy.")
        if self.retry_via == "republish" and self.queue_type != "classic":
            raise ConfigurationError(
                f"queue {self.queue!r} has retry_via='republish' and queue_type='quorum'; "
                "the services that share it declare classic queues",
                "Use queue_type='classic', or retry_via='dead-letter'.",
            )
        if self.retry_via == "broker":
            self._check_held_back()
        elif self.delay_by == "policy":
            raise ConfigurationError(
                f"queue {self.queue!r} has delay_by='policy' and retry_via={self.retry_via!r}; "
                "a policy sets the delay only of messages that the broker itself holds back",
                "Leave delay_by out, or use retry_via='broker'.",
            )
        if self._terms:
            names.check_name("exchange", self.filter_exchange, MAX_SHORT_STRING)
        if self.broadcast and self.retry != RetryPolicy():
            raise ConfigurationError(
                f"queue {self.queue!r} is a broadcast queue and has a retry policy",
                "Leave retry out: broadcast messages are never retried.",
            )
        if self.max_failed is not None:
            self._check_max_failed(self.max_failed)
        kinds = (*self.failed_queues, *self.retry.failed_queues)
        object.__setattr__(self, "failed_queues", tuple(dict.fromkeys(kinds)))
        for queue in self.own_failed_queues:
            names.check_length("the queue name", queue)
        if self.parks and self.failed_queues:
            raise ConfigurationError(
                f"queue {self.queue!r} has when_given_up='park' and the failed queue "
                f"{self.failed_queues[0]!r}, and messages of a key are parked together",
                "Leave failed_queue out of the error rules.",
            )
        if self.parks and not self.ordered:
            raise ConfigurationError(
                f"queue {self.queue!r} has when_given_up='park', but is not ordered",
                "Give order_by, or ordered=True; or leave when_given_up out.",
            )
        if self.ordered:
            self._check_order()
        elif self.longest_on_the_ladder:
            delay_route.check_destination(self.queue)
            self.check_delay(self.longest_on_the_ladder)

    @property
    def warnings(self) -> list[str]:
        """Sentences about valid settings that are probably mistakes."""
        return [
            f"queue {self.queue!r}: in the pattern {key!r} the word {word!r} matches only itself; "
            "a * or a # is a wildcard only as a whole word, as in 'user.*'"
            for key in self.routing_keys
            for word in binding_pattern.literal_wildcards(key)
        ]

    def _check_held_back(self) -> None:
        if self.queue_type != "quorum":
            raise ConfigurationError(
                f"queue {self.queue!r} has retry_via='broker' and queue_type='classic'; only "
                "quorum queues hold failed messages back",
                "Use queue_type='quorum', or retry_via='dead-letter'.",
            )
        if self.ordered or self.broadcast:
            raise ConfigurationError(
                f"queue {self.queue!r} is {'ordered' if self.ordered else 'a broadcast queue'} "
                "and has retry_via='broker', which lets other messages overtake a waiting one",
                "Leave retry_via out.",
            )
        for delay in self.held_back_for:
            if delay % _MILLISECOND or not _MILLISECOND <= delay <= MAX_TTL_MS * _MILLISECOND:
                raise ConfigurationError(
                    f"the broker can't hold messages of queue {self.queue!r} back for {delay}",
                    "Give whole milliseconds, at most 49 days.",
                )

    def _check_max_failed(self, number: int) -> None:
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigurationError(
                f"max_failed is {number!r}", "Give a whole number from 1, or None for any number."
            )
        if self.retry_via == "republish":
            raise ConfigurationError(
                f"queue {self.queue!r} has max_failed and retry_via='republish'; the services that "
                "share it declare a failed queue "
                "without a limit",
                "Set the limit with a policy: max-length with overflow=reject-publish.",
            )

    def _check_order(self) -> None:
        if self.queue_type != "quorum":
            raise ConfigurationError(
                f"queue {self.queue!r} has ordered=True and queue_type='classic'; a classic queue "
                "does not count how often a message was tried",
                "Use queue_type='quorum', which is the default.",
            )
        if self.broadcast:
            raise ConfigurationError(
                f"queue {self.queue!r} is ordered and a broadcast queue, which has no retries",
                "Choose one of them.",
            )
        self.check_delay(longest_wait_of(self.retry))

    def check_delay(self, delay: timedelta) -> None:
        """Raise ConfigurationError if no retry can wait that long."""
        if not self.ordered:
            delay_route.ticks_in(delay, self.exchanges.tick)
        elif delay > LONGEST_IN_PLACE:
            raise ConfigurationError(
                f"a retry of the ordered queue {self.queue!r} waits {delay}, and its message is "
                "unsettled meanwhile; after "
                f"{CONSUMER_TIMEOUT.total_seconds() / 60:g} minutes the broker takes it back",
                f"Let it wait {LONGEST_IN_PLACE.total_seconds() / 60:g} minutes at most.",
            )

    @property
    def retry_queue(self) -> str:
        """The queue in which failed attempts wait."""
        return names.retry_queue(self.queue)

    @property
    def failed_queue(self) -> str:
        """The queue that keeps given-up messages."""
        return names.failed_queue(self.queue)

    @property
    def own_failed_queues(self) -> tuple[str, ...]:
        """The names of the failed queues for kinds of errors."""
        return tuple(names.failed_queue(self.queue, kind) for kind in self.failed_queues)

    @property
    def parks(self) -> bool:
        """Whether messages are set aside behind an earlier one of their key."""
        return self.when_given_up == "park"

    @property
    def can_be_delayed(self) -> bool:
        """Whether the queue's name leaves room for the delay ladder's routing keys."""
        return delay_route.fits(self.queue)

    @property
    def held_back_for(self) -> tuple[timedelta, timedelta]:
        """The delay after the first failure and the longest delay, if the broker holds messages
        back: each failure adds the first delay, up to the longest."""
        backoff = self.retry.backoff
        if isinstance(backoff, Linear) and not backoff.jitter:
            return backoff.first, backoff.cap
        return self.retry.delay, self.retry.delay

    @property
    def longest_on_the_ladder(self) -> timedelta:
        """The policy's longest delay that needs the delay ladder; zero if none does."""
        backoff = self.retry.backoff
        if self.retry_via == "broker" and isinstance(backoff, Linear) and not backoff.jitter:
            return longest_wait_but(self.retry, backoff)
        return longest_wait_but(self.retry, Delays((self.retry.delay,)))

    @property
    def way_back(self) -> str:
        """The exchange through which messages come back from the retry queue."""
        return self.exchanges.main if self.retry_via == "republish" else ""

    @property
    def filter_exchange(self) -> str:
        """The exchange that passes only messages with the wanted tags and headers; empty if all
        are wanted."""
        if not self._terms:
            return ""
        if self.tags is not None and not self._headers:
            return names.tags_filter(self.queue, self.tags.fingerprint)
        fingerprint = hashlib.sha256(repr(self._terms).encode()).hexdigest()[:8]
        return names.tags_filter(self.queue, fingerprint)

    @property
    def selection(self) -> str | None:
        """What it selects messages by, besides routing keys, as text; None if it takes all."""
        tags = None if self.tags is None else self.tags.expression
        where = None if self.where is None else f"where {self.where.expression}"
        return " ".join(filter(None, (tags, where))) or None

    @property
    def _headers(self) -> tuple[tuple[str, str], ...]:
        return () if self.where is None else self.where.for_the_broker

    @property
    def _terms(self) -> list[tuple[tuple[str, str | bool], ...]]:
        """The arguments of the filter's bindings: the headers of a message that it passes."""
        of_tags: Iterable[Iterable[str]] = self.tags.terms if self.tags is not None else [()]
        terms: list[tuple[tuple[str, str | bool], ...]] = [
            (*((tags.HEADER + tag, True) for tag in sorted(term)), *self._headers)
            for term in of_tags
        ]
        return [(("x-match", "all"), *term) for term in terms if term]

    def topology(self) -> Topology:
        """Return everything that this subscription needs on the broker, except the delay ladder
        that its policy may need.

        The main queue comes first: if it exists with other arguments, the declaration is refused
        before any useless queue is created. Its bindings come last: once messages arrive, their
        ways out exist.
        """
        return self._with_filter(self._for_broadcast() if self.broadcast else self._with_retries())

    def _for_broadcast(self) -> Topology:
        family = self.exchanges
        return Topology(
            exchanges=(Exchange(family.main), deliver_exchange(family)),
            queues=(Queue(self.queue, _FOR_ONE_INSTANCE, auto_delete=True),),
            bindings=tuple(self._subscribing()),
        )

    def _with_filter(self, topology: Topology) -> Topology:
        """Add the filter between the exchanges and the queue, without the bindings that bypass
        it."""
        terms = self._terms
        if not terms:
            return topology
        name = self.filter_exchange
        around = tuple(self._subscribing())
        ways_in = [replace(binding, destination=name, to="exchange") for binding in around]
        return Topology(
            exchanges=(*topology.exchanges, Exchange(name, "headers")),
            queues=topology.queues,
            # The filter's own bindings come first: once messages arrive, they find their way out.
            bindings=(
                *(binding for binding in topology.bindings if binding not in around),
                *(Binding(name, self.queue, "", arguments=term) for term in terms),
                *ways_in,
            ),
            unwanted=around,
            pointers=(
                Exchange(
                    names.tags_pointer(self.queue),
                    "fanout",
                    MappingProxyType({"alternate-exchange": name}),
                ),
            ),
        )

    def _subscribing(self) -> Iterator[Binding]:
        """Yield the bindings for messages of other services: those published now, and delayed ones
        if the pattern leaves room for the ladder's key."""
        for key in self.routing_keys:
            if delay_route.fits(key):
                yield Binding(
                    self.exchanges.deliver, self.queue, delay_route.delivery_pattern("p", key)
                )
        for key in self.routing_keys:
            if key != self.queue:
                yield Binding(self.exchanges.main, self.queue, key)

    def _with_retries(self) -> Topology:
        family = self.exchanges
        if self.retry_via == "broker":
            return self._with_retries_by_the_broker()
        return Topology(
            exchanges=(
                Exchange(family.main),
                Exchange(family.retry),
                Exchange(family.failed),
                deliver_exchange(family),
            ),
            queues=(
                self._main_queue(),
                self._retry_queue(),
                *self._failed_queues(),
                *((Queue(names.parked_stream(self.queue), _LOG),) if self.parks else ()),
            ),
            bindings=(
                *self._setting_aside(),
                Binding(family.retry, self.retry_queue, self.queue),
                *self._own_delayed_retries(),
                *self._subscribing(),
                Binding(family.main, self.queue, self.queue),
            ),
        )

    def _with_retries_by_the_broker(self) -> Topology:
        family = self.exchanges
        return Topology(
            exchanges=(Exchange(family.main), Exchange(family.failed), deliver_exchange(family)),
            queues=(
                self._queue_that_holds_back(),
                *self._failed_queues(),
            ),
            bindings=(
                *self._setting_aside(),
                *self._own_delayed_retries(),
                *self._subscribing(),
                Binding(family.main, self.queue, self.queue),
            ),
            delay_policies=self._delay_policies(),
        )

    def _failed_queues(self) -> Iterator[Queue]:
        for kind in ("", *self.failed_queues):
            yield failed_queue_of(self.queue, self.queue_type, self.max_failed, kind)

    def _setting_aside(self) -> Iterator[Binding]:
        yield Binding(self.exchanges.failed, self.failed_queue, self.queue)
        for name in self.own_failed_queues:
            yield Binding(self.exchanges.failed, name, name)

    def _delay_policies(self) -> tuple[DelayPolicy, ...]:
        if self.delay_by == "argument":
            return ()
        least, most = self.held_back_for
        return (DelayPolicy(self.queue, least // _MILLISECOND, most // _MILLISECOND),)

    def _own_delayed_retries(self) -> Iterator[Binding]:
        if self.can_be_delayed:
            yield Binding(
                self.exchanges.deliver, self.queue, delay_route.delivery_pattern("r", self.queue)
            )

    def check_broker(self, version: BrokerVersion) -> None:
        """Raise ConfigurationError if this broker is too old for the subscription."""
        if self.queue_type == "quorum" and not version.has_at_least_once_dead_lettering:
            raise ConfigurationError(
                f"queue {self.queue!r} has queue_type='quorum', which needs RabbitMQ 3.10 or "
                f"newer; this broker is {version}",
                "Upgrade the broker, or use queue_type='classic'.",
            )
        if self.retry_via == "broker" and not version.holds_failed_messages_back:
            raise ConfigurationError(
                f"queue {self.queue!r} has retry_via='broker', which needs RabbitMQ 4.3 or newer; "
                f"this broker is {version}",
                "Upgrade all nodes of the broker, or use retry_via='dead-letter'.",
            )

    def _main_queue(self) -> Queue:
        if self.retry_via == "republish":
            return Queue(self.queue, _CLASSIC)
        arguments: dict[str, Argument] = {
            "x-queue-type": self.queue_type,
            "x-dead-letter-exchange": self.exchanges.retry,
            "x-dead-letter-routing-key": self.queue,
        }
        if self.queue_type == "quorum":
            arguments |= {**AT_LEAST_ONCE, "x-delivery-limit": DELIVERY_LIMIT}
        if self.ordered:
            arguments["x-single-active-consumer"] = True
        return Queue(self.queue, MappingProxyType(arguments))

    def _queue_that_holds_back(self) -> Queue:
        least, most = self.held_back_for
        # If both an argument and a policy set the delay, the smaller one applies, so a policy could
        # not make a delay longer. Source: measured on RabbitMQ 4.3.6.
        delay: dict[str, Argument] = (
            {}
            if self.delay_by == "policy"
            else {
                "x-delayed-retry-min": least // _MILLISECOND,
                "x-delayed-retry-max": most // _MILLISECOND,
            }
        )
        return Queue(
            self.queue,
            MappingProxyType(
                {
                    "x-queue-type": "quorum",
                    "x-delayed-retry-type": "failed",
                    **delay,
                    # Also keeps messages that a consumer of another library rejects for good.
                    "x-dead-letter-exchange": self.exchanges.failed,
                    "x-dead-letter-routing-key": self.queue,
                    **AT_LEAST_ONCE,
                    "x-delivery-limit": DELIVERY_LIMIT,
                }
            ),
        )

    def _retry_queue(self) -> Queue:
        arguments: dict[str, Argument] = {
            "x-queue-type": self.queue_type,
            "x-message-ttl": self.retry.delay // _MILLISECOND,
            # The default exchange: through the topic exchange, as other clients of this pattern do
            # it, a queue bound with # gets a copy of every retry.
            "x-dead-letter-exchange": self.way_back,
            "x-dead-letter-routing-key": self.queue,
        }
        if self.queue_type == "quorum":
            arguments |= AT_LEAST_ONCE
        return Queue(self.retry_queue, MappingProxyType(arguments))


_FOR_ONE_INSTANCE: Mapping[str, Argument] = MappingProxyType(
    {"x-queue-type": "classic", "x-expires": 60_000}
)
"""An instance's queue deletes itself after a minute if the instance dies before it consumes."""

_CLASSIC: Mapping[str, Argument] = MappingProxyType({"x-queue-type": "classic"})
"""To a broker, the same as no argument: the services that share a queue with
`retry_via="republish"` declare it like this."""


_LOG: Mapping[str, Argument] = MappingProxyType(
    {
        "x-queue-type": "stream",
        "x-max-length-bytes": 100_000_000,
        "x-stream-max-segment-size-bytes": 10_000_000,
    }
)
"""Arguments of a log that is summed up long before its oldest entries are dropped."""


def deliver_exchange(exchanges: ExchangeFamily) -> Exchange:
    """Return the exchange to which subscriptions are bound for delayed messages."""
    return Exchange(exchanges.deliver, arguments=unrouted_goes_to(exchanges))


def unrouted_goes_to(exchanges: ExchangeFamily) -> Mapping[str, Argument]:
    """Return the arguments of an exchange of the delay ladder.

    Without them, messages for a deleted queue fill the level before it and block all others.
    Source: measured on 3.10.8, 4.0.5 and 4.3.6 with forty such messages.
    """
    return MappingProxyType({"alternate-exchange": exchanges.unrouted})


def failed_queue_of(
    queue: str, queue_type: QueueType, max_failed: int | None = None, kind: str = ""
) -> Queue:
    """Return the failed queue of the main queue `queue`, or its one for a kind of error, which
    accepts at most `max_failed` messages."""
    arguments: dict[str, Argument] = {"x-queue-type": queue_type}
    if queue_type == "quorum":
        arguments["x-delivery-limit"] = DELIVERY_LIMIT
    if max_failed is not None:
        arguments |= {"x-max-length": max_failed, "x-overflow": "reject-publish"}
    return Queue(names.failed_queue(queue, kind), MappingProxyType(arguments))
