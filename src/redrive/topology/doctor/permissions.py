"""Know the minimum rights of each role, and the commands that grant them."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from redrive.topology import outcome_events
from redrive.topology.doctor.facts import Access
from redrive.topology.doctor.finding import Finding
from redrive.topology.ladder import Ladder
from redrive.topology.model import Subscription, Topology
from redrive.topology.names import JOURNAL, ExchangeFamily, look_lock

Verb = Literal["configure", "write", "read"]
Role = Literal["publisher", "subscriber", "delayer", "declarer", "operator"]

DEFAULT_EXCHANGE = "amq.default"
"""The name of the default exchange in permissions. Source:
https://www.rabbitmq.com/docs/access-control#authorisation"""

_WITHOUT: Mapping[Role, str] = {
    "publisher": "Publishing closes the channel with a 403.",
    "subscriber": "Consuming, or setting a failed message aside, closes the channel with a 403.",
    "delayer": "delay= is refused, and a retry with another delay than the retry queue's gets the "
    "retry queue's delay.",
    "declarer": "Declaring fails with a 403: use declare=False, and let another user declare.",
    "operator": "Some of this fails: looking at failed messages, requeueing them, watching their "
    "outcomes, or writing to the team's journal.",
}
_A: Mapping[Role, str] = {
    "publisher": "a publisher",
    "subscriber": "a subscriber",
    "delayer": "a delayer",
    "declarer": "a declarer",
    "operator": "an operator",
}
_NOBODYS_QUEUE = "redrive.doctor@nobody"
_ANY = "doctor"
"""Stands for the variable part of a name if a right covers many objects."""
VERBS: tuple[Verb, ...] = ("configure", "write", "read")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One right on one object of the broker.

    Args:
        verb: `configure`, `write` or `read`.
        kind: `exchange` or `queue`.
        name: the object's name; `amq.default` for the default exchange. If the right covers many
            objects, the name of one of them.
        pattern: the regular expression of the names of many objects; empty for a single one.
        key: the routing key that it is needed with, since a topic permission may allow only some
            keys.
    """

    verb: Verb
    kind: Literal["exchange", "queue"]
    name: str
    pattern: str = ""
    key: str = ""

    @property
    def granted(self) -> str:
        """The regular expression that grants it."""
        return self.pattern or re.escape(self.name)

    def __str__(self) -> str:
        with_key = f" with the key {self.key}" if self.key else ""
        return f"{self.verb} {self.kind} {self.pattern or self.name}{with_key}"


def least_rights(role: Role, subscription: Subscription) -> tuple[Right, ...]:
    """Return exactly the rights that a role needs on a subscription.

    `publisher` publishes to existing exchanges; `subscriber` handles messages with `declare=False`
    and one delay; `delayer`, in addition to one of these, uses an existing delay ladder; `declarer`
    creates the exchanges, queues and bindings; `operator` looks at failed messages, requeues or
    restores them, watches their outcomes, and shares the team's journal.

    Source: tried on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, tests/integration/test_least_rights.py.
    """
    family = subscription.exchanges
    match role:
        case "publisher":
            return (Right("write", "exchange", family.main),)
        case "subscriber":
            return (
                Right("read", "queue", subscription.queue),
                # A reject needs no right; a message that can't be rejected is republished.
                *(
                    ()
                    if subscription.retry_via == "broker"
                    else (Right("write", "exchange", family.retry, key=subscription.queue),)
                ),
                Right("write", "exchange", family.failed, key=subscription.queue),
                *(
                    Right("write", "exchange", family.failed, key=queue)
                    for queue in subscription.own_failed_queues
                ),
                Right("read", "queue", family.control),
            )
        case "declarer":
            needed = _rights_to_declare(subscription.topology())
            return tuple(dict.fromkeys((*needed, Right("configure", "queue", family.control))))
        case "delayer":
            level = Ladder(family).level(0)
            return (
                Right("write", "exchange", level, re.escape(level.removesuffix("0")) + "[0-9]+"),
                Right("write", "exchange", family.deliver),  # for a delay that is already over
            )
        case "operator":
            return tuple(_rights_to_operate(subscription))
        case _:
            assert_never(role)


def _rights_to_operate(subscription: Subscription) -> Iterator[Right]:
    family = subscription.exchanges
    yield Right("read", "queue", subscription.failed_queue)
    # Over AMQP alone, only a user that may declare the queue learns its delivery limit.
    yield Right("configure", "queue", subscription.failed_queue)
    # so that only one user looks at a time
    yield Right("configure", "queue", look_lock(subscription.queue))
    # The journal that a team shares; whoever runs a job locks it with one of the queues below.
    yield Right("configure", "queue", JOURNAL)
    yield Right("read", "queue", JOURNAL)
    yield Right("write", "exchange", DEFAULT_EXCHANGE)
    yield Right("write", "exchange", family.failed, key=subscription.queue)  # to restore
    # RabbitMQ 4.3 tells how many messages are in a queue only to a user with a right on it. A user
    # that may write to the default exchange can write to any queue anyway.
    yield Right("write", "queue", subscription.queue)
    yield Right("write", "queue", subscription.retry_queue)
    yield from rights_to_watch(family, subscription.queue)


def rights_to_watch(family: ExchangeFamily, queue: str) -> Iterator[Right]:
    """Yield the rights to watch the outcomes of messages requeued to a queue: queues of the
    watcher's own, bound to the exchange on which subscribers report outcomes, and to those that a
    message of this queue passes when it fails again."""
    yield Right("configure", "exchange", outcome_events.exchange_of(family).name)
    for own in (outcome_events.watched_queue(_ANY), outcome_events.queue_of(_ANY)):
        for verb in VERBS:
            yield Right(verb, "queue", own.name, re.escape(own.name.removesuffix(_ANY)) + ".+")
    yield Right("read", "exchange", outcome_events.exchange_of(family).name)
    for source in (family.failed, family.retry):
        yield Right("read", "exchange", source, key=queue)


def _rights_to_declare(topology: Topology) -> Iterator[Right]:
    """Yield the rights that the broker requires for declaring. Source:
    https://www.rabbitmq.com/docs/access-control#authorisation; measured."""
    for exchange in topology.exchanges:
        yield Right("configure", "exchange", exchange.name)
        if "alternate-exchange" in exchange.arguments:
            yield Right("read", "exchange", exchange.name)
            yield Right("write", "exchange", str(exchange.arguments["alternate-exchange"]))
    for queue in topology.queues:
        yield Right("configure", "queue", queue.name)
        if "x-dead-letter-exchange" in queue.arguments:
            yield Right("read", "queue", queue.name)
            to = str(queue.arguments["x-dead-letter-exchange"])
            key = str(queue.arguments.get("x-dead-letter-routing-key", "")) if to else ""
            yield Right("write", "exchange", to or DEFAULT_EXCHANGE, key=key)
    for binding in topology.bindings:
        yield Right("write", binding.to, binding.destination)
        yield Right("read", "exchange", binding.source, key=binding.routing_key)


def lacking(
    user: str,
    virtual_host: str,
    subscription: Subscription,
    missing: Mapping[Role, Sequence[Right]],
) -> Iterator[Finding]:
    """Report what a user can't do with a subscription."""
    wanted = [right for role in missing for right in least_rights(role, subscription)]
    topics = topic_commands(
        user, virtual_host, subscription.exchanges, f"^{re.escape(subscription.queue)}$"
    )
    for role, rights in missing.items():
        if rights:
            yield Finding(
                "permission",
                subscription.queue,
                f"the user {user!r} can't be {_A[role]} of it; missing rights: "
                f"{', '.join(map(str, rights))}",
                _WITHOUT[role],
                f"{grant_command(user, virtual_host, wanted)} ({_needs(list(missing))}; its other "
                "rights in this virtual host are revoked)"
                + (
                    f". To keep it from reading other queues' failures: {topics}"
                    if "operator" in missing
                    else f". To keep it from writing into others' queues: {topics}"
                    if "subscriber" in missing
                    else ""
                ),
            )


def _needs(roles: Sequence[Role]) -> str:
    return f"all that {' and '.join(roles)} need{'s' if len(roles) == 1 else ''}"


def permits(pattern: str, name: str) -> bool:
    """Return whether a permission's regular expression matches a name; an empty one matches none,
    and so does one that Python can't compile."""
    try:
        return bool(pattern) and re.search(pattern, name) is not None
    except re.error:
        return False


def topic_commands(user: str, virtual_host: str, exchanges: ExchangeFamily, queue: str) -> str:
    """Return the commands that limit a user's writes to and reads from the failed and the retry
    exchange to one queue."""
    return "; ".join(
        shlex.join(
            [
                "rabbitmqctl",
                "set_topic_permissions",
                "-p",
                virtual_host,
                user,
                exchange,
                queue,
                queue,
            ]
        )
        for exchange in (exchanges.failed, exchanges.retry)
    )


def writers_into_others(
    access: Iterable[Access], virtual_host: str, exchanges: ExchangeFamily
) -> Iterator[Finding]:
    """Report users that may write into the failed or the retry queue of every subscription.

    Users that could do so whatever their topic permissions are left out: administrators, and users
    that may write to the default exchange.
    """
    for one in access:
        if one.is_administrator or permits(one.write, DEFAULT_EXCHANGE):
            continue
        anywhere = [
            exchange
            for exchange in (exchanges.failed, exchanges.retry)
            if permits(one.write, exchange)
            and permits(one.topics.get(exchange, ".*"), _NOBODYS_QUEUE)
        ]
        if anywhere:
            yield Finding(
                "topic-permission",
                one.user,
                f"this user may write to {' and '.join(anywhere)} with any routing key",
                "It can put messages of its own into the failed or retry queue of every other "
                "subscription.",
                "Limit it to the queues that it consumes: "
                f"{topic_commands(one.user, virtual_host, exchanges, '^(QUEUE|QUEUE)$')}",
            )


def readers_of_others(
    access: Iterable[Access], virtual_host: str, exchanges: ExchangeFamily
) -> Iterator[Finding]:
    """Report users that may read every message that fails or is retried, as it passes;
    administrators are left out."""
    for one in access:
        anywhere = [
            exchange
            for exchange in (exchanges.failed, exchanges.retry)
            if permits(one.read, exchange)
            and permits(one.topics_read.get(exchange, ".*"), _NOBODYS_QUEUE)
        ]
        if anywhere and not one.is_administrator:
            yield Finding(
                "topic-permission",
                one.user,
                f"this user may bind queues to {' and '.join(anywhere)} with any routing key",
                "It can read the messages of every other subscription that fail or are retried.",
                "Limit it to the queues that it operates: "
                f"{topic_commands(one.user, virtual_host, exchanges, '^(QUEUE|QUEUE)$')}",
            )


def grant_command(user: str, virtual_host: str, rights: Iterable[Right]) -> str:
    """Return the command that grants a user exactly these rights in a virtual host. It revokes all
    others there."""
    wanted = list(rights)
    patterns = [granted_pattern(wanted, verb) for verb in VERBS]
    return shlex.join(["rabbitmqctl", "set_permissions", "-p", virtual_host, user, *patterns])


def granted_pattern(rights: Iterable[Right], verb: Verb) -> str:
    """Return the regular expression that grants exactly the rights with this verb."""
    wanted = sorted({right.granted for right in rights if right.verb == verb})
    return f"^({'|'.join(wanted)})$" if wanted else "^$"
