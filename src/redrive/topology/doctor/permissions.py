"""What each role may do at the least, and how it is granted."""

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
"""What permissions call the exchange whose name is empty. Source:
https://www.rabbitmq.com/docs/access-control#authorisation"""

_WITHOUT: Mapping[Role, str] = {
    "publisher": "Publishing closes the channel with a 403.",
    "subscriber": "Consuming, or setting a failed message aside, closes the channel with a 403.",
    "delayer": "delay= is refused, and a retry that should wait for another time than the retry "
    "queue's waits for the retry queue's.",
    "declarer": "Declaring fails with a 403: use declare=False, and have another user declare.",
    "operator": "Failed messages can't be looked at, not be requeued, not be watched while "
    "they are, or the team's journal does not say who did it.",
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
"""What stands for the rest of a name, where many objects of one kind are meant."""
VERBS: tuple[Verb, ...] = ("configure", "write", "read")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One of the broker's rights on one object.

    Args:
        verb: `configure`, `write` or `read`.
        kind: `exchange` or `queue`.
        name: the object's name; `amq.default` for the default exchange. Of many objects one of
            them.
        pattern: the regular expression of the names of many objects; empty for the one.
        key: the routing key that it is needed with, where a topic permission may be for some alone.
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
    """The rights that a role needs on a subscription, and no others.

    `publisher` publishes to exchanges that are there; `subscriber` handles messages with
    `declare=False` and one delay; `delayer`, besides one of them, uses a delay ladder that is
    there; `declarer` makes the exchanges, queues and bindings; `operator` looks at failed messages,
    requeues or restores them, watches what becomes of them, and shares the journal of all that.

    Source: tried on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, tests/integration/test_least_rights.py.
    """
    family = subscription.exchanges
    match role:
        case "publisher":
            return (Right("write", "exchange", family.main),)
        case "subscriber":
            return (
                Right("read", "queue", subscription.queue),
                # A reject needs no right; what can't be rejected is republished.
                *(
                    ()
                    if subscription.retry_via == "broker"
                    else (Right("write", "exchange", family.retry, key=subscription.queue),)
                ),
                Right("write", "exchange", family.failed, key=subscription.queue),
            )
        case "declarer":
            return tuple(dict.fromkeys(_rights_to_declare(subscription.topology())))
        case "delayer":
            level = Ladder(family).level(0)
            return (
                Right("write", "exchange", level, re.escape(level.removesuffix("0")) + "[0-9]+"),
                Right("write", "exchange", family.deliver),  # for a time that is past
            )
        case "operator":
            return tuple(_rights_to_operate(subscription))
        case _:
            assert_never(role)


def _rights_to_operate(subscription: Subscription) -> Iterator[Right]:
    family = subscription.exchanges
    yield Right("read", "queue", subscription.failed_queue)
    # Over AMQP alone, the queue's delivery limit is told to whom may declare it.
    yield Right("configure", "queue", subscription.failed_queue)
    yield Right("configure", "queue", look_lock(subscription.queue))  # so that one looks at a time
    # The journal that a team shares; who runs a job locks it by one of the queues below.
    yield Right("configure", "queue", JOURNAL)
    yield Right("read", "queue", JOURNAL)
    yield Right("write", "exchange", DEFAULT_EXCHANGE)
    yield Right("write", "exchange", family.failed, key=subscription.queue)  # to restore
    # RabbitMQ 4.3 tells how much is in a queue only to whom has a right on it. Who may write to the
    # default exchange writes to any queue.
    yield Right("write", "queue", subscription.queue)
    yield Right("write", "queue", subscription.retry_queue)
    yield from rights_to_watch(family, subscription.queue)


def rights_to_watch(family: ExchangeFamily, queue: str) -> Iterator[Right]:
    """What it takes to watch what becomes of messages that are requeued to a queue: queues of its
    own, bound to where subscribers tell it, and to where a message of this queue passes when it
    fails again."""
    yield Right("configure", "exchange", outcome_events.exchange_of(family).name)
    for own in (outcome_events.watched_queue(_ANY), outcome_events.queue_of(_ANY)):
        for verb in VERBS:
            yield Right(verb, "queue", own.name, re.escape(own.name.removesuffix(_ANY)) + ".+")
    yield Right("read", "exchange", outcome_events.exchange_of(family).name)
    for source in (family.failed, family.retry):
        yield Right("read", "exchange", source, key=queue)


def _rights_to_declare(topology: Topology) -> Iterator[Right]:
    """What the broker asks for. Source: https://www.rabbitmq.com/docs/access-control#authorisation;
    measured."""
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
    """What a user can't do with a subscription."""
    wanted = [right for role in missing for right in least_rights(role, subscription)]
    topics = topic_commands(
        user, virtual_host, subscription.exchanges, f"^{re.escape(subscription.queue)}$"
    )
    for role, rights in missing.items():
        if rights:
            yield Finding(
                "permission",
                subscription.queue,
                f"the user {user!r} can't be {_A[role]} of it, and may not: "
                f"{', '.join(map(str, rights))}",
                _WITHOUT[role],
                f"{grant_command(user, virtual_host, wanted)} ({_needs(list(missing))}; its other "
                "rights in this virtual host go)"
                + (
                    f". So that it reads no other queue's failures: {topics}"
                    if "operator" in missing
                    else f". So that it can't write into others' queues: {topics}"
                    if "subscriber" in missing
                    else ""
                ),
            )


def _needs(roles: Sequence[Role]) -> str:
    return f"all that {' and '.join(roles)} need{'s' if len(roles) == 1 else ''}"


def permits(pattern: str, name: str) -> bool:
    """Whether a permission's regular expression is for a name; an empty one is for none. One that
    Python can't read is taken for none."""
    try:
        return bool(pattern) and re.search(pattern, name) is not None
    except re.error:
        return False


def topic_commands(user: str, virtual_host: str, exchanges: ExchangeFamily, queue: str) -> str:
    """The commands that let a user write to the failed and the retry exchange, and read from them,
    for one queue alone."""
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
    """The users that may write into the failed or the retry queue of every subscription.

    Left out is who may do so whatever its topic permissions are: administrators, and who may write
    to the default exchange.
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
                "Of the queues that it consumes: "
                f"{topic_commands(one.user, virtual_host, exchanges, '^(QUEUE|QUEUE)$')}",
            )


def readers_of_others(
    access: Iterable[Access], virtual_host: str, exchanges: ExchangeFamily
) -> Iterator[Finding]:
    """The users that may read each failed message, and each that is retried, as it passes; left out
    are administrators."""
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
                "Of the queues that it operates: "
                f"{topic_commands(one.user, virtual_host, exchanges, '^(QUEUE|QUEUE)$')}",
            )


def grant_command(user: str, virtual_host: str, rights: Iterable[Right]) -> str:
    """The command that gives a user exactly these rights in a virtual host. It takes all others
    there away."""
    wanted = list(rights)
    patterns = [granted_pattern(wanted, verb) for verb in VERBS]
    return shlex.join(["rabbitmqctl", "set_permissions", "-p", virtual_host, user, *patterns])


def granted_pattern(rights: Iterable[Right], verb: Verb) -> str:
    """The regular expression that grants those of the rights that are of one verb, and no
    others."""
    wanted = sorted({right.granted for right in rights if right.verb == verb})
    return f"^({'|'.join(wanted)})$" if wanted else "^$"
