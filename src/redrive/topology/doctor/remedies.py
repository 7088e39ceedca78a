"""Commands that fix the problems found by a diagnosis."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from redrive.topology import names
from redrive.topology.broker_version import DEAD_LETTERING_MENDED
from redrive.topology.doctor.facts import Facts, QueueFacts
from redrive.topology.model import DELIVERY_LIMIT, Binding
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_MILLISECOND = timedelta(milliseconds=1)


def declare(
    facts: Facts,
    queue: str,
    exchanges: ExchangeFamily,
    routing_keys: Sequence[str] | None = None,
    *,
    prune: bool = False,
) -> str:
    """Return the command that declares the missing parts of a subscription with the settings of its
    existing parts: the bound patterns, the delay, the queue type."""
    if routing_keys is None:
        routing_keys = sorted(
            binding.routing_key
            for binding in facts.bindings or ()
            if binding.source == exchanges.main
            and binding.destination == queue
            and binding.routing_key != queue
        ) or ["PATTERN"]
    words = [
        "redrive",
        "declare",
        "--queue",
        queue,
        *(word for key in routing_keys for word in ("--routing-key", key)),
    ]
    usual = ExchangeFamily()
    for option, value, default in (
        ("--exchange", exchanges.main, usual.main),
        ("--retry-suffix", exchanges.retry_suffix, usual.retry_suffix),
        ("--failed-suffix", exchanges.failed_suffix, usual.failed_suffix),
    ):
        words += [] if value == default else [option, value]
    retry = facts.queues.get(names.retry_queue(queue))
    delay = retry.argument("x-message-ttl") if retry else None
    if isinstance(delay, int):
        words += ["--retry-delay", f"{delay}ms"]
    if retry and retry.argument("x-dead-letter-exchange") == exchanges.main:
        words += ["--retry-via", "republish"]
    main = facts.queues.get(queue)
    held_back = main.argument("x-delayed-retry-min") if main else None
    if isinstance(held_back, int):
        words += ["--retry-delay", f"{held_back}ms", "--retry-via", "broker"]
    types = {
        str(facts.queues[name].argument("x-queue-type"))
        for name in (queue, names.retry_queue(queue))
        if name in facts.queues
    }
    if types == {"classic"}:
        words += ["--queue-type", "classic"]
    return shlex.join([*words, *(["--prune"] if prune else [])])


def release(facts: Facts, queue: QueueFacts) -> str:
    """Return how to make a queue continue dead-lettering."""
    known = facts.version.may_stop_dead_lettering
    first = "" if known else "Check the queue that it dead-letters to; if that accepts messages: "
    upgrade = (
        f" Upgrade the broker to {' or '.join(map(str, DEAD_LETTERING_MENDED))} or newer, so that "
        "it does not happen again."
        if known
        else ""
    )
    if facts.nodes == 1:
        restart = "rabbitmqctl stop_app && rabbitmqctl start_app"
        return f"{first}Restart its application: {restart}.{upgrade}"
    named = erlang_name(facts.virtual_host, queue.name)
    move = (
        f"{{ok, Q}} = rabbit_amqqueue:lookup({named}), {{_, Leader}} = amqqueue:get_pid(Q), "
        "[Other | _] = maps:get(nodes, amqqueue:get_type_state(Q)) -- [Leader], "
        "rabbit_quorum_queue:transfer_leadership(Q, Other)."
    )
    moved = shlex.join(["rabbitmqctl", "eval", move])
    return f"{first}Move its leader, on any node: {moved}.{upgrade}"


def erlang_name(virtual_host: str, queue: str) -> str:
    """Return a queue's name for `rabbitmqctl eval`, whatever characters it contains."""
    host, name = (
        f"<<{','.join(str(byte) for byte in text.encode())}>>" for text in (virtual_host, queue)
    )
    return f"rabbit_misc:r({host}, queue, {name})"


def narrow(facts: Facts, binding: Binding) -> str:
    """Return how to replace a queue's binding by a narrower one."""
    # The API identifies a binding without arguments by its routing key. Source: its documentation,
    # /api/bindings/vhost/e/…/q/…/props.
    parts = (
        facts.virtual_host,
        "e",
        binding.source,
        "q",
        binding.destination,
        binding.routing_key or "~",
    )
    address = f"http://HOST:15672/api/bindings/{'/'.join(map(_quoted, parts))}"
    return (
        "Bind it with the patterns that it needs, and then remove this binding: "
        f"curl -u USER -X DELETE {shlex.quote(address)}. Or let redrive's own topology retry the "
        "failing queue: "
        "its retries bypass all exchanges."
    )


def raise_delivery_limit(facts: Facts, queue: QueueFacts) -> str:
    """Return how to make a queue keep messages that are returned to it."""
    if isinstance(queue.argument("x-delivery-limit"), int):
        return (
            "Its own argument can't be changed, and no policy raises it. "
            f"{_make_anew(facts, queue)}"
        )
    return set_policy(facts.virtual_host, queue, "redrive-keep", {"delivery-limit": DELIVERY_LIMIT})


def raise_consumer_timeout(facts: Facts, queue: QueueFacts, time: timedelta) -> str:
    """Return how to let deliveries stay unsettled for longer."""
    milliseconds = time // _MILLISECOND
    if facts.version.has_a_consumer_timeout_for_each_queue and queue.is_quorum:
        return set_policy(
            facts.virtual_host, queue, "redrive-timeout", {"consumer-timeout": milliseconds}
        )
    return f"{_configure('consumer_timeout', milliseconds)} Or make the handler faster."


def take_larger_messages(size: int) -> str:
    """Return how to make a broker accept messages of this many bytes."""
    return (
        f"{_configure('max_message_size', size)} Or store such bodies elsewhere, and send their "
        "address."
    )


def _configure(name: str, value: int) -> str:
    return f"On each node: echo '{name} = {value}' >> /etc/rabbitmq/rabbitmq.conf, and restart it."


def take_out(facts: Facts, queue: QueueFacts, setting: str) -> str:
    """Return how to remove a setting from a queue."""
    if queue.argument(f"x-{setting}") is not None:
        return f"Its own argument can't be changed. {_make_anew(facts, queue)}"
    found = (
        ("clear_policy", queue.policy_name),
        ("clear_operator_policy", queue.operator_policy_name),
    )
    clear = [
        shlex.join(["rabbitmqctl", command, "-p", facts.virtual_host, name])
        for command, name in found
        if name is not None
    ]
    return (
        f"Remove {setting} from the policy, exclude this queue from its pattern, or clear "
        "it: "
        f"{' and '.join(clear)}"
    )


def refuse_what_is_too_much(facts: Facts, queue: QueueFacts) -> str:
    """Return how to make a full queue refuse new messages instead of deleting old ones."""
    if queue.argument("x-overflow") is not None:
        return f"Its own argument can't be changed. {_make_anew(facts, queue)}"
    return set_policy(facts.virtual_host, queue, "redrive-refuse", {"overflow": "reject-publish"})


def give_a_dead_letter_queue(facts: Facts, queue: QueueFacts, exchange: str, key: object) -> str:
    """Return how to send the dead letters of a queue that redrive did not create to a queue, in the
    way that its owner has chosen."""
    place = key if not exchange and isinstance(key, str) else f"{queue.name}.dlq"
    kind = "quorum" if queue.is_quorum else "classic"
    declared = {"durable": True, "arguments": {"x-queue-type": kind}}
    steps = [] if place in facts.queues else [_put(facts, ("queues", place), declared)]
    if queue.argument("x-dead-letter-exchange") is None and exchange:
        to_queue = {"dead-letter-exchange": "", "dead-letter-routing-key": place}
        return " && ".join(
            [*steps, set_policy(facts.virtual_host, queue, "dead-letters", to_queue)]
        )
    if exchange and exchange not in facts.exchanges:
        steps.append(_put(facts, ("exchanges", exchange), {"type": "topic", "durable": True}))
    if exchange:
        to = ("bindings", "e", exchange, "q", place)
        steps += [
            _put(facts, to, {"routing_key": one}, method="POST")
            for one in _keys_of_dead_letters(facts, queue, exchange, key)
        ]
    return " && ".join(steps)


def _keys_of_dead_letters(facts: Facts, queue: QueueFacts, exchange: str, key: object) -> list[str]:
    """Return the keys that bind a queue to an exchange for all dead letters of another queue: a
    direct exchange has no pattern for the keys that messages keep."""
    if isinstance(key, str):
        return [key]
    if facts.exchanges.get(exchange) != "direct":
        return ["#"]
    bound = {one.routing_key for one in facts.bindings or () if one.destination == queue.name}
    return sorted(bound | {queue.name})


def _put(
    facts: Facts, place: Sequence[str], body: Mapping[str, object], method: str = "PUT"
) -> str:
    """Return a request to the management API that creates an object."""
    path = "/".join([place[0], *map(_quoted, (facts.virtual_host, *place[1:]))])
    address = shlex.quote(f"http://HOST:15672/api/{path}")
    return (
        f"curl -u USER -X {method} -H content-type:application/json "
        f"-d {shlex.quote(json.dumps(dict(body)))} {address}"
    )


def make_a_retry_queue(facts: Facts, queue: QueueFacts, main: str) -> str:
    """Return how to make a queue return its messages to `main` after a delay, by adding whichever
    of these settings is missing."""
    delay = RetryPolicy().delay // _MILLISECOND
    missing: dict[str, object] = {} if queue.delay is not None else {"message-ttl": delay}
    if queue.setting("dead-letter-exchange") is None:
        missing |= {"dead-letter-exchange": "", "dead-letter-routing-key": main}
    return set_policy(facts.virtual_host, queue, "redrive-retry", missing)


def grow(facts: Facts, queue: QueueFacts) -> str:
    """Return how to give a quorum queue copies on other nodes."""
    command = shlex.join(
        [
            "--vhost-pattern",
            f"^{re.escape(facts.virtual_host)}$",
            "--queue-pattern",
            f"^{re.escape(queue.name)}$",
        ]
    )
    return f"For each other node: rabbitmq-queues grow NODE all {command}"


def migrate() -> str:
    """Return how to change a queue that is in use."""
    return "redrive topology init, then redrive topology migrate"


def set_policy(
    virtual_host: str, queue: QueueFacts, name: str, definition: Mapping[str, object]
) -> str:
    """Return the command that sets something for one queue with a policy."""
    values: Mapping[str, object] = (
        definition if queue.policy_name is None else {**queue.policy, **definition}
    )
    words = [
        "rabbitmqctl",
        "set_policy",
        "-p",
        virtual_host,
        name,
        f"^{re.escape(queue.name)}$",
        json.dumps(dict(values)),
    ]
    command = shlex.join([*words, "--apply-to", "queues"])
    if queue.policy_name is None:
        return command
    return (
        f"{command} --priority 100 (only one policy applies: this one takes over the "
        f"settings of policy {queue.policy_name!r})"
    )


def declare_as_quorum(facts: Facts, queues: Iterable[QueueFacts]) -> str:
    """Return how to recreate queues as quorum queues."""
    return (
        f"Once they are empty: {'; '.join(_delete(facts, queue) for queue in queues)}; and "
        "declare them with --queue-type quorum."
    )


def _make_anew(facts: Facts, queue: QueueFacts) -> str:
    return f"Create the queue again once it is empty: {_delete(facts, queue)}; redrive declare …"


def _delete(facts: Facts, queue: QueueFacts) -> str:
    """Return the command that deletes a queue. Source: RabbitMQ 4.3.6 refuses --if-empty for quorum
    queues."""
    command = shlex.join(["rabbitmqctl", "delete_queue", "-p", facts.virtual_host, queue.name])
    return f"{command} (with all its messages)" if queue.is_quorum else f"{command} --if-empty"


def _quoted(text: str) -> str:
    """Quote a segment of a URL's path."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode())
