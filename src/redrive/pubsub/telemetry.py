"""Metrics and traces through OpenTelemetry's API; the program chooses the SDK and where the data
goes.

    redrive.instrument()     # after the program has set its providers; needs redrive[metrics]

Until then nothing is measured, at no cost. One trace covers everything that happens to a message:
its publisher puts the trace context into the headers, where every move keeps it. Names follow
OpenTelemetry's conventions for messaging, or begin with `redrive.` where these have none. Source:
https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import random
from time import perf_counter, time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, assert_never

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.handler_error import report_of, traceback_of
from redrive.pubsub.instruments import (
    CRITICAL_TIME,
    DISCARDED,
    DURATION,
    GIVEN_UP,
    HANDLED_OUTCOME,
    LET_GO,
    PROCESS,
    PUT_BACK,
    REDRIVEN,
    RETRIED,
    SCOPE,
    SEND,
    SENT,
    Instruments,
    instruments_of,
    operation,
)
from redrive.pubsub.thread_tally import AT_A_TIME, Distribution
from redrive.pubsub.verdict import Verdict
from redrive.redaction import redact
from redrive.topology.decision import (
    Ack,
    Discard,
    Drop,
    MoveToFailed,
    PutBack,
    RetryByBroker,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    RetryInPlace,
)
from redrive.topology.headers import COUNT, Delivery, seconds_since

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_T = TypeVar("_T")
_Headers = Mapping[str, FieldValue]
_PROVIDER_EVERY = 0.1
"""Seconds between checks for a tracer provider; each takes a microsecond."""


class PublishSpan(NamedTuple):
    """A publish in progress.

    Args:
        headers: the user's headers, plus the trace context if there is one.
        ended: called with None once it is confirmed, or with the error if it is not.
    """

    headers: _Headers | None
    ended: Callable[[RedriveError | None], None]


class Telemetry:
    """Records metrics and traces of the events that the shells report.

    Args:
        meter_provider: where metrics go; by default the global provider.
        tracer_provider: where traces go; by default the global provider.
        sampling: the share of messages to trace, among those that are not part of a trace yet.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, or `sampling` is out of range.
    """

    def __init__(
        self,
        meter_provider: "MeterProvider | None" = None,
        tracer_provider: "TracerProvider | None" = None,
        sampling: float = 1.0,
    ) -> None:
        if not 0 <= sampling <= 1:
            raise ConfigurationError(
                f"sampling is {sampling}", "Give a share from 0 to 1, such as 0.01."
            )
        try:
            from opentelemetry import context, metrics, propagate, trace
        except ImportError as error:
            raise ConfigurationError(
                "metrics and traces need OpenTelemetry, which is not installed",
                "pip install 'redrive[metrics]'",
            ) from error
        self._trace = trace
        self._context = context
        self._has_tracer = tracer_provider is not None
        self._without_context = b""
        """Encoded headers of the last message without a trace; most messages of a queue have the
        same."""
        self._asked_again_at = 0.0
        """When to check again for a tracer provider, by `perf_counter`."""
        self._propagate = propagate
        self._sampling = sampling
        self._context_fields = frozenset(propagate.get_global_textmap().fields)
        self._context_bytes = tuple(name.encode() for name in self._context_fields)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._instruments = instruments_of(meter_provider or metrics.get_meter_provider())

    def publishing(self, exchange: str, headers: _Headers | None) -> "PublishSpan":
        """Start measuring a publish."""
        if self._is_untraced():
            return PublishSpan(headers, partial(_count_sent, self._instruments, exchange))
        span = self._tracer.start_span(
            f"send {exchange}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={**SEND, "messaging.destination.name": exchange},
        )
        context: dict[str, str] = {}
        self._propagate.inject(context, self._trace.set_span_in_context(span))

        def ended(error: RedriveError | None) -> None:
            _count_sent(self._instruments, exchange, error)
            if error is not None:
                span.set_status(self._trace.StatusCode.ERROR, redact(str(error)))
            span.end()

        return PublishSpan({**(headers or {}), **context}, ended)

    def watched(
        self,
        exchange: str,
        headers: _Headers | None,
        settled: Callable[[_T, RedriveError | None], None],
    ) -> tuple[_Headers | None, Callable[[_T, RedriveError | None], None]]:
        """Start measuring one publish of a batch; return the headers to send, and the callback for
        its result."""
        if self._is_untraced():
            return headers, _Counted(self._instruments, exchange, settled)
        publication = self.publishing(exchange, headers)

        def settle(outgoing: _T, error: RedriveError | None) -> None:
            publication.ended(error)
            settled(outgoing, error)

        return publication.headers, settle

    def begun(self, queue: str, delivery: Delivery) -> "Watch":
        """Start measuring an attempt, on this thread and in this context; pass the result to
        `ended`."""
        shard = self._instruments.tally.own.shard
        count, times = shard.attempts.get(queue) or self._instruments.attempts_of(queue)
        count.value += 1
        if not count.value % AT_A_TIME:
            times.sort_in()
        span = None
        began = perf_counter()
        # Checked inline first, since most attempts have no trace, and a call would take a tenth of
        # all this.
        if self._has_tracer or (began > self._asked_again_at and self._makes_spans()):
            span = self._span_of(queue, delivery)
            if span is not None:
                began = perf_counter()  # exclude the time to start the span
        return self, queue, times, span, began

    def _span_of(self, queue: str, delivery: Delivery) -> "_Span | None":
        """Start the span of an attempt; return None if the attempt is not traced."""
        carries_context = self._carries_context(delivery)
        if not carries_context and not self._begins_a_trace():
            return None
        span = self._tracer.start_span(
            f"process {queue}",
            # The current span is not the parent: a subscriber may have been started inside a trace.
            context=self._context_of(delivery) if carries_context else self._context.Context(),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={**PROCESS, "messaging.destination.name": queue, **_about(delivery)},
        )
        return span, self._context.attach(self._trace.set_span_in_context(span))

    def ended(self, watch: "Watch", error: BaseException | None) -> None:
        """End an attempt.

        Args:
            watch: the result of `begun`.
            error: what the handler raised, or None.
        """
        _, queue, times, span, began = watch
        seconds = perf_counter() - began
        if error is not None:
            self._instruments.record(DURATION, seconds, queue, type(error).__qualname__)
        else:
            times.note(seconds)
            if self._instruments.are_told:
                self._instruments.tell(DURATION, seconds, queue)
        if span is not None:
            its, former = span
            if error is not None:
                self._mark(its, error)
            self._context.detach(former)
            its.end()

    def handled(self, queue: str, deliveries: Sequence[Delivery | None]) -> None:
        """Record messages whose handler has returned, and which are acked together."""
        instruments = self._instruments
        shard = instruments.tally.own.shard
        count, times = shard.ends.get(queue) or instruments.ends_of(queue)
        count.value += len(deliveries)
        since_published = _since_published(deliveries)
        times.add_all(since_published)
        if instruments.are_told:
            for seconds in since_published:
                instruments.tell(CRITICAL_TIME, seconds, queue, HANDLED_OUTCOME)

    def settled(self, queue: str, delivery: Delivery | None, verdict: Verdict) -> None:
        """Record a verdict that was carried out."""
        instruments = self._instruments
        settlement = verdict.settlement
        match settlement:
            case Ack():
                self.handled(queue, [delivery])
            case (
                RetryByReject()
                | RetryByRepublish()
                | RetryByLadder()
                | RetryByBroker()
                | RetryInPlace()
            ):
                instruments.add(RETRIED, queue)
            case PutBack():
                instruments.add(PUT_BACK, queue)
            case Discard(reason):
                instruments.add(DISCARDED, queue, reason)
                self._done(queue, delivery, "discarded")
            case Drop():
                instruments.add(LET_GO, queue)
                self._done(queue, delivery, "let-go")
            case MoveToFailed(reason):
                instruments.add(GIVEN_UP, queue, reason)
                self._done(queue, delivery, "given-up")
                if delivery is not None:
                    attributes = {"messaging.destination.name": queue, "redrive.reason": reason}
                    self._note(
                        f"give up {queue}",
                        delivery,
                        {**operation("give up", "settle"), **attributes},
                    )
            case _:
                assert_never(settlement)

    def _done(self, queue: str, delivery: Delivery | None, outcome: str) -> None:
        for seconds in _since_published([delivery]):
            self._instruments.record(CRITICAL_TIME, seconds, queue, outcome)

    def redriven(self, queue: str, delivery: Delivery) -> None:
        """Record that a failed message is back in its main queue."""
        self._instruments.add(REDRIVEN, queue)
        self._note(
            f"redrive {queue}",
            delivery,
            {**operation("redrive", "send"), "messaging.destination.name": queue},
        )

    def _note(self, name: str, delivery: Delivery, attributes: dict[str, str]) -> None:
        """Add an instant span to the trace of a message, if it has one."""
        if self._sampling < 1 and not self._carries_context(delivery):
            return
        self._tracer.start_span(
            name, context=self._context_of(delivery), attributes={**attributes, **_about(delivery)}
        ).end()

    def _is_untraced(self) -> bool:
        """Check whether a message published now neither belongs to a trace nor starts one."""
        return not self._begins_a_trace() and not self._belongs_to_trace_here()

    def _begins_a_trace(self) -> bool:
        """Decide at random whether a message without a trace starts one; never while no provider
        makes spans."""
        sampling = self._sampling
        if sampling < 1 and (not sampling or random() >= sampling):
            return False
        return self._makes_spans()

    def _makes_spans(self) -> bool:
        """Check whether a provider makes spans by now."""
        if self._has_tracer:
            return True
        now = perf_counter()
        if now < self._asked_again_at:
            return False
        self._asked_again_at = now + _PROVIDER_EVERY
        provider = self._trace.get_tracer_provider()
        self._has_tracer = not isinstance(
            provider, self._trace.ProxyTracerProvider | self._trace.NoOpTracerProvider
        )
        return self._has_tracer

    def _belongs_to_trace_here(self) -> bool:
        """Check whether a message published now continues a trace, sampled or not."""
        # Most callers have no context at all, and checking that first saves two thirds of the time.
        return (
            bool(self._context.get_current())
            and self._trace.get_current_span().get_span_context().is_valid
        )

    def _carries_context(self, delivery: Delivery) -> bool:
        """Check whether a message belongs to a trace, sampled or not."""
        headers = delivery.properties.headers
        encoded = headers.encode()
        if encoded == self._without_context:
            return False
        data = encoded.lower()
        for name in self._context_bytes:
            if data.find(name) >= 0:  # `in` would first try bytes as a number, which is slower
                fields = self._context_fields
                return any(name.lower() in fields for name, _ in headers.raw_fields())
        self._without_context = encoded
        return False  # true of most messages; saves parsing their headers

    def _context_of(self, delivery: Delivery) -> "Context":
        table = delivery.properties.headers
        carrier = {
            name.lower(): value for name in table if isinstance(value := table.scalar(name), str)
        }
        return self._propagate.extract(carrier)

    def _mark(self, span: "Span", error: BaseException) -> None:
        if (
            span.is_recording()
        ):  # not record_exception, which would show secrets, and fails if the error has no text
            report = report_of(error)
            attributes = {
                "exception.type": report.type,
                "exception.message": redact(report.message),
                "exception.stacktrace": redact(traceback_of(error)),
            }
            span.add_event("exception", attributes)
        span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)


class _Counted(Generic[_T]):
    """Counts one publish of a batch once it is settled.

    A closure would be five objects that Python's garbage collector scans again and again while
    messages are in flight, which took more time than all other measuring.
    """

    __slots__ = ("_exchange", "_instruments", "_settled")

    def __init__(
        self,
        instruments: Instruments,
        exchange: str,
        settled: Callable[[_T, RedriveError | None], None],
    ) -> None:
        self._instruments = instruments
        self._exchange = exchange
        self._settled = settled

    def __call__(self, outgoing: _T, error: RedriveError | None) -> None:
        """Count the publish, and pass on its result."""
        _count_sent(self._instruments, self._exchange, error)
        self._settled(outgoing, error)


def _count_sent(instruments: Instruments, exchange: str, error: RedriveError | None) -> None:
    instruments.add(SENT, exchange, "" if error is None else type(error).__name__)


def _since_published(deliveries: Iterable[Delivery | None]) -> list[float]:
    """Return the seconds since messages were published, except for those without a timestamp, and
    those that someone has requeued."""
    now = time()
    found: list[float] = []
    for delivery in deliveries:
        if delivery is None:
            continue
        properties = delivery.properties
        # The routing key of a requeued message ends with the queue's name, unlike nearly any other.
        if delivery.routing_key.endswith(delivery.queue) and COUNT in properties.headers:
            continue
        seconds = seconds_since(properties.timestamp, now)
        if seconds is not None:
            found.append(seconds)
    return found


def _about(delivery: Delivery) -> dict[str, str]:
    message_id = delivery.properties.message_id
    known = {"messaging.rabbitmq.destination.routing_key": delivery.original_routing_key}
    return {**known, "messaging.message.id": message_id} if message_id else known


_Span = tuple["Span", "Token[Context]"]
"""The span of an attempt, and the token that restores the previous context."""
Watch = tuple[Telemetry, str, Distribution, _Span | None, float]
"""A running attempt: the telemetry that measures it, its queue, the distribution of durations, its
span, and its start time. A tuple, because one is made for each attempt and a class takes five times
as long."""

active: Telemetry | None = None
"""The active telemetry; None if nothing is measured."""


def instrument(
    meter_provider: "MeterProvider | None" = None,
    tracer_provider: "TracerProvider | None" = None,
    *,
    sampling: float = 1.0,
) -> None:
    """Start metrics and traces, for every publisher and subscriber of this process.

    Args:
        meter_provider: where metrics go; by default the global provider.
        tracer_provider: where traces go; by default the global provider.
        sampling: the share, from 0 to 1, of messages to trace among those that are not part of a
            trace yet. It is decided before any work for a span is done; the provider's own sampler
            is applied in addition. A message that carries a trace context continues that trace.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, or `sampling` is out of range.
    """
    global active
    active = Telemetry(meter_provider, tracer_provider, sampling)


def uninstrument() -> None:
    """Stop what `instrument` has started."""
    global active
    active = None


def ended(watch: Watch, error: BaseException | None) -> None:
    """End an attempt with the error that its handler raised, or None. Must run on the thread and in
    the context in which it began."""
    watch[0].ended(watch, error)
