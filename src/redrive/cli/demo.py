"""`redrive demo`: a few orders go through a bug and its fix, on a real broker."""

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

import typer

from redrive import FailedQueue, Message, Publisher, RetryPolicy, Subscriber
from redrive.cli import environment, messages, options, status
from redrive.cli.output import OutputFormat, Printer, print_json
from redrive.duration_text import format_duration
from redrive.errors import RedriveError
from redrive.failures.queue.failed_count import depths
from redrive.number_text import count_of
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology.model import Topology

_STEP_TIMEOUT = 20.0
_GLANCE = 0.05
_POLICY = RetryPolicy(max_retries=2, delay=timedelta(seconds=2))
_ROUTING_KEY = "order.placed"
_ORDERS: tuple[dict[str, object], ...] = (
    {"order": 1, "amount": 30, "currency": "EUR"},
    {"order": 2, "amount": 12, "currency": "USD"},
    {"order": 3, "amount": 75, "currency": "EUR"},
    {"order": 4, "amount": 20, "currency": "USD"},
    {"order": 5, "amount": 99, "currency": "CNY"},
    {"order": 6, "amount": 41, "currency": "CNY"},
)
_UNLUCKY_ORDER = 4


@dataclass(frozen=True, slots=True)
class DemoAttempt:
    """One call of the handler, as the handler recorded it."""

    message_id: str
    order: object
    retries: int
    error: str | None


@dataclass(slots=True)
class DemoCounts:
    """What the demo has observed, by message id."""

    broker: str
    published: dict[str, object] = field(default_factory=dict)
    attempts: list[DemoAttempt] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    requeued: int = 0
    still_failed: set[str] = field(default_factory=set)

    @property
    def succeeded(self) -> set[str]:
        return {attempt.message_id for attempt in self.attempts if attempt.error is None}

    @property
    def lost(self) -> set[str]:
        """Ids that were published, but are neither handled nor in the failed queue."""
        return set(self.published) - self.succeeded - self.still_failed

    def as_json(self) -> dict[str, object]:
        return {
            "broker": self.broker,
            "published": len(self.published),
            "attempts": len(self.attempts),
            "retried": sum(attempt.retries > 0 for attempt in self.attempts),
            "failed": len(self.failed),
            "requeued": self.requeued,
            "succeeded": len(self.succeeded),
            "lost": len(self.lost),
        }


class Demo:
    """The demo on one broker, in a queue of its own."""

    def __init__(self, printer: Printer, url: str, exchange: str | None) -> None:
        own = f"redrive-demo-{uuid.uuid4().hex[:6]}"
        self._printer = printer
        self._url = url
        self._queue = f"{own}@orders"
        self._exchange = exchange or own
        self._connector = Connector(url, default_name("demo"))
        self._seen: queue.SimpleQueue[DemoAttempt] = queue.SimpleQueue()
        self._step = 0
        self._is_declared = False
        with declaring(self._connector) as declarer:
            self._tally = DemoCounts(str(declarer.version))

    def tell(self) -> DemoCounts:
        """Run the demo, and delete what it created."""
        subscriber = self._subscriber(self._with_bug)
        with self._removed_afterwards(subscriber.subscription.topology()):
            self._declare(subscriber)
            self._publish()
            with _stopped_afterwards(subscriber):
                self._fail(subscriber)
            self._look()
            self._redrive()
            self._sum_up()
        if self._printer.for_programs:
            print_json(self._tally.as_json())
        return self._tally

    # --- the steps --------------------------------------------------------------------------------

    def _declare(self, subscriber: Subscriber) -> None:
        self._chapter(
            f"A service subscribes to order.* on RabbitMQ {self._tally.broker}. A message that "
            f"fails is retried after {format_duration(_POLICY.delay)}, at most "
            f"{count_of(_POLICY.max_retries, 'time')}; then it is given up."
        )
        subscriber.declare()
        self._is_declared = True
        self._show_queues()

    def _publish(self) -> None:
        self._chapter("Six orders are published. No worker runs yet, so they wait.")
        with Publisher(self._url, self._exchange) as publisher:
            for order in _ORDERS:
                message_id = publisher.publish(order, _ROUTING_KEY, mandatory=True)
                self._tally.published[message_id] = order["order"]
                self._event({"event": "published", "message_id": message_id, **order})
        self._show_queues()

    def _fail(self, subscriber: Subscriber) -> None:
        self._chapter(
            f"The worker starts. The bank does not answer once, at order {_UNLUCKY_ORDER}, and the "
            "worker has a bug with CNY."
        )
        subscriber.start()
        self._watch_until(lambda: len(self._tally.attempts) >= len(_ORDERS))
        self._watch_until(lambda: self._count("main") == 0, at_most=1.0)
        self._show_queues(
            "Handled orders are gone. The others wait in the retry queue and block nobody:"
        )
        self._watch_until(lambda: self._count("main", "retry") == 0 and not self._unsettled())
        self._show_queues(
            f"Order {_UNLUCKY_ORDER} succeeded. The others have used up their retries and are in "
            "the failed queue:"
        )

    def _look(self) -> None:
        self._chapter(
            "Somebody lists the failed messages, as `redrive failed list` does. They stay in the "
            "queue."
        )
        found = list(FailedQueue(self._url, self._queue, self._exchange).browse())
        for message in found:
            self._tally.failed.add(message.message_id or "")
            self._event(
                {
                    "event": "failed",
                    "message_id": message.message_id,
                    "failure_id": message.failure_id,
                    "error": message.error_type,
                }
            )
        if not self._printer.for_programs:
            messages.table(self._printer, found)

    def _redrive(self) -> None:
        self._chapter(
            "The bug is fixed, and the failed messages are requeued, as `redrive failed requeue` "
            "does."
        )
        report = FailedQueue(self._url, self._queue, self._exchange).requeue()
        self._tally.requeued = report.requeued
        self._event({"event": "requeued", "job": report.job, "messages": report.requeued})
        self._show_queues()
        fixed = self._subscriber(self._without_bug)
        with _stopped_afterwards(fixed):
            fixed.start()
            self._watch_until(lambda: not self._unsettled())
        self._show_queues()

    def _sum_up(self) -> None:
        failed = FailedQueue(self._url, self._queue, self._exchange).browse()
        self._tally.still_failed = {message.message_id or "" for message in failed}
        counted = self._tally.as_json()
        self._chapter(
            f"{counted['published']} published, {counted['attempts']} attempts of which "
            f"{counted['retried']} were retries, "
            f"{counted['failed']} given up, {counted['requeued']} requeued, "
            f"{counted['succeeded']} handled in the end."
        )
        if self._tally.lost:
            orders = ", ".join(f"order {self._tally.published[lost]}" for lost in self._tally.lost)
            self._printer.say(f"LOST: {orders}.", "bold red")
        else:
            self._printer.say("No message was lost.", "bold green")

    # --- the service ------------------------------------------------------------------------------

    def _subscriber(self, handler: Callable[[Message], None]) -> Subscriber:
        subscriber = Subscriber(self._url, self._queue, ["order.*"], self._exchange, retry=_POLICY)
        subscriber.handler(handler)
        return subscriber

    def _with_bug(self, message: Message) -> None:
        order = _order_of(message)
        if order["order"] == _UNLUCKY_ORDER and message.retries == 0:
            self._fail_with(message, ConnectionError("the bank does not answer"))
        if order["currency"] not in {"EUR", "USD"}:
            self._fail_with(message, LookupError(f"unknown currency {order['currency']}"))
        self._seen.put(DemoAttempt(message.message_id or "", order["order"], message.retries, None))

    def _without_bug(self, message: Message) -> None:
        self._seen.put(
            DemoAttempt(
                message.message_id or "", _order_of(message)["order"], message.retries, None
            )
        )

    def _fail_with(self, message: Message, error: Exception) -> None:
        self._seen.put(
            DemoAttempt(
                message.message_id or "",
                _order_of(message)["order"],
                message.retries,
                f"{type(error).__name__}: {error}",
            )
        )
        raise error

    # --- output -----------------------------------------------------------------------------------

    def _chapter(self, text: str) -> None:
        self._step += 1
        if not self._printer.for_programs:
            self._printer.say(f"\n{self._step}. {text}", "bold")

    def _show_queues(self, text: str = "") -> None:
        places = depths(self._connector, self._queue, None)
        self._event({"event": "queues", **status.json_of(places)})
        if not self._printer.for_programs:
            if text:
                self._printer.say(text)
            self._printer.table(status.COLUMNS, [status.row_of(self._queue, places)])

    def _event(self, event: dict[str, object]) -> None:
        if self._printer.for_programs:
            print_json(event)

    # --- watching ---------------------------------------------------------------------------------

    def _watch_until(self, happened: Callable[[], bool], at_most: float = _STEP_TIMEOUT) -> None:
        """Print each attempt until something has happened or the time is up; messages that are
        still missing then count as lost."""
        deadline = time.monotonic() + at_most
        over = False
        while not over:
            over = happened() or time.monotonic() >= deadline
            # Also print the attempts that came during the check.
            with contextlib.suppress(queue.Empty):
                while True:
                    self._tell_of(self._seen.get(timeout=_GLANCE))

    def _tell_of(self, attempt: DemoAttempt) -> None:
        self._tally.attempts.append(attempt)
        self._event(
            {
                "event": "attempt",
                "message_id": attempt.message_id,
                "order": attempt.order,
                "retries": attempt.retries,
                "error": attempt.error,
            }
        )
        if not self._printer.for_programs:
            result = f"failed   {attempt.error}" if attempt.error else "handled"
            self._printer.say(
                f"  order {attempt.order}  attempt {attempt.retries + 1}  {result}",
                "red" if attempt.error else "green",
            )

    def _count(self, *places: str) -> int:
        found = depths(self._connector, self._queue, None)
        return sum(depth.messages for place in places if (depth := found[place]) is not None)

    def _unsettled(self) -> set[str]:
        """Return the messages that are neither handled nor in the failed queue."""
        waiting = set(self._tally.published) - self._tally.succeeded
        return set() if len(waiting) == self._count("failed") else waiting

    @contextmanager
    def _removed_afterwards(self, topology: Topology) -> Iterator[None]:
        with declaring(self._connector) as declarer:
            exchanges = [
                exchange for exchange in topology.exchanges if not declarer.exists(exchange)
            ]
        try:
            yield
        finally:
            try:
                with declaring(self._connector) as declarer:
                    for queue in topology.queues:
                        declarer.delete(queue)
                    for exchange in exchanges:
                        declarer.delete(exchange)
            except RedriveError:
                if self._is_declared:
                    self._printer.note(
                        "The demo could not delete its queues: "
                        f"{', '.join(one.name for one in topology.queues)}."
                    )


@contextmanager
def _stopped_afterwards(subscriber: Subscriber) -> Iterator[None]:
    try:
        yield
    finally:
        subscriber.stop()
        subscriber.wait()


def _order_of(message: Message) -> dict[str, object]:
    order = message.json()
    assert isinstance(order, dict)
    return order


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar=environment.URL_VARIABLE,
            metavar="URL",
            show_default=False,
            help="A broker to use; the demo creates its own queues there and deletes them. "
            "Default: a private broker that the demo starts.",
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange",
            metavar="NAME",
            show_default=False,
            help="The main exchange. Default: a new one of the demo's own.",
        ),
    ] = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Watch messages fail and come back.

    A handful of messages fail, are retried after a delay, are given up, and are requeued after the
    fix. It starts a private RabbitMQ, removes it at the end, and takes less than half a minute.
    With --output json the last line has the counts. It exits with 1 if a message was lost.

    \b
    Example:
      redrive demo
    """
    printer = Printer(output)
    # The demo prints the worker's failures itself; its log warnings would repeat them.
    logging.getLogger("redrive").addHandler(logging.NullHandler())
    if url is not None:
        tally = Demo(printer, url, exchange).tell()
    else:
        from redrive.testing import private_broker

        printer.say("Starting a private RabbitMQ. This takes a few seconds.")
        with private_broker() as broker:
            tally = Demo(printer, broker.url, exchange).tell()
    raise typer.Exit(1 if tally.lost else 0)
