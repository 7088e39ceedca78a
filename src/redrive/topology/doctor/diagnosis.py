"""Diagnose problems of a broker: facts in, findings out.

Each finding says what was found, what it means, and which command fixes it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from redrive.topology import names
from redrive.topology.binding_pattern import matches
from redrive.topology.broker_version import CONSUMER_TIMEOUT, BrokerVersion
from redrive.topology.diff import stale_bindings
from redrive.topology.doctor import remedies
from redrive.topology.doctor.facts import Facts, QueueFacts
from redrive.topology.doctor.finding import Finding
from redrive.topology.doctor.permissions import readers_of_others, writers_into_others
from redrive.topology.model import Binding, Subscription
from redrive.topology.names import ExchangeFamily

_ENOUGH_RETURNS = 1000
_BOUND = ("topic", "direct", "fanout", "headers")
"""Types of exchanges that route by bindings alone."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Question:
    """A subscription to diagnose.

    Args:
        queue: a main queue.
        exchanges: its exchange family.
        routing_keys: the patterns of its subscription; None if unknown.
        handler_time: how long a handler may run; None if unknown.
    """

    queue: str
    exchanges: ExchangeFamily
    routing_keys: tuple[str, ...] | None = None
    handler_time: timedelta | None = None

    @property
    def places(self) -> tuple[str, str, str]:
        """The main, the retry and the failed queue."""
        return self.queue, names.retry_queue(self.queue), names.failed_queue(self.queue)


def diagnose(facts: Facts, questions: Iterable[Question], *, others: bool = False) -> list[Finding]:
    """Return the problems of these subscriptions, as far as the facts reveal them."""
    asked = list(questions)
    found = [finding for question in asked for finding in _about(facts, question)]
    foreign = {one.queue for one in asked if _is_of_others(facts, one)}
    found += _of_others(facts, foreign | (_not_ours(facts) if others else set()))
    found += _alarms(facts)
    found += _delayed_message_plugin(facts, asked)
    for name, queue in sorted(facts.queues.items()):
        if names.is_of_a_ladder(name):
            found += _dead_lettering_stuck(facts, queue)
    # otherwise there is no other subscription to write to
    if len(names.main_queues(facts.queues)) > 1:
        for exchanges in dict.fromkeys(question.exchanges for question in asked):
            found += writers_into_others(facts.access or (), facts.virtual_host, exchanges)
            found += readers_of_others(facts.access or (), facts.virtual_host, exchanges)
    return found


def holds_back(facts: Facts, queue: str) -> bool:
    """Return whether the broker itself holds failed messages back in a main queue, which then needs
    no retry queue."""
    found = facts.queues.get(queue)
    return found is not None and found.argument("x-delayed-retry-type") is not None


def would_gain(facts: Facts, questions: Iterable[Question]) -> list[str]:
    """Return the subscriptions whose failed messages this broker could hold back itself, without a
    retry queue: those that retry by dead-lettering on quorum queues and need no order."""
    return [
        question.queue
        for question in questions
        if facts.version.holds_failed_messages_back
        and (main := facts.queues.get(question.queue)) is not None
        and main.is_quorum
        and main.argument("x-dead-letter-exchange") == question.exchanges.retry
        and main.argument("x-single-active-consumer") is None
        and question.places[1] in facts.queues
    ]


def diagnose_upgrade(
    facts: Facts, version: BrokerVersion, questions: Iterable[Question]
) -> list[Finding]:
    """Return the problems that appear only once the broker has this version."""
    asked = list(questions)
    now = {(finding.kind, finding.where) for finding in diagnose(facts, asked)}
    return [
        finding
        for finding in diagnose(replace(facts, version=version), asked)
        if (finding.kind, finding.where) not in now
    ]


def _is_of_others(facts: Facts, question: Question) -> bool:
    """Return whether redrive did not create this queue: its dead letters go elsewhere."""
    main, retry, failed = question.places
    queue = facts.queues.get(main)
    if queue is None or retry in facts.queues or failed in facts.queues:
        return False
    exchange, key = queue.setting("dead-letter-exchange"), queue.setting("dead-letter-routing-key")
    if not isinstance(exchange, str):
        return False
    family = question.exchanges
    if not exchange:
        return key not in question.places
    suffixes = family.retry_suffix, family.failed_suffix
    return exchange != family.main and not exchange.endswith(suffixes)


def _not_ours(facts: Facts) -> set[str]:
    """Return the queues that redrive did not create."""
    ours = {
        place
        for main in names.main_queues(facts.queues)
        for place in (main, names.retry_queue(main), names.failed_queue(main))
    }
    return {name for name in facts.queues if name not in ours and not names.is_of_a_ladder(name)}


def _of_others(facts: Facts, queues: Iterable[str]) -> Iterator[Finding]:
    """Find queues that redrive did not create and that lose messages."""
    for name in sorted(queues):
        queue = facts.queues[name]
        exchange = queue.setting("dead-letter-exchange")
        key = queue.setting("dead-letter-routing-key")
        if not isinstance(exchange, str):
            continue
        missing = _missing_target(facts, exchange, key)
        if missing:
            keeps = queue.is_quorum and queue.setting("dead-letter-strategy") == "at-least-once"
            yield Finding(
                "dead-letter-target",
                name,
                f"it dead-letters to {missing}",
                "Messages that are rejected or expire in it stay stuck."
                if keeps
                else "Messages that are rejected or expire in it are dropped.",
                remedies.give_a_dead_letter_queue(facts, queue, exchange, key),
            )


def _about(facts: Facts, question: Question) -> Iterator[Finding]:
    if _is_of_others(facts, question):
        yield from _dead_lettering_stuck(facts, facts.queues[question.queue])
        return
    yield from _not_there(facts, question)
    yield from _not_held_back(facts, question)
    here = [facts.queues[name] for name in question.places if name in facts.queues]
    for queue in here:
        yield from _dead_letter_target(facts, question, queue)
        yield from _dead_lettering_stuck(facts, queue)
        yield from _copies_of_retries(facts, question, queue)
        yield from _message_ttl(facts, question, queue)
        yield from _no_way_back(facts, question, queue)
        yield from _drop_head(facts, question, queue)
        yield from _message_size(facts, queue)
        yield from _one_member(facts, queue)
        yield from _mirroring_policy(facts, queue)
        yield from _single_active_consumer(facts, queue)
        if queue.name != question.places[1]:  # a retry queue has no consumers
            yield from _delivery_limit(facts, question, queue)
    yield from _different_tags(facts, question)
    yield from _republishing_consumer(facts, question)
    yield from _consumer_timeout(facts, question)
    yield from _classic_in_cluster(facts, here)
    yield from _stale_bindings(facts, question)


def _not_there(facts: Facts, question: Question) -> Iterator[Finding]:
    gone = [
        name
        for name in question.places
        if name not in facts.queues
        and not (name == question.places[1] and holds_back(facts, question.queue))
    ]
    if gone:
        yield Finding(
            "not-there",
            question.queue,
            f"of the subscription's three queues, {_listed(gone)} "
            f"{'does' if len(gone) == 1 else 'do'} not exist",
            "Messages can't be moved there: a failed attempt is lost if the broker moves it, and "
            "stays unsettled if redrive does.",
            remedies.declare(facts, question.queue, question.exchanges, question.routing_keys),
        )


def _not_held_back(facts: Facts, question: Question) -> Iterator[Finding]:
    """Check a queue that is set up to have messages held back by a broker that does not do it."""
    main = facts.queues.get(question.queue)
    if main is None or not holds_back(facts, question.queue):
        return
    if main.consumers.foreign:
        yield Finding(
            "foreign-consumer",
            question.queue,
            f"{_number(main.consumers.foreign, 'consumer')} of another library, and the broker "
            "itself holds its failed messages back",
            "A message nacked with requeueing comes back at once and does not count as an attempt; "
            "one rejected without requeueing goes to the failed queue without a reason.",
            "Make it reject failed messages with requeueing (basic.reject), or use redrive.",
        )
    least = main.least("delayed-retry-min")
    # A policy takes precedence over the argument. Source: RabbitMQ 4.3.5, rabbit_quorum_queue,
    # `get_delayed_retry_config`.
    kind = main.policy.get("delayed-retry-type", main.argument("x-delayed-retry-type"))
    remedy = (
        "Upgrade all nodes to RabbitMQ 4.3, remove the policy, or go back to a retry queue: "
        "retry_via: dead-letter in the topology file, then redrive topology migrate."
    )
    if not facts.version.holds_failed_messages_back:
        found = f"it should hold failed messages back, but RabbitMQ {facts.version} can't"
    elif kind != "failed":
        found = f"its delayed-retry-type is {kind}, not failed"
    elif not least:
        found = "its delay is 0: an argument or a policy sets it to 0, or neither sets it"
        remedy = (
            "Put retry_via: broker and delay_by: policy into the topology file, then redrive "
            "topology apply; if a policy sets delayed-retry-min to 0, remove that first."
        )
    elif main.holding_back is False:
        # Source: measured in a cluster of three nodes of RabbitMQ 4.3.6 in which one had the older
        # state machine of quorum queues: rejected messages come back at once, whichever feature
        # flags are enabled, and are held back a few seconds after that node was restarted.
        found = (
            "the broker accepts its arguments but holds nothing back: a node with a copy of it "
            "runs a RabbitMQ before 4.3"
        )
    else:
        return
    yield Finding(
        "not-held-back",
        question.queue,
        found,
        "Failed messages come back at once, and use up their retries within moments.",
        remedy,
    )


def _dead_letter_target(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    exchange, key = queue.setting("dead-letter-exchange"), queue.setting("dead-letter-routing-key")
    if not isinstance(exchange, str):
        return
    missing = _missing_target(facts, exchange, key)
    if missing:
        yield Finding(
            "dead-letter-target",
            queue.name,
            f"it dead-letters to {missing}",
            "Messages that are rejected or expire in it are dropped by a classic queue, and stay "
            "stuck in a quorum queue.",
            remedies.declare(facts, question.queue, question.exchanges, question.routing_keys),
        )


def _dead_lettering_stuck(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    if not queue.stuck:
        return
    known = facts.version.may_stop_dead_lettering
    yield Finding(
        "dead-lettering-stuck",
        queue.name,
        f"{_number(queue.stuck, 'message')} that it is dead-lettering did not become fewer while "
        "redrive watched; AMQP does not report them",
        (
            f"RabbitMQ {facts.version} may stop dead-lettering for good after a fault: they stay "
            "until the queue's leader moves or its node restarts. No message is lost."
            if known
            else "Their target queue is missing, full or down, or the broker has stopped "
            "dead-lettering. They stay until it continues. No message is lost."
        ),
        remedies.release(facts, queue),
    )


def _missing_target(facts: Facts, exchange: str, key: object) -> str:
    """Describe which target of a dead letter is missing; empty if it is there, or can't be seen."""
    if not exchange:
        gone = isinstance(key, str) and facts.complete and key not in facts.queues
        return f"the queue {key!r}, which does not exist" if gone else ""
    if exchange not in facts.exchanges:
        return f"the exchange {exchange!r}, which does not exist"
    kind = facts.exchanges[exchange]
    if facts.bindings is None or exchange in facts.alternates:
        return ""
    if not isinstance(key, str) or kind not in ("topic", "direct"):
        is_bound = any(binding.source == exchange for binding in facts.bindings)
        unbound = f"the exchange {exchange!r}, to which no queue is bound"
        return "" if is_bound or kind not in _BOUND else unbound
    # Whatever goes on to another exchange is not followed.
    routed = any(
        binding.source == exchange and (binding.to == "exchange" or _gives(kind, binding, key))
        for binding in facts.bindings
    )
    return "" if routed else f"the exchange {exchange!r}, which has no queue for the key {key!r}"


def _gives(kind: str, binding: Binding, key: str) -> bool:
    return matches(binding.routing_key, key) if kind == "topic" else binding.routing_key == key


def _copies_of_retries(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    main, retry, failed = question.places
    exchange, key = queue.setting("dead-letter-exchange"), queue.setting("dead-letter-routing-key")
    if (
        queue.name == failed
        or holds_back(facts, queue.name)  # it does not dead-letter retries
        or not exchange
        or not isinstance(key, str)
        or facts.exchanges.get(str(exchange)) != "topic"
    ):
        return
    meant = retry if queue.name == main else main
    for binding in sorted(facts.bindings or ()):
        if (
            binding.source == exchange
            and binding.to == "queue"
            and binding.destination != meant
            and matches(binding.routing_key, key)
        ):
            yield Finding(
                "copies-of-retries",
                binding.destination,
                f"it is bound to {exchange} with {binding.routing_key!r}, and retries of {main} go "
                f"through {exchange} with the key {key!r}",
                f"Each retry of a message of {main} gives it one more copy of that message.",
                remedies.narrow(facts, binding),
            )


def _delivery_limit(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    if not queue.is_quorum:
        return
    limits = queue.numbers("delivery-limit")
    returns = facts.version.delivery_limit(limits)
    if returns is None or returns >= _ENOUGH_RETURNS:
        return
    failed = queue.name == question.places[2]
    yield Finding(
        "delivery-limit",
        queue.name,
        f"this broker ({facts.version}) removes a message from it after {returns} returns"
        + (
            ", its default: the queue has no delivery limit of its own"
            if not limits
            else f" (delivery limits set: {', '.join(map(str, sorted(limits)))})"
        ),
        "Looking at failed messages deletes them in the end: each look returns them once."
        if failed
        else f"A message whose worker dies {returns + 1} times is dropped or stuck in "
        f"{question.places[1]}, instead of being set aside.",
        remedies.raise_delivery_limit(facts, queue),
    )


def _message_ttl(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    main, _, failed = question.places
    wanted = {
        main: "A message that waits in it for that long goes to the retry queue unhandled, without "
        "counting as an attempt, or is dropped.",
        failed: "Failed messages are deleted at that age.",
    }
    for name, what in (
        ("message-ttl", wanted.get(queue.name)),
        ("expires", "The broker deletes the queue if nobody uses it for that long."),
    ):
        value = queue.setting(name)
        if what is not None and value is not None:
            # A TTL is the purpose of a retry queue; an expiry of the queue itself is not.
            yield Finding(
                "message-ttl",
                queue.name,
                f"{_origin(queue, name)} sets {name} to {value} ms",
                what,
                remedies.take_out(facts, queue, name),
            )


def _no_way_back(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    main, retry, _ = question.places
    if queue.name != retry or queue.arguments is None or not facts.complete:
        return
    remedy = remedies.make_a_retry_queue(facts, queue, main)
    if queue.delay is None:
        yield Finding(
            "no-delay",
            retry,
            "neither an argument nor a policy sets its message-ttl",
            "A message without an expiration of its own waits in it forever. A policy that should "
            "set it does not match its name, or another one has a higher priority.",
            remedy,
        )
    if queue.setting("dead-letter-exchange") is None:
        yield Finding(
            "dead-letter-target",
            retry,
            "neither an argument nor a policy sets its dead-letter-exchange",
            "A message is deleted when its delay is over.",
            remedy,
        )


def _drop_head(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    bounds = [
        name for name in ("max-length", "max-length-bytes") if queue.setting(name) is not None
    ]
    if queue.arguments is None or not bounds:
        return
    if (queue.setting("overflow") or "drop-head") != "drop-head":
        return
    failed = queue.name == question.places[2]
    yield Finding(
        "drop-head",
        queue.name,
        f"{_origin(queue, bounds[0])} sets {bounds[0]} to {queue.setting(bounds[0])}, and the "
        "oldest message is dropped to make room for a new one",
        "Once it is full, each new failure deletes the oldest failed message, for good."
        if failed
        else "Once it is full, unhandled messages are dropped or dead-lettered.",
        remedies.refuse_what_is_too_much(facts, queue),
    )


def _message_size(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    largest = facts.version.largest_message
    if queue.message_size is None or queue.message_size <= largest:
        return
    yield Finding(
        "message-size",
        queue.name,
        f"its messages have {_mebibytes(queue.message_size)} on average, and RabbitMQ "
        f"{facts.version} accepts at most {_mebibytes(largest)} unless it is configured otherwise, "
        "which can't be seen",
        "The broker refuses to accept them again: they can't be set aside, requeued, or delayed on "
        "the ladder.",
        remedies.take_larger_messages(2 * queue.message_size),
    )


def _one_member(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    if queue.is_quorum and queue.members == 1 and facts.nodes is not None and facts.nodes > 1:
        yield Finding(
            "one-member",
            queue.name,
            f"a quorum queue with one copy, in a cluster of {facts.nodes} nodes",
            "While its node is down, nothing can be published to or taken from it; if the node is "
            "lost, so are its messages.",
            remedies.grow(facts, queue),
        )


def _mirroring_policy(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    if (
        queue.policy.get("ha-mode") is None
        or queue.is_quorum
        or facts.version.mirrors_classic_queues
    ):
        return
    yield Finding(
        "mirroring-policy",
        queue.name,
        f"{_origin(queue, 'ha-mode')} should mirror it, but RabbitMQ {facts.version} does not "
        "mirror queues",
        "It is on one node: while that is down, nothing can be published to or taken from it.",
        f"Change it to a quorum queue while it is in use: {remedies.migrate()}",
    )


def _alarms(facts: Facts) -> Iterator[Finding]:
    for node, short_of in sorted(facts.alarms.items()):
        yield Finding(
            "alarm",
            node,
            f"it is short of {short_of}",
            "The broker blocks every publisher of the cluster until the alarm is over: publishing, "
            "requeueing and setting messages aside wait.",
            f"Free {short_of} on {node}, or raise its limit (vm_memory_high_watermark, "
            "disk_free_limit).",
        )


def _delayed_message_plugin(facts: Facts, questions: Iterable[Question]) -> Iterator[Finding]:
    mains = {question.exchanges.main for question in questions}
    for name, kind in sorted(facts.exchanges.items()):
        if kind != "x-delayed-message" or facts.version.can_run_the_delayed_message_plugin:
            continue
        feeds = any(
            binding.source == name and binding.destination in mains
            for binding in facts.bindings or ()
        )
        yield Finding(
            "delayed-message-plugin",
            name,
            "an exchange of the plugin rabbitmq_delayed_message_exchange"
            + (f", which delays messages to {', '.join(sorted(mains))}" if feeds else ""),
            f"The plugin can't run on RabbitMQ {facts.version}: the exchange can't be used, and "
            "the messages that it had delayed are lost.",
            "Publish with redrive's delay= (or deliver_at=), which needs no plugin, and delete the "
            "exchange once no message waits in it.",
        )


def _origin(queue: QueueFacts, name: str) -> str:
    if queue.argument(f"x-{name}") is not None:
        return "its argument"
    named = (("policy", queue.policy_name), ("operator policy", queue.operator_policy_name))
    return " or ".join(f"{kind} {name!r}" for kind, name in named if name is not None)


def _single_active_consumer(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    if (
        queue.is_quorum
        and queue.argument("x-single-active-consumer") is True
        and facts.version.wedges_single_active_consumers
    ):
        yield Finding(
            "single-active-consumer",
            queue.name,
            f"it is a quorum queue with a single active consumer, on RabbitMQ {facts.version}",
            "On 4.3.0 to 4.3.5 it stops delivering for good once each of its consumers has run "
            "into the consumer timeout, but still looks healthy.",
            "Upgrade the broker to 4.3.6 or newer. Until then raise the timeout: "
            + remedies.set_policy(
                facts.virtual_host, queue, "redrive-timeout", {"consumer-timeout": 86_400_000}
            ),
        )


def _different_tags(facts: Facts, question: Question) -> Iterator[Finding]:
    queue = facts.queues.get(question.queue)
    if queue is None or len(queue.consumers.tags) < 2:
        return
    asked = [repr(tags) if tags else "none" for tags in sorted(queue.consumers.tags)]
    yield Finding(
        "different-tags",
        question.queue,
        f"its subscribers ask for different tags or filters: {_listed(asked)}",
        "A queue has one filter, that of the subscriber that declared it last. A message that "
        "passes it goes to any of them, which may decline it, and messages that only the others "
        "want get to none.",
        "Stop the outdated subscribers; subscribers that should get different messages "
        "each need a queue of their own.",
    )


def _republishing_consumer(facts: Facts, question: Question) -> Iterator[Finding]:
    main, retry = facts.queues.get(question.queue), facts.queues.get(question.places[1])
    if (
        main is None
        or retry is None
        or facts.version.continues_client_x_death
        or main.arguments is None
    ):
        return
    if main.setting("dead-letter-exchange") is not None or not retry.setting(
        "dead-letter-exchange"
    ):
        return  # it has a dead-letter exchange, so nothing needs to be republished
    foreign = main.consumers.count if main.consumers.foreign is None else main.consumers.foreign
    if foreign:
        unsure = "" if main.consumers.foreign is not None else ", redrive's or not,"
        yield Finding(
            "republishing-consumer",
            question.queue,
            f"it has no dead-letter exchange, so its {_number(foreign, 'consumer')}{unsure} can "
            "only republish failed messages, and this broker "
            f"({facts.version}) ignores the x-death of published messages",
            "A consumer that counts x-death always sees 1: a message that always fails is "
            "retried forever.",
            "Consume it with redrive, which counts in a header of its own: Subscriber(…, "
            "retry_via='republish', queue_type='classic'). "
            "One such worker beside the others is enough: it sets a message aside after its own "
            "max_retries + 1 attempts.",
        )


def _consumer_timeout(facts: Facts, question: Question) -> Iterator[Finding]:
    queue = facts.queues.get(question.queue)
    if queue is None or question.handler_time is None:
        return
    is_classic = queue.argument("x-queue-type") == "classic"
    if is_classic and not facts.version.has_a_consumer_timeout_on_classic_queues:
        return
    limit = queue.least("consumer-timeout")
    known = [
        time
        for time in (queue.consumers.timeout, None if limit is None else limit * _MILLISECOND)
        if time is not None
    ]
    timeout = min(known, default=CONSUMER_TIMEOUT)
    if question.handler_time >= timeout:
        yield Finding(
            "consumer-timeout",
            question.queue,
            f"a handler may run for {_seconds(question.handler_time)}, and a delivery may stay "
            f"unsettled for {_seconds(timeout)}"
            + ("" if known else " unless the broker is configured otherwise, which can't be seen"),
            "The broker takes the message from a worker that is still handling it, and gives it to "
            "another: the work is done again and again.",
            remedies.raise_consumer_timeout(facts, queue, 2 * question.handler_time),
        )


def _classic_in_cluster(facts: Facts, queues: Iterable[QueueFacts]) -> Iterator[Finding]:
    classic = [queue for queue in queues if queue.arguments is not None and not queue.is_quorum]
    if facts.nodes is not None and facts.nodes > 1 and classic:
        yield Finding(
            "classic-in-cluster",
            classic[0].name,
            f"classic queues in a cluster of {facts.nodes} nodes: "
            f"{_listed(queue.name for queue in classic)}",
            "Each is on one node: while that is down, nothing can be published to or taken from "
            "it, and messages that it was moving may be lost.",
            remedies.declare_as_quorum(facts, classic),
        )


def _stale_bindings(facts: Facts, question: Question) -> Iterator[Finding]:
    if facts.bindings is None:
        return
    bound = tuple(
        binding.routing_key
        for binding in facts.bindings
        if binding.source == question.exchanges.main
        and binding.destination == question.queue
        and binding.routing_key != question.queue
    )
    wanted = Subscription(
        question.queue,
        bound if question.routing_keys is None else question.routing_keys,
        question.exchanges,
    )
    for binding in stale_bindings(wanted.topology(), facts.bindings):
        yield Finding(
            "stale-binding",
            binding.destination,
            f"{binding.source} still gives it messages that match {binding.routing_key!r}, "
            "which is not a pattern of the subscription",
            "It gets messages that its handler does not expect.",
            remedies.declare(
                facts, question.queue, question.exchanges, wanted.routing_keys, prune=True
            ),
        )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _mebibytes(size: int) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():g} s"
