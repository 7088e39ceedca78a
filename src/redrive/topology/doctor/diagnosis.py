"""What will hurt on a broker: facts in, findings out. Each says what was found, what it means, and
the command that mends it."""

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
"""Kinds of exchanges that route by bindings alone."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a diagnosis.

    Args:
        queue: a main queue.
        exchanges: its exchange family.
        routing_keys: the patterns that its subscription asks for; None where they are not known.
        handler_time: how long a handler may run; None where it is not known.
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
    """What will hurt the subscriptions that are asked about. What the facts don't tell is not
    found."""
    asked = list(questions)
    found = [finding for question in asked for finding in _about(facts, question)]
    foreign = {one.queue for one in asked if _is_of_others(facts, one)}
    found += _of_others(facts, foreign | (_not_ours(facts) if others else set()))
    found += _alarms(facts)
    found += _delayed_message_plugin(facts, asked)
    for name, queue in sorted(facts.queues.items()):
        if names.is_of_a_ladder(name):
            found += _dead_lettering_stuck(facts, queue)
    if len(names.main_queues(facts.queues)) > 1:  # else there is no other to write to
        for exchanges in dict.fromkeys(question.exchanges for question in asked):
            found += writers_into_others(facts.access or (), facts.virtual_host, exchanges)
            found += readers_of_others(facts.access or (), facts.virtual_host, exchanges)
    return found


def holds_back(facts: Facts, queue: str) -> bool:
    """Whether the broker itself holds failed messages back in a main queue, which needs no retry
    queue then."""
    found = facts.queues.get(queue)
    return found is not None and found.argument("x-delayed-retry-type") is not None


def would_gain(facts: Facts, questions: Iterable[Question]) -> list[str]:
    """The subscriptions whose failed messages this broker could hold back by itself, without a
    retry queue: those that retry by dead-lettering on quorum queues, one message passing another.
    """
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
    """What will hurt once the broker has this version, and does not yet."""
    asked = list(questions)
    now = {(finding.kind, finding.where) for finding in diagnose(facts, asked)}
    return [
        finding
        for finding in diagnose(replace(facts, version=version), asked)
        if (finding.kind, finding.where) not in now
    ]


def _is_of_others(facts: Facts, question: Question) -> bool:
    """Whether it is a queue that redrive did not make: its dead letters go elsewhere than ours."""
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
    """The queues that redrive did not make."""
    ours = {
        place
        for main in names.main_queues(facts.queues)
        for place in (main, names.retry_queue(main), names.failed_queue(main))
    }
    return {name for name in facts.queues if name not in ours and not names.is_of_a_ladder(name)}


def _of_others(facts: Facts, queues: Iterable[str]) -> Iterator[Finding]:
    """What queues that redrive did not make lose."""
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
                "What is rejected or expires in it stays stuck."
                if keeps
                else "What is rejected or expires in it is dropped.",
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
        if queue.name != question.places[1]:  # nobody consumes a retry queue
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
            f"{'is' if len(gone) == 1 else 'are'} not there",
            "What is moved there can't be: a failed attempt is lost where the broker moves it, and "
            "waits unsettled where redrive does.",
            remedies.declare(facts, question.queue, question.exchanges, question.routing_keys),
        )


def _not_held_back(facts: Facts, question: Question) -> Iterator[Finding]:
    """A queue that looks as if the broker held messages back, and it does not."""
    main = facts.queues.get(question.queue)
    if main is None or not holds_back(facts, question.queue):
        return
    if main.consumers.foreign:
        yield Finding(
            "foreign-consumer",
            question.queue,
            f"{_number(main.consumers.foreign, 'consumer')} of another library, and the broker "
            "itself holds its failed messages back",
            "What is nacked with requeueing comes back at once and counts for no attempt; what is "
            "rejected without requeueing goes to the failed queue without a reason.",
            "Have it reject failed messages with requeueing (basic.reject), or use redrive.",
        )
    least = main.least("delayed-retry-min")
    # A policy wins over the argument. Source: RabbitMQ 4.3.5, rabbit_quorum_queue,
    # `get_delayed_retry_config`.
    kind = main.policy.get("delayed-retry-type", main.argument("x-delayed-retry-type"))
    remedy = (
        "Upgrade all nodes to RabbitMQ 4.3, remove the policy, or go back to a retry queue: "
        "retry_via: dead-letter in the topology file, then redrive topology migrate."
    )
    if not facts.version.holds_failed_messages_back:
        found = f"it is to hold failed messages back, and RabbitMQ {facts.version} does not"
    elif kind != "failed":
        found = f"its delayed-retry-type is {kind}, not failed"
    elif not least:
        found = "its delay is 0: an argument or a policy says so, or neither sets one"
        remedy = (
            "Put retry_via: broker and delay_by: policy into the topology file, then redrive "
            "topology apply; if a policy sets delayed-retry-min to 0, take it out there first."
        )
    elif main.holding_back is False:
        # Source: measured in a cluster of three nodes of RabbitMQ 4.3.6 where one had the older
        # state machine of quorum queues: what is rejected comes back at once, whichever feature
        # flags are enabled, and is held back a few seconds after that node was started anew.
        found = (
            "the broker takes its arguments and holds nothing back: a node that it has a copy on "
            "runs a RabbitMQ before 4.3"
        )
    else:
        return
    yield Finding(
        "not-held-back",
        question.queue,
        found,
        "What fails comes back at once, and uses its retries up within a moment.",
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
            "What is rejected or expires in it is dropped by a classic queue, and stays stuck in a "
            "quorum queue.",
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
        "this was watched; AMQP reports none of them",
        (
            f"RabbitMQ {facts.version} may stop dead-lettering for good after a fault: they stay "
            "until the queue's leader moves or its node restarts. None is lost."
            if known
            else "The queue that they go to is missing, full or down; or the broker has stopped. "
            "They stay until it goes on. None is lost."
        ),
        remedies.release(facts, queue),
    )


def _missing_target(facts: Facts, exchange: str, key: object) -> str:
    """What a dead letter would look for and not find, in words; empty where it gets somewhere, or
    that can't be seen."""
    if not exchange:
        gone = isinstance(key, str) and facts.complete and key not in facts.queues
        return f"the queue {key!r}, which is not there" if gone else ""
    if exchange not in facts.exchanges:
        return f"the exchange {exchange!r}, which is not there"
    kind = facts.exchanges[exchange]
    if facts.bindings is None or exchange in facts.alternates:
        return ""
    if not isinstance(key, str) or kind not in ("topic", "direct"):
        is_bound = any(binding.source == exchange for binding in facts.bindings)
        unbound = f"the exchange {exchange!r}, to which no queue is bound"
        return "" if is_bound or kind not in _BOUND else unbound
    # What goes on to another exchange is left alone.
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
        or holds_back(facts, queue.name)  # it dead-letters no retry
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
        f"this broker ({facts.version}) takes a message out of it after {returns} returns"
        + (
            ", its default: the queue has no delivery limit of its own"
            if not limits
            else f" (delivery limits set: {', '.join(map(str, sorted(limits)))})"
        ),
        "Looking at the failed messages deletes them: each look returns them once."
        if failed
        else f"A message whose worker dies {returns + 1} times is dropped, or stuck in "
        f"{question.places[1]}, and never set aside.",
        remedies.raise_delivery_limit(facts, queue),
    )


def _message_ttl(facts: Facts, question: Question, queue: QueueFacts) -> Iterator[Finding]:
    main, _, failed = question.places
    wanted = {
        main: "A message that waits in it for so long goes to the retry queue unhandled, which "
        "counts for no attempt; or is dropped.",
        failed: "Failed messages are deleted when they are so old.",
    }
    for name, what in (
        ("message-ttl", wanted.get(queue.name)),
        ("expires", "The broker deletes the queue when nobody has used it so long."),
    ):
        value = queue.setting(name)
        if what is not None and value is not None:
            # Of a retry queue the TTL is its purpose; that it expires is not.
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
            "A message that has no expiration of its own waits in it for ever. A policy that was "
            "to set it does not match its name, or gave way to one of a higher priority.",
            remedy,
        )
    if queue.setting("dead-letter-exchange") is None:
        yield Finding(
            "dead-letter-target",
            retry,
            "neither an argument nor a policy sets its dead-letter-exchange",
            "A message whose delay has passed is deleted.",
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
        "oldest message makes room for the newest",
        "Once it is full, each new failure deletes the oldest failed message, for good."
        if failed
        else "Once it is full, messages that nobody has handled are dropped or dead-lettered.",
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
        f"{facts.version} takes none over {_mebibytes(largest)} unless its configuration says "
        "otherwise, which can't be seen",
        "The broker refuses to take them again: they can't be set aside, requeued, or delayed on "
        "the ladder.",
        remedies.take_larger_messages(2 * queue.message_size),
    )


def _one_member(facts: Facts, queue: QueueFacts) -> Iterator[Finding]:
    if queue.is_quorum and queue.members == 1 and facts.nodes is not None and facts.nodes > 1:
        yield Finding(
            "one-member",
            queue.name,
            f"a quorum queue with one copy, in a cluster of {facts.nodes} nodes",
            "While its node is down nothing can be published to or taken from it; if the node is "
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
        f"{_origin(queue, 'ha-mode')} is to mirror it, and RabbitMQ {facts.version} does not "
        "mirror",
        "It is on one node: while that is down nothing can be published to or taken from it.",
        f"Change it to a quorum queue while it is in use: {remedies.migrate()}",
    )


def _alarms(facts: Facts) -> Iterator[Finding]:
    for node, short_of in sorted(facts.alarms.items()):
        yield Finding(
            "alarm",
            node,
            f"it is short of {short_of}",
            "The broker blocks every publisher of the cluster until that has passed: publishing, "
            "requeueing and giving up wait.",
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
            + (f", which delays what goes to {', '.join(sorted(mains))}" if feeds else ""),
            f"The plugin can't run on RabbitMQ {facts.version}: the exchange can't be used, and "
            "what it had delayed is lost.",
            "Publish with redrive's delay= (or deliver_at=), which needs no plugin, and delete the "
            "exchange once nothing waits in it.",
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
            "On 4.3.0 to 4.3.5 it stops for ever once each of its consumers ran into the consumer "
            "timeout; it looks healthy then.",
            "Upgrade the broker to 4.3.6 or newer. Until then keep the timeout out of reach: "
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
        f"its subscribers ask for different tags: {_listed(asked)}",
        "A queue has one filter, that of the subscriber that declared it last. Each message that "
        "passes it goes to any of them, and what only another asks for comes to none.",
        "Stop the subscribers that ask for what is out of date; those that are to get different "
        "messages need a queue each.",
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
        return  # a failed attempt does not have to be republished there
    foreign = main.consumers.count if main.consumers.foreign is None else main.consumers.foreign
    if foreign:
        unsure = "" if main.consumers.foreign is not None else ", which may be redrive's or not"
        yield Finding(
            "republishing-consumer",
            question.queue,
            f"it has no dead-letter exchange, so its {_number(foreign, 'consumer')}{unsure} can "
            "only republish what fails, and this broker "
            f"({facts.version}) ignores the x-death of what a client publishes",
            "A consumer that counts x-death sees 1 for ever: a message that always fails is "
            "retried without end.",
            "Consume it with redrive, which counts in a header of its own: Subscriber(…, "
            "retry_via='republish', queue_type='classic'). "
            "One such worker beside the others ends each message after its own max_retries + 1 "
            "attempts.",
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
            + (
                ""
                if known
                else " unless the broker's configuration says otherwise, which can't be seen"
            ),
            "The broker takes the message from a worker that still handles it, and gives it to "
            "another: each attempt is done for nothing.",
            remedies.raise_consumer_timeout(facts, queue, 2 * question.handler_time),
        )


def _classic_in_cluster(facts: Facts, queues: Iterable[QueueFacts]) -> Iterator[Finding]:
    classic = [queue for queue in queues if queue.arguments is not None and not queue.is_quorum]
    if facts.nodes is not None and facts.nodes > 1 and classic:
        yield Finding(
            "classic-in-cluster",
            classic[0].name,
            f"classic, in a cluster of {facts.nodes} nodes: "
            f"{_listed(queue.name for queue in classic)}",
            "Each lives on one node: while that is down nothing can be published to or taken from "
            "it, and what it was moving may be lost.",
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
            f"{binding.source} still gives it what matches {binding.routing_key!r}, which the "
            "subscription does not ask for",
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
