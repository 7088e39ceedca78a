"""The instruments that redrive measures with, and how OpenTelemetry reads them.

Names, units and attributes follow its conventions for messaging, or begin with `redrive.` where
these have none.

Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redrive.pubsub import late_attempts, order_counts, sdk_histograms, stops
from redrive.pubsub.thread_tally import Count, Distribution, Series, Shard, ThreadTally

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation

SCOPE = "redrive"
SYSTEM = {"messaging.system": "rabbitmq"}


def operation(name: str, kind: str) -> dict[str, str]:
    """Return the attributes of an operation.

    Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
    """
    return {**SYSTEM, "messaging.operation.name": name, "messaging.operation.type": kind}


PROCESS = operation("process", "process")
SEND = operation("send", "send")


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """A metric that redrive records.

    Args:
        name: its name.
        unit: what is counted, or a second.
        description: for people.
        attributes: attributes shared by all its series.
        detail: the attribute name for the detail of a series.
        bounds: for a histogram, the upper bounds of its buckets; empty for a counter.
    """

    name: str
    unit: str
    description: str
    attributes: Mapping[str, str] = field(default_factory=lambda: SYSTEM)
    detail: str = ""
    bounds: tuple[float, ...] = ()

    def attributes_of(self, series: Series) -> dict[str, str]:
        """Return the attributes of a series."""
        _, destination, detail = series
        found = {**self.attributes, "messaging.destination.name": destination}
        return {**found, self.detail: detail} if detail else found


SENT = Instrument(
    "messaging.client.sent.messages",
    "{message}",
    "Messages that were published, by result.",
    SEND,
    "error.type",
)
CONSUMED = Instrument(
    "messaging.client.consumed.messages", "{message}", "Attempts that were started.", PROCESS
)
HANDLED = Instrument("redrive.messages.handled", "{message}", "Messages whose handler returned.")
RETRIED = Instrument(
    "redrive.messages.retried", "{message}", "Failed attempts that are tried again."
)
GIVEN_UP = Instrument(
    "redrive.messages.given_up",
    "{message}",
    "Messages that were set aside.",
    detail="redrive.reason",
)
LET_GO = Instrument(
    "redrive.messages.let_go",
    "{message}",
    "Broadcast messages that failed and were dropped.",
)
DISCARDED = Instrument(
    "redrive.messages.discarded",
    "{message}",
    "Failed messages that were discarded, as the rules for their errors say.",
    detail="redrive.reason",
)
REDRIVEN = Instrument(
    "redrive.messages.redriven", "{message}", "Failed messages that were requeued."
)
PUT_BACK = Instrument(
    "redrive.messages.put_back",
    "{message}",
    "Failed attempts that did not count, because of an outage.",
)
COUNTERS = (SENT, CONSUMED, HANDLED, RETRIED, GIVEN_UP, LET_GO, DISCARDED, REDRIVEN, PUT_BACK)

RUNNING = Instrument("redrive.attempts.running", "{attempt}", "Handlers that run now.", PROCESS)
LATE = Instrument(
    "redrive.attempts.late",
    "{attempt}",
    "Handlers that are still running after their timeout.",
    PROCESS,
)
STOPPED = Instrument(
    "redrive.subscribers.stopped",
    "{subscriber}",
    "Subscribers that take few messages or none, because of an outage or a pause.",
    detail="redrive.reason",
)
BLOCKED_KEYS = Instrument(
    "redrive.order.blocked_keys", "{key}", "Keys of an ordered queue that wait for a retry."
)
BEHIND = Instrument(
    "redrive.order.behind", "{message}", "Messages that wait behind an earlier one of their key."
)
PARKED_KEYS = Instrument(
    "redrive.order.parked_keys",
    "{key}",
    "Keys whose messages are set aside behind one that was given up.",
)
KEYLESS = Instrument(
    "redrive.order.keyless", "{message}", "Messages without the key that they are ordered by."
)
DURATION = Instrument(
    "messaging.process.duration",
    "s",
    "How long handlers ran.",
    PROCESS,
    "error.type",
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60),
)
CRITICAL_TIME = Instrument(
    "redrive.critical_time",
    "s",
    "From when a message was published until it was done.",
    detail="redrive.outcome",
    # Publishers' timestamps are whole seconds, so buckets below one would tell nothing.
    bounds=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400, 604800),
)
HISTOGRAMS = (DURATION, CRITICAL_TIME)
HANDLED_OUTCOME = "handled"


class Instruments:
    """The instruments of a meter provider, which reads them when it collects."""

    def __init__(self, provider: "MeterProvider") -> None:
        self.tally = ThreadTally()
        """Everything counted and timed so far."""
        meter = provider.get_meter(SCOPE)
        for one in COUNTERS:
            meter.create_observable_counter(
                one.name, [self._observer(one)], one.unit, one.description
            )
        meter.create_observable_up_down_counter(
            RUNNING.name, [self._running], RUNNING.unit, RUNNING.description
        )
        meter.create_observable_up_down_counter(LATE.name, [_late], LATE.unit, LATE.description)
        meter.create_observable_up_down_counter(
            STOPPED.name, [_stopped], STOPPED.unit, STOPPED.description
        )
        for place, one in enumerate((BLOCKED_KEYS, BEHIND, PARKED_KEYS)):
            meter.create_observable_up_down_counter(
                one.name, [_of_order(one, place)], one.unit, one.description
            )
        meter.create_observable_counter(
            KEYLESS.name, [_of_order(KEYLESS, 3)], KEYLESS.unit, KEYLESS.description
        )
        made = {
            one: meter.create_histogram(
                one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=one.bounds
            )
            for one in HISTOGRAMS
        }
        self._own: dict[Instrument, Histogram] = (
            {} if sdk_histograms.feed(provider, made.values(), self._distributions) else made
        )
        self.are_told = bool(self._own)
        """Whether each value must be recorded with the provider, because it does not read our
        histograms."""

    def attempts_of(self, queue: str) -> tuple[Count, Distribution]:
        """Return a queue's count of attempts started on this thread, and the durations of those
        that did not fail."""
        shard = self.tally.own.shard
        found = shard.attempts.get(queue)
        if found is None:
            found = shard.attempts[queue] = _pair(shard, queue, CONSUMED, DURATION)
        return found

    def ends_of(self, queue: str) -> tuple[Count, Distribution]:
        """Return a queue's count of handled messages recorded by this thread, and the times from
        publish until then."""
        shard = self.tally.own.shard
        pair = _pair(shard, queue, HANDLED, CRITICAL_TIME, HANDLED_OUTCOME)
        return shard.ends.setdefault(queue, pair)

    def add(self, counter: Instrument, destination: str, detail: str = "") -> None:
        """Add one to a counter."""
        self.tally.own.shard.count((counter.name, destination, detail)).value += 1

    def record(self, histogram: Instrument, seconds: float, queue: str, detail: str) -> None:
        """Add a time to a histogram."""
        series = (histogram.name, queue, detail)
        self.tally.own.shard.distribution(series, histogram.bounds).add(seconds)
        if self.are_told:
            self.tell(histogram, seconds, queue, detail)

    def tell(self, histogram: Instrument, seconds: float, queue: str, detail: str = "") -> None:
        """Record a time with the provider."""
        series = (histogram.name, queue, detail)
        self._own[histogram].record(seconds, histogram.attributes_of(series))

    def _observer(
        self, instrument: Instrument
    ) -> "Callable[[CallbackOptions], Iterator[Observation]]":
        from opentelemetry.metrics import Observation

        def observe(_: "CallbackOptions") -> "Iterator[Observation]":
            for series, count in self.tally.total().counts.items():
                if series[0] == instrument.name:
                    yield Observation(count.value, instrument.attributes_of(series))

        return observe

    def _running(self, options: "CallbackOptions") -> "Iterator[Observation]":
        from opentelemetry.metrics import Observation

        total = self.tally.total()
        running = {
            queue: count.value
            for (name, queue, _), count in total.counts.items()
            if name == CONSUMED.name
        }
        for (name, queue, _), distribution in total.distributions.items():
            if name == DURATION.name:
                running[queue] -= distribution.sums.count
        for queue, begun in running.items():
            yield Observation(begun, RUNNING.attributes_of((RUNNING.name, queue, "")))

    def _distributions(self) -> "list[sdk_histograms.Collected]":
        total = {
            series: distribution.sums
            for series, distribution in self.tally.total().distributions.items()
        }
        return [
            sdk_histograms.Collected(
                one.name,
                one.unit,
                one.description,
                one.bounds,
                [
                    (one.attributes_of(series), sums)
                    for series, sums in total.items()
                    if series[0] == one.name and sums.count
                ],
            )
            for one in HISTOGRAMS
        ]


def _late(_: "CallbackOptions") -> "Iterator[Observation]":
    from opentelemetry.metrics import Observation

    for queue, count in late_attempts.of_this_process.counts().items():
        yield Observation(count, LATE.attributes_of((LATE.name, queue, "")))


def _stopped(_: "CallbackOptions") -> "Iterator[Observation]":
    from opentelemetry.metrics import Observation

    for (queue, reason, note), count in stops.of_this_process.counts().items():
        attributes = STOPPED.attributes_of((STOPPED.name, queue, reason))
        yield Observation(count, {**attributes, **({"redrive.note": note} if note else {})})


def _of_order(
    instrument: Instrument, place: int
) -> "Callable[[CallbackOptions], Iterator[Observation]]":
    """Return a callback that observes one of the `OrderCounts`, by its place there."""
    from opentelemetry.metrics import Observation

    def observe(_: "CallbackOptions") -> "Iterator[Observation]":
        for queue, counts in order_counts.of_this_process.counts().items():
            yield Observation(counts[place], instrument.attributes_of((instrument.name, queue, "")))

    return observe


def _pair(
    shard: Shard, queue: str, counter: Instrument, histogram: Instrument, detail: str = ""
) -> tuple[Count, Distribution]:
    return (
        shard.count((counter.name, queue, "")),
        shard.distribution((histogram.name, queue, detail), histogram.bounds),
    )


_known: "WeakKeyDictionary[MeterProvider, Instruments]" = WeakKeyDictionary()


def instruments_of(provider: "MeterProvider") -> Instruments:
    """Return the instruments of a provider; the same ones each time, since it accepts an observable
    instrument only once."""
    found = _known.get(provider)
    if found is None:
        found = _known[provider] = Instruments(provider)
    return found
