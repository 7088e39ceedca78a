"""How precisely RabbitMQ 4.3 holds failed messages back, as a handler of redrive's sees it.

python -m benchmarks.delays [--messages 500] [--pause-ms 10]
"""

import argparse
import asyncio
import contextlib
import logging
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from redrive import AsyncSubscriber, Linear, Message, Publisher, RetryPolicy, Subscriber
from redrive.testing import private_broker

_RETRIES = 3
_POLICIES = {
    "constant 1 s": RetryPolicy(_RETRIES, delay=timedelta(seconds=1)),
    "linear 0.5 s to 1 s": RetryPolicy(_RETRIES, backoff=Linear("500ms", "1s")),
}
_DELAYS = {"constant 1 s": (1.0, 1.0, 1.0), "linear 0.5 s to 1 s": (0.5, 1.0, 1.0)}
_QUEUE = "shop@orders"
_DEADLINE = 300.0


class Clock:
    """When each attempt began and failed, of every message."""

    def __init__(self, delays: tuple[float, ...], messages: int) -> None:
        self._delays = delays
        self._left = messages
        self._failed: dict[str, float] = {}
        self.late: dict[int, list[float]] = defaultdict(list)
        self.done = threading.Event()

    def attempt(self, message: Message) -> None:
        """Notes how late a message is, and fails it until its last retry."""
        now = time.monotonic()
        id_, retry = message.message_id or "", message.retries
        if retry:
            self.late[retry].append(now - self._failed[id_] - self._delays[retry - 1])
        if retry < _RETRIES:
            self._failed[id_] = time.monotonic()
            raise RuntimeError("not yet")
        self._left -= 1
        if not self._left:
            self.done.set()


@contextlib.contextmanager
def _blocking(url: str, policy: RetryPolicy, clock: Clock) -> Iterator[None]:
    subscriber = Subscriber(url, _QUEUE, ["order.*"], retry=policy, retry_via="broker")
    subscriber.handler(clock.attempt)
    subscriber.start()
    try:
        yield
    finally:
        subscriber.stop()
        subscriber.wait()


@contextlib.contextmanager
def _asynchronous(url: str, policy: RetryPolicy, clock: Clock) -> Iterator[None]:
    subscriber = AsyncSubscriber(url, _QUEUE, ["order.*"], retry=policy, retry_via="broker")

    async def handle(message: Message) -> None:
        clock.attempt(message)

    subscriber.handler(handle)
    running = threading.Thread(target=lambda: asyncio.run(subscriber.run()))
    running.start()
    try:
        yield
    finally:
        subscriber.stop()
        running.join()


_SHELLS = {"blocking": _blocking, "async": _asynchronous}


def main() -> None:
    """Prints, for each shell, policy and retry, by how much messages came late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--pause-ms", type=float, default=10.0, help="between two messages")
    told = parser.parse_args()
    logging.getLogger("redrive").setLevel(logging.CRITICAL)  # a line for each failure takes time
    with private_broker() as broker:
        print(f"{broker}: {told.messages} messages, one each {told.pause_ms:g} ms; late by, in ms")
        for shell, running in _SHELLS.items():
            for name, policy in _POLICIES.items():
                clock = Clock(_DELAYS[name], told.messages)
                url = broker.create_virtual_host(f"{shell} {name}")
                Subscriber(url, _QUEUE, ["order.*"], retry=policy, retry_via="broker").declare()
                with running(url, policy, clock), Publisher(url) as publisher:
                    for number in range(told.messages):
                        publisher.publish(str(number), "order.paid", mandatory=True)
                        time.sleep(told.pause_ms / 1000)
                    if not clock.done.wait(_DEADLINE):
                        raise SystemExit(f"{shell}, {name}: not all messages came back")
                for retry, late in sorted(clock.late.items()):
                    print(f"{shell:<9} {name:<20} retry {retry}: {_summary(late)}")


def _summary(late: list[float]) -> str:
    ms = sorted(1000 * one for one in late)
    cuts = statistics.quantiles(ms, n=100)
    return (
        f"n {len(ms)}, least {ms[0]:.1f}, median {statistics.median(ms):.1f}, "
        f"p99 {cuts[98]:.1f}, most {ms[-1]:.1f}"
    )


if __name__ == "__main__":
    main()
