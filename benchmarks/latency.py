"""How long a message takes from just before it is published until its handler begins, at a rate
that leaves everybody idle most of the time, beside plain pika.

python -m benchmarks.latency [--rate 300] [--seconds 10] [--rounds 5] [--output RESULTS-latency.md]
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks import machine
from benchmarks.measure import Place
from benchmarks.places import declare, past_the_proxy
from redrive import App, AsyncSubscriber, Message, Publisher, Subscriber
from redrive.testing import private_broker

PREFETCH = 200
_WARM_UP = 100
"""Messages that are sent first, and not measured."""
_PATIENCE = 60.0


class Handled:
    """When each message's handler began, by the number that its body is."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.at: dict[int, int] = {}
        self.all = threading.Event()

    def note(self, body: bytes) -> None:
        """A handler has begun."""
        now = time.perf_counter_ns()
        self.at[int(body)] = now
        if len(self.at) == self._count:
            self.all.set()


def _redrive(
    place: Place, handled: Handled, send: Callable[[Callable[[bytes], object]], None]
) -> None:
    subscriber = Subscriber(place.url, place.queue, [place.pattern], prefetch=PREFETCH)
    subscriber.handler(_noting(handled))
    subscriber.start()
    try:
        with Publisher(place.url) as publisher:
            send(lambda body: publisher.publish(body, place.routing_key))
    finally:
        subscriber.stop()
        subscriber.wait()


def _redrive_app(
    place: Place, handled: Handled, send: Callable[[Callable[[bytes], object]], None]
) -> None:
    app = App(place.url, prefetch=PREFETCH)
    app.subscriber(place.queue, place.pattern).handler(_noting(handled))
    with app:
        send(lambda body: app.publisher.publish(body, place.routing_key))


def _redrive_async(
    place: Place, handled: Handled, send: Callable[[Callable[[bytes], object]], None]
) -> None:
    """The handler is on an event loop of its own thread; what publishes is as for the others."""

    async def consume() -> None:
        subscriber = AsyncSubscriber(place.url, place.queue, [place.pattern], prefetch=PREFETCH)

        @subscriber.handler
        async def on_message(message: Message) -> None:
            handled.note(message.body)

        async with subscriber:
            begun.set()
            await asyncio.to_thread(over.wait)

    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(consume()))
    thread.start()
    try:
        assert begun.wait(_PATIENCE), "it does not consume"
        with Publisher(place.url) as publisher:
            send(lambda body: publisher.publish(body, place.routing_key))
    finally:
        over.set()
        thread.join()


def _pika(
    place: Place, handled: Handled, send: Callable[[Callable[[bytes], object]], None]
) -> None:
    """`basic_consume` on one thread and connection, `basic_publish` with confirms on another."""
    consuming = pika.BlockingConnection(pika.URLParameters(place.url))
    channel = consuming.channel()
    channel.basic_qos(prefetch_count=PREFETCH)

    def on_message(
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        handled.note(body)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(place.queue, on_message)
    thread = threading.Thread(target=channel.start_consuming)
    thread.start()
    persistent = pika.BasicProperties(delivery_mode=2)  # type: ignore[no-untyped-call]
    try:
        with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
            publishing = connection.channel()
            publishing.confirm_delivery()
            send(
                lambda body: publishing.basic_publish(
                    "master", place.routing_key, body, persistent, mandatory=True
                )
            )
    finally:
        consuming.add_callback_threadsafe(channel.stop_consuming)
        thread.join()
        consuming.close()


def _noting(handled: Handled) -> Callable[[Message], None]:
    def on_message(message: Message) -> None:
        handled.note(message.body)

    return on_message


CONTENDERS = {
    "pika": _pika,
    "redrive Publisher and Subscriber": _redrive,
    "redrive App": _redrive_app,
    "redrive Publisher and AsyncSubscriber": _redrive_async,
}


def measure(name: str, place: Place, rate: int, seconds: int) -> dict[str, float]:
    """The milliseconds from publish to handler in one run: median, 90 % and 99 %."""
    count = _WARM_UP + rate * seconds
    handled, sent = Handled(count), dict[int, int]()

    def send(publish: Callable[[bytes], object]) -> None:
        due = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            sent[number] = time.perf_counter_ns()
            publish(b"%d" % number)
            due += 1 / rate
        assert handled.all.wait(_PATIENCE), f"{len(handled.at)} of {count} messages were handled"

    CONTENDERS[name](place, handled, send)
    taken = sorted((handled.at[one] - sent[one]) / 1e6 for one in range(_WARM_UP, count))
    cuts = statistics.quantiles(taken, n=100)
    return {"p50": statistics.median(taken), "p90": cuts[89], "p99": cuts[98]}


def main() -> None:
    """Measures each contender in turn, round by round, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        task = json.loads(options.run)
        told = measure(task["name"], Place(**task["place"]), options.rate, options.seconds)
        print(json.dumps(told))
        return
    described = machine.description()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    with private_broker() as broker:
        for number in range(options.rounds):
            for name, runs in results.items():
                runs.append(_child(name, broker.create_virtual_host(uuid.uuid4().hex), options))
                print(f"round {number + 1} of {options.rounds}: {name}: {runs[-1]['p50']:.2f} ms")
        lines = list(_table(results, options, [*described, ("RabbitMQ", broker.version)]))
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _child(name: str, url: str, options: argparse.Namespace) -> dict[str, float]:
    place = Place(past_the_proxy(url), "", PREFETCH)
    declare(place)
    task = json.dumps(
        {"name": name, "place": {"url": place.url, "management_url": "", "prefetch": PREFETCH}}
    )
    command = [sys.executable, "-m", "benchmarks.latency", "--run", task]
    command += ["--rate", str(options.rate), "--seconds", str(options.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return told


def _table(
    results: dict[str, list[dict[str, float]]],
    options: argparse.Namespace,
    described: list[tuple[str, str]],
) -> Iterator[str]:
    yield "# From publish to handler"
    yield ""
    command = "python -m benchmarks.latency"
    command += f" --rate {options.rate} --seconds {options.seconds} --rounds {options.rounds}"
    yield f"`{command}`:"
    yield "from just before a message is published until its handler begins, at"
    yield f"{options.rate} messages a second, each confirmed before the next; medians of the"
    yield "rounds, and the ratio to pika round by round."
    yield ""
    for name, value in described:
        yield f"- {name}: {value}"
    yield ""
    yield "| | p50 | ratio of p50 | p90 | p99 |"
    yield "|---|---|---|---|---|"
    for name, runs in results.items():
        ratios = [
            run["p50"] / beside["p50"] for run, beside in zip(runs, results["pika"], strict=True)
        ]
        p50, p90, p99 = (
            statistics.median(run[cut] for run in runs) for cut in ("p50", "p90", "p99")
        )
        yield (
            f"| {name} | {p50:.2f} ms | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f}–{max(ratios):.2f}) | {p90:.2f} ms | {p99:.2f} ms |"
        )


if __name__ == "__main__":
    main()
