"""Make up virtual hosts in which messages fail, drive messages through them, and know the truth.

A world is a service or a few, each with a queue, and a way in which its messages fail: it rejects
them, has them wait and sets them aside itself, or its framework publishes them elsewhere. Names,
exchanges, keys, policies and what services share are drawn by a seed. Since the world moves each
message itself, it knows which queue each has failed in.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from waiting import wait_until

_NAMES = ("orders", "billing", "ship.email", "stock_sync", "audit-log")
_SHARED = ("graveyard", "parking-lot", "dead-letters")
_DELAY = 120
"""Milliseconds that a message waits for its next attempt."""
_FEEDS = ("default", "direct", "topic", "fanout", "headers", "through another")
_DEAD = ("default", "direct", "topic", "fanout", "headers", "through another", "alternate")
_FAILS = ("rejects", "delays", "delays at the broker", "framework", "framework", "copies")


@dataclass
class Service:
    """A queue, how messages get to it, and how they fail.

    Args:
        queue: its queue.
        exchange: what it is fed by; empty for the default exchange.
        key: with which key.
        fails: one of the ways above.
        place: where what has failed lies.
        lot: the exchange and key by which the service itself publishes what has failed.
        wait: the exchange and key by which it has a message wait; None where nothing waits.
    """

    queue: str
    exchange: str = ""
    key: str = ""
    fails: str = "rejects"
    place: str = ""
    lot: tuple[str, str] = ("", "")
    wait: tuple[str, str | None] | None = None


@dataclass
class World:
    """A virtual host that a seed has made up.

    Args:
        seed: says all of it.
        channel: a channel in an empty virtual host.
        put_policy: sets a policy on the queue of this name.
    """

    seed: int
    channel: BlockingChannel
    put_policy: Callable[[str, dict[str, object]], None]
    services: list[Service] = field(default_factory=list)
    policies: dict[str, dict[str, object]] = field(default_factory=dict)
    truth: dict[str, str] = field(default_factory=dict)
    """The queue that each message has failed in."""
    places: dict[str, str] = field(default_factory=dict)
    """The dead-letter queue that each message lies in."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._queues: dict[str, dict[str, object]] = {}
        self._bindings: list[Callable[[], object]] = []

    @property
    def queues(self) -> list[str]:
        """All queues that it has."""
        return sorted(self._queues)

    def origins_of(self, place: str) -> set[str]:
        """The queues whose failed messages lie in a queue."""
        return {service.queue for service in self.services if service.place == place}

    def build(self) -> None:
        """Make up services, and declare all that they need."""
        count = self._random.choice((1, 2, 2, 3))
        shared_place = self._random.choice(_SHARED) if self._random.random() < 0.3 else None
        for name in self._random.sample(_NAMES, count):
            service = Service(name, fails=self._random.choice(_FAILS))
            service.exchange, service.key = self._fed(name)
            service.place = shared_place or self._place_of(name)
            self.services.append(service)
        for service in self.services:
            self._fail_somewhere(service)
        # What is set by a policy is there before the queue, which has it from its first moment.
        for queue, definition in self.policies.items():
            self.put_policy(queue, definition)
        for queue, arguments in self._queues.items():
            self.channel.queue_declare(queue, durable=True, arguments=arguments)
        for bind in self._bindings:
            bind()

    def drive(self, each: int = 2) -> None:
        """Have each service fail some messages; some of them have failed elsewhere before."""
        for number in range(each):
            for service in self.services:
                id_ = f"{service.queue}-{number}"
                others = [one for one in self.services if one.fails == "rejects" and one != service]
                if others and self._random.random() < 0.4:
                    properties = self._earlier_life(self._random.choice(others), id_)
                else:
                    properties = _new(id_)
                self._fail(service, id_, properties)
                self.truth[id_], self.places[id_] = service.queue, service.place

    def drained(self) -> Iterator[tuple[str, str]]:
        """All messages, each with the queue that it is in; none is there afterwards."""
        for queue in self.queues:
            while True:
                method, properties, _ = self.channel.basic_get(queue, auto_ack=True)
                if method is None or properties is None:
                    break
                yield queue, str(properties.message_id)

    # How a world is made up.

    def _fed(self, queue: str) -> tuple[str, str]:
        kind = self._random.choice(_FEEDS)
        key = self._random.choice((queue, f"{queue}.created"))
        if kind == "default":
            self._queue(queue)
            return "", queue
        exchange = self._random.choice(("in", f"in.{queue}")) + f".{kind}"
        self._queue(queue)
        if kind in ("fanout", "headers", "through another"):
            exchange = f"in.{queue}.{kind}"
        self._bind(exchange, kind, queue, key)
        return exchange, key

    def _place_of(self, name: str) -> str:
        suffix = self._random.choice((".dlq", ".parking-lot", "_error", "-dead-letter", ".failed"))
        return name + suffix if self._random.random() < 0.75 else f"lost.{name[:3]}"

    def _fail_somewhere(self, service: Service) -> None:
        self._queue(service.place)
        if service.fails == "rejects":
            self._dead_letters_to(service, service.place)
            return
        service.lot = self._lot(service)
        if service.fails == "delays":
            is_shared = (
                service.exchange in ("in.direct", "in.topic") and self._random.random() < 0.5
            )
            wait = f"{service.exchange}.delay" if is_shared else f"{service.queue}.wait"
            keyed = not is_shared and self._random.random() < 0.5
            self._settings(
                wait,
                {
                    "message-ttl": _DELAY,
                    "dead-letter-exchange": service.exchange,
                    **({"dead-letter-routing-key": service.key} if keyed else {}),
                },
            )
            if keyed and self._random.random() < 0.5:
                service.wait = ("", wait)
            else:
                self._bind(f"{wait}.x", "fanout", wait, "")
                service.wait = (f"{wait}.x", service.key)
        if service.fails == "delays at the broker":
            wait = f"{service.queue}.wait"
            key = self._dead_letters_to(service, wait)
            keyed = key not in (None, service.key) or self._random.random() < 0.5
            self._settings(
                wait,
                {
                    "message-ttl": _DELAY,
                    "dead-letter-exchange": service.exchange,
                    **({"dead-letter-routing-key": service.key} if keyed else {}),
                },
            )

    def _lot(self, service: Service) -> tuple[str, str]:
        if self._random.random() < 0.7:
            return "", service.place
        exchange = f"lot.{service.place}"
        self._bind(exchange, "direct", service.place, service.queue)
        return exchange, service.queue

    def _dead_letters_to(self, service: Service, target: str) -> str | None:
        """Return the key that its dead letters get; None where they keep their own."""
        kind = self._random.choice(_DEAD)
        exchange = "" if kind == "default" else f"dead.{target}.{kind}"
        key = self._random.choice((None, service.queue, target))
        settings: dict[str, object] = {"dead-letter-exchange": exchange}
        if kind == "default":
            key = target
        if key is not None:
            settings["dead-letter-routing-key"] = key
        if kind != "default":
            self._bind(exchange, kind, target, key or service.key)
        self._settings(service.queue, settings)
        return key

    def _settings(self, queue: str, settings: dict[str, object]) -> None:
        """By arguments, by a policy, or some by each."""
        self._queue(queue)
        how = self._random.choice(("arguments", "arguments", "policy"))
        if how == "policy":
            self.policies.setdefault(queue, {}).update(settings)
        else:
            self._queues[queue].update({f"x-{name}": value for name, value in settings.items()})

    def _queue(self, name: str) -> None:
        self._queues.setdefault(name, {"x-queue-type": self._random.choice(("classic", "quorum"))})

    def _bind(self, exchange: str, kind: str, queue: str, key: str) -> None:
        channel, calls = self.channel, self._bindings
        if kind == "through another":
            self._bind(exchange, "topic", queue, "nothing.comes.so")
            inner = f"{exchange}.inner"
            self._bind(inner, "fanout", queue, "")
            calls.append(lambda: channel.exchange_bind(inner, exchange, "#"))
            return
        if kind == "alternate":
            other = f"{exchange}.other"
            self._bind(other, "fanout", queue, "")
            self._exchange(exchange, "direct", {"alternate-exchange": other})
            return
        arguments = {"x-match": "all"} if kind == "headers" else None
        self._exchange(exchange, kind, None)
        calls.append(lambda: channel.queue_bind(queue, exchange, key, arguments))

    def _exchange(self, name: str, kind: str, arguments: dict[str, object] | None) -> None:
        self.channel.exchange_declare(name, kind, durable=True, arguments=arguments)

    # How a message fails.

    def _earlier_life(self, service: Service, id_: str) -> pika.BasicProperties:
        """The properties of a message that has failed in another service's queue before, and was
        moved by somebody who left its headers as they were."""
        self._fail(service, id_, _new(id_))
        _, properties = self._got(service.place, id_)
        return properties

    def _fail(self, service: Service, id_: str, properties: pika.BasicProperties) -> None:
        self.channel.basic_publish(service.exchange, service.key, id_.encode(), properties)
        tag, properties = self._got(service.queue, id_, ack=False)
        match service.fails:
            case "rejects":
                self.channel.basic_nack(tag, requeue=False)
            case "delays":
                assert service.wait is not None
                exchange, key = service.wait
                self.channel.basic_publish(exchange, key or "", id_.encode(), properties)
                self.channel.basic_ack(tag)
                tag, properties = self._got(service.queue, id_, ack=False)
                self._set_aside(service, id_, properties, tag)
            case "delays at the broker":
                self.channel.basic_nack(tag, requeue=False)
                tag, properties = self._got(service.queue, id_, ack=False)
                self._set_aside(service, id_, properties, tag)
            case "framework":
                headers = {**(properties.headers or {}), **self._words(service)}
                properties.headers = headers
                self._set_aside(service, id_, properties, tag)
            case _:
                self._set_aside(service, id_, properties, tag)
        wait_until(lambda: self._depth(service.place), f"{id_} is in {service.place}")

    def _set_aside(
        self, service: Service, id_: str, properties: pika.BasicProperties, tag: int
    ) -> None:
        self.channel.basic_publish(*service.lot, id_.encode(), properties)
        self.channel.basic_ack(tag)

    def _words(self, service: Service) -> dict[str, Any]:
        """What a framework writes of a failure: one of those that name a queue or an exchange."""
        return self._random.choice(
            (
                {
                    "x-exception-message": "no plan",
                    "x-exception-stacktrace": "java.lang.IllegalStateException: no plan\n",
                    "x-original-exchange": service.exchange,
                    "x-original-routingKey": service.key,
                },
                {
                    "MT-Fault-InputAddress": f"rabbitmq://broker/{service.queue}",
                    "MT-Fault-ExceptionType": "System.InvalidOperationException",
                    "MT-Fault-Message": "no plan",
                    "MT-Reason": "fault",
                },
                {
                    "NServiceBus.FailedQ": f"{service.queue}@machine",
                    "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
                    "NServiceBus.ExceptionInfo.Message": "no plan",
                },
            )
        )

    def _got(self, queue: str, id_: str, *, ack: bool = True) -> tuple[int, pika.BasicProperties]:
        held: list[int] = []
        found: list[tuple[int, pika.BasicProperties]] = []

        def got() -> bool:
            method, properties, _ = self.channel.basic_get(queue)
            if method is None or properties is None:
                return False
            if properties.message_id == id_:
                found.append((method.delivery_tag, properties))
            else:
                held.append(method.delivery_tag)
            return bool(found)

        wait_until(got, f"{id_} is in {queue}")
        for tag in held:
            self.channel.basic_nack(tag, requeue=True)
        tag, properties = found[0]
        if ack:
            self.channel.basic_ack(tag)
        return tag, properties

    def _depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


def _new(id_: str) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, message_id=id_)  # type: ignore[no-untyped-call]
