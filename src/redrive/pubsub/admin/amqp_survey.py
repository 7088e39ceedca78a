"""Collect facts for a diagnosis over AMQP alone: the given queues and the user's permissions."""

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import replace

import pika
from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel

from redrive.errors import ConfigurationError, PermissionDenied, TopologyMismatch
from redrive.pubsub.blocking.declarer import Declarer
from redrive.topology.doctor.facts import Consumers, Facts, QueueFacts
from redrive.topology.doctor.permissions import DEFAULT_EXCHANGE, Right
from redrive.topology.model import Argument, Exchange, Queue

_MOST_ARGUMENTS = 30
_REFUSED = 403


class PublishersBlocked(Exception):
    """Raised when the broker blocks publishing connections because a resource alarm is set."""


def arguments_of(declarer: Declarer, queue: str) -> dict[str, Argument] | None:
    """Return the arguments a queue was declared with, as far as the broker compares them.

    AMQP reports one difference at a time, so each is adopted until the declaration matches. Return
    None where the arguments can't be found out. The queue must exist, otherwise this would create
    it.
    """
    arguments: dict[str, Argument] = {"x-queue-type": "classic"}
    for _ in range(_MOST_ARGUMENTS):
        try:
            declarer.declare(Queue(queue, arguments))
        except TopologyMismatch as mismatch:
            arguments[mismatch.argument] = _value_of(mismatch.found)
        except ConfigurationError:
            return None  # exclusive or not durable, so not one of ours
        else:
            return arguments
    return None


def _value_of(text: str) -> Argument:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


def facts_over_amqp(
    declarer: Declarer, virtual_host: str, exchanges: Iterable[str], queues: Iterable[str]
) -> Facts:
    """Collect what AMQP reports about these queues and exchanges, and about the exchanges that the
    queues dead-letter to."""
    found = {
        facts.name: facts for queue in queues if (facts := _queue(declarer, queue)) is not None
    }
    targets = {str(facts.argument("x-dead-letter-exchange") or "") for facts in found.values()} - {
        ""
    }
    there = {name: "" for name in {*exchanges, *targets} if declarer.may_exist(Exchange(name))}
    return Facts(declarer.version, virtual_host, there, found)


def _queue(declarer: Declarer, name: str) -> QueueFacts | None:
    try:
        depth = declarer.depth(name)
    except PermissionDenied:
        return QueueFacts(name, None)
    if depth is None:
        return None
    try:
        arguments = arguments_of(declarer, name)
    except PermissionDenied:
        arguments = None
    return QueueFacts(name, arguments, consumers=Consumers(depth.consumers))


def merged(over_amqp: Facts, over_management: Facts) -> Facts:
    """Combine both surveys: use the management API's facts, but AMQP's consumer count where it is
    higher, because the API is a few seconds late."""
    queues = dict(over_management.queues)
    for name, facts in over_amqp.queues.items():
        listed = queues.get(name)
        if listed is None:
            queues[name] = facts
        elif facts.consumers.count > listed.consumers.count:
            queues[name] = replace(listed, consumers=facts.consumers)
    return replace(over_management, queues=queues)


def missing_rights(connection: pika.BlockingConnection, rights: Iterable[Right]) -> list[Right]:
    """Return the rights that this connection's user lacks.

    Each right is tested with an operation that changes nothing and that the broker checks the right
    for first. Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    try:
        return _missing_rights(connection, list(dict.fromkeys(rights)))
    except exceptions.ConnectionBlockedTimeout as error:
        raise PublishersBlocked("the broker is short of memory or disk space") from error


def _missing_rights(connection: pika.BlockingConnection, wanted: list[Right]) -> list[Right]:
    queues = [right for right in wanted if (right.verb, right.kind) == ("write", "queue")]
    refused = {right: _is_refused(connection, right, "") for right in queues}
    writable = next((right.name for right in queues if not refused[right]), "")
    return [
        right
        for right in wanted
        if (refused[right] if right in refused else _is_refused(connection, right, writable))
    ]


def _is_refused(connection: pika.BlockingConnection, right: Right, writable: str) -> bool:
    channel = connection.channel()
    try:
        _try(channel, right, writable)
    except exceptions.ChannelClosedByBroker as error:
        return error.reply_code == _REFUSED and f"{right.kind} '{right.name}'" in error.reply_text
    finally:
        with contextlib.suppress(exceptions.AMQPChannelError):
            channel.close()
    return False


def _try(channel: BlockingChannel, right: Right, writable: str) -> None:
    """Perform an operation that needs the right. Reading from an exchange can only be tested
    together with writing to a queue."""
    nothing = uuid.uuid4().hex
    match right.verb, right.kind:
        case "configure", "exchange":
            channel.exchange_declare(
                right.name, "topic", durable=True, arguments={"alternate-exchange": 0}
            )
        case "configure", "queue":
            channel.queue_declare(right.name, durable=True, arguments={"x-message-ttl": "none"})
        case "write", "exchange":
            # In a transaction that is rolled back: the right is checked at once, and the message
            # never reaches a queue.
            channel.tx_select()
            channel.basic_publish(
                "" if right.name == DEFAULT_EXCHANGE else right.name, right.key or nothing, b""
            )
            channel.tx_rollback()
        case "read", "queue":
            channel.basic_consume(right.name, lambda *_: None, arguments={"x-priority": "none"})
        case "write", "queue":
            channel.queue_unbind(right.name, "amq.topic", nothing)
        case "read", "exchange":
            # No binding has such an argument, so none is removed.
            channel.queue_unbind(
                writable, right.name, right.key or nothing, arguments={"redrive-asks": nothing}
            )
