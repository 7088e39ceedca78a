"""Render a topology for people and programs: JSON values, RabbitMQ's import format, a Mermaid
diagram, a tree."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from redrive.duration_text import format_duration
from redrive.topology.delay_policy import Policy
from redrive.topology.delay_route import delivery_pattern
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology


def json_of(what: Exchange | Queue | Binding | Policy) -> dict[str, object]:
    """Return an object as JSON values."""
    match what:
        case Exchange(name, kind, arguments):
            return {"kind": "exchange", "name": name, "type": kind, "arguments": dict(arguments)}
        case Queue(name, arguments):
            return {"kind": "queue", "name": name, "type": what.type, "arguments": dict(arguments)}
        case Binding(source, destination, routing_key, to, arguments):
            place = {"queue": destination} if to == "queue" else {"to_exchange": destination}
            return {
                "kind": "binding",
                "exchange": source,
                **place,
                "routing_key": routing_key,
                "arguments": dict(arguments),
            }
        case Policy(name):
            return {"kind": "policy", "name": name, **settings_of(what)}
        case _:
            assert_never(what)


def settings_of(policy: Policy) -> dict[str, object]:
    """Return a policy without its name, in RabbitMQ's own format."""
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }


def definitions_of(
    topology: Topology, virtual_host: str | None = None
) -> dict[str, list[dict[str, object]]]:
    """Return the topology as definitions that RabbitMQ can import.

    Source: https://www.rabbitmq.com/docs/definitions; imported by RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    place = {} if virtual_host is None else {"vhost": virtual_host}
    return {
        "exchanges": [
            {
                **place,
                "name": exchange.name,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": dict(exchange.arguments),
            }
            for exchange in (*topology.exchanges, *topology.pointers)
        ],
        "queues": [
            {
                **place,
                "name": queue.name,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in topology.queues
        ],
        "bindings": [
            {
                **place,
                "source": binding.source,
                "destination": binding.destination,
                "destination_type": binding.to,
                "routing_key": binding.routing_key,
                "arguments": dict(binding.arguments),
            }
            for binding in topology.bindings
        ],
        "policies": [
            {**place, "name": delay.name, **settings_of(delay.over())}
            for delay in topology.delay_policies
        ],
    }


def mermaid_of(topology: Topology) -> str:
    """Return a diagram of exchanges, queues, bindings and the paths of dead letters, which GitHub,
    GitLab and most editors can draw."""
    lines = ["flowchart LR"]
    exchanges = {exchange.name: f"e{number}" for number, exchange in enumerate(topology.exchanges)}
    others = dict.fromkeys(
        binding.source for binding in topology.bindings if binding.source not in exchanges
    )
    outside = {name: f"x{number}" for number, name in enumerate(others)}
    queues = {queue.name: f"q{number}" for number, queue in enumerate(topology.queues)}
    lines += [
        f"  {exchanges[exchange.name]}{{{{{_label(exchange.name)}}}}}"
        for exchange in topology.exchanges
    ]
    lines += [f"  {queues[queue.name]}[{_label(queue.name)}]" for queue in topology.queues]
    lines += [f"  {node}{{{{{_label(name)}}}}}" for name, node in outside.items()]
    sources = {**outside, **exchanges}
    for (source, destination, to), keys in _by_ends(topology.bindings).items():
        node = queues[destination] if to == "queue" else sources[destination]
        lines.append(f"  {sources[source]} -->|{_label(', '.join(keys))}| {node}")
    for dead in topology.queues:
        lines += [
            f"  {queues[dead.name]} -.->|{_label(why)}| {node}"
            for node, why in _dead_letters(dead, exchanges, queues)
        ]
    return "\n".join(lines)


def tree_of(subscriptions: Iterable[Subscription]) -> list[str]:
    """Return a tree of exchanges, the queues that subscribe to them, and where their failures go,
    as lines of text."""
    lines: list[str] = []
    subscriptions = list(subscriptions)
    for family in dict.fromkeys(subscription.exchanges for subscription in subscriptions):
        lines.append(f"{family.main}  (retries: {family.retry}, failures: {family.failed})")
        members = [
            subscription for subscription in subscriptions if subscription.exchanges == family
        ]
        for position, subscription in enumerate(members):
            last = position == len(members) - 1
            lines.append(
                f"{'└─' if last else '├─'} {subscription.queue}  {subscription.queue_type}, "
                f"{subscription.retry_via}"
            )
            lines += [f"{'  ' if last else '│ '} {line}" for line in _branches(subscription)]
    return lines


def _branches(subscription: Subscription) -> list[str]:
    retry = subscription.retry
    branches = [
        f"takes {', '.join(subscription.routing_keys) or 'only requeued messages'}",
        (f"{_where_retries_wait(subscription)}, at most {retry.max_retries} times"),
        *(
            f"{queue}  failed messages"
            for queue in (subscription.failed_queue, *subscription.own_failed_queues)
        ),
    ]
    return [f"├─ {branch}" for branch in branches[:-1]] + [f"└─ {branches[-1]}"]


def _where_retries_wait(subscription: Subscription) -> str:
    if subscription.retry_via != "broker":
        return f"{subscription.retry_queue}  after {format_duration(subscription.retry.delay)}"
    least, most = subscription.held_back_for
    growing = "" if least == most else f" to {format_duration(most)}"
    by_policy = ", by policy" if subscription.delay_by == "policy" else ""
    return (
        f"{subscription.queue} itself holds failed messages back for "
        f"{format_duration(least)}{growing}{by_policy}"
    )


def _by_ends(bindings: Iterable[Binding]) -> dict[tuple[str, str, str], list[str]]:
    ends: dict[tuple[str, str, str], list[str]] = {}
    for binding in bindings:
        # The bits at the beginning of a delayed message's key mean nothing to people.
        key = binding.routing_key.replace(delivery_pattern("r", ""), "…r.").replace(
            delivery_pattern("p", ""), "…p."
        )
        ends.setdefault((binding.source, binding.destination, binding.to), []).append(key)
    return ends


def _dead_letters(
    queue: Queue, exchanges: dict[str, str], queues: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the node that a queue's dead letters go to, and why they go there."""
    target = queue.arguments.get("x-dead-letter-exchange")
    key = str(queue.arguments.get("x-dead-letter-routing-key", ""))
    ttl = queue.arguments.get("x-message-ttl")
    why = "rejected" if ttl is None else f"after {ttl} ms"
    if target == "" and key in queues:
        yield queues[key], why
    elif isinstance(target, str) and target in exchanges:
        yield exchanges[target], why


def _label(text: str) -> str:
    """Quote a text; characters with a meaning in Mermaid are written as entity codes."""
    return (
        '"'
        + "".join(
            f"#{ord(character)};" if character in '#"&<>;|' else character for character in text
        )
        + '"'
    )
