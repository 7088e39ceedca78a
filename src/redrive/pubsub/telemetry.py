"""Metrics and traces, by OpenTelemetry's API: which SDK takes them, and where to, is the program's
choice.

    redrive.instrument()     # after the program has set its providers; needs redrive[metrics]

Until then nothing is measured, and nothing is paid. One trace goes through all that happens to a
message: its publisher puts the context into the headers, where every move keeps it. Names are those
of OpenTelemetry's conventions for messaging, and `redrive.…` where there is none. Source:
https://opentelemetry.io/docs/specs/semconv/messaging/
"""

import contextlib
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic, perf_counter, time
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar, assert_never

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.handler_error import report_of, traceback_of
from redrive.pubsub.instruments import (
    CRITICAL_TIME,
    DURATION,
    GIVEN_UP,
    HANDLED_OUTCOME,
    LET_GO,
    PROCESS,
    REDRIVEN,
    RETRIED,
    SCOPE,
    SEND,
    SENT,
    Instruments,
    instruments_of,
    operation,
)
from redrive.pubsub.verdict import Verdict
from redrive.redaction import redact
from redrive.topology.decision import (
    Ack,
    Drop,
    MoveToFailed,
    RetryByBroker,
    RetryByLadder,
    RetryByReject,
    RetryByRepublish,
    RetryInPlace,
)
from redrive.topology.headers import COUNT, Delivery, seconds_since

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_T = TypeVar("_T")
_Headers = Mapping[str, FieldValue]
_PROVIDER_EVERY = 0.1
"""Seconds after which it is asked again for a provider of spans, which takes a microsecond."""


class RunningHandler(Protocol):
    """A running handler."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


class _Unwatched:
    """A running handler that nobody watches."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


_UNWATCHED: AbstractContextManager[RunningHandler] = contextlib.nullcontext(_Unwatched())


class Publication(NamedTuple):
    """A publish on its way.

    Args:
        headers: the user's, and the trace's context where there is one.
        ended: to be called when it is confirmed, with None, or when it is not, with why.
    """

    headers: _Headers | None
    ended: Callable[[RedriveError | None], None]


def _unwatched(_: RedriveError | None) -> None:
    """Nobody watches."""


class Telemetry:
    """Measures and traces what the shells tell it.

    Args:
        meter_provider: where metrics go; the global one where none is given.
        tracer_provider: where traces go; the global one where none is given.
        sampling: the share of messages that are traced of those that belong to no trace yet.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, or the share is none.
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
        self._current_context = context.get_current
        self._has_tracer = tracer_provider is not None
        self._without_context = b""
        """The headers of a message that belongs to no trace: most of a queue's are alike."""
        self._asked_again_at = 0.0
        """When it is asked again whether there is a provider by now, by the monotonic clock."""
        self._propagate = propagate
        self._sampling = sampling
        self._context_fields = frozenset(propagate.get_global_textmap().fields)
        self._context_bytes = tuple(name.encode() for name in self._context_fields)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._instruments = instruments_of(meter_provider or metrics.get_meter_provider())

    def publishing(self, exchange: str, headers: _Headers | None) -> "Publication":
        """Begins to watch a publish."""
        if self._is_untraced():
            return Publication(headers, partial(self._sent, exchange))
        span = self._tracer.start_span(
            f"send {exchange}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={**SEND, "messaging.destination.name": exchange},
        )
        context: dict[str, str] = {}
        self._propagate.inject(context, self._trace.set_span_in_context(span))

        def ended(error: RedriveError | None) -> None:
            self._sent(exchange, error)
            if error is not None:
                span.set_status(self._trace.StatusCode.ERROR, redact(str(error)))
            span.end()

        return Publication({**(headers or {}), **context}, ended)

    def watched(
        self,
        exchange: str,
        headers: _Headers | None,
        settled: Callable[[_T, RedriveError | None], None],
    ) -> tuple[_Headers | None, Callable[[_T, RedriveError | None], None]]:
        """Watches one publish of many: the headers to send, and what to call when it is settled."""
        if self._is_untraced():
            add = self._instruments.add

            def count(outgoing: _T, error: RedriveError | None) -> None:
                add(SENT, exchange, "" if error is None else type(error).__name__)
                settled(outgoing, error)

            return headers, count
        publication = self.publishing(exchange, headers)

        def settle(outgoing: _T, error: RedriveError | None) -> None:
            publication.ended(error)
            settled(outgoing, error)

        return publication.headers, settle

    def _sent(self, exchange: str, error: RedriveError | None) -> None:
        self._instruments.add(SENT, exchange, "" if error is None else type(error).__name__)

    def attempt(self, queue: str, delivery: Delivery) -> "_Watched":
        """Watches a handler for as long as the block."""
        if not self._makes_spans() or not (
            self._begins_a_trace() or self._carries_context(delivery)
        ):
            return _Watched(self._instruments, queue)
        span = self._tracer.start_as_current_span(
            f"process {queue}",
            context=self._context_of(delivery),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={**PROCESS, "messaging.destination.name": queue, **_about(delivery)},
        )
        return _Traced(self._instruments, queue, span, self._mark)

    def settled(self, queue: str, delivery: Delivery | None, verdict: Verdict) -> None:
        """A verdict was carried out."""
        instruments = self._instruments
        settlement = verdict.settlement
        match settlement:
            case Ack():
                shard = instruments.tally.own.shard
                count, times = shard.ends.get(queue) or instruments.ends_of(queue)
                count.value += 1
                seconds = _since_published(delivery)
                if seconds is not None:
                    times.add(seconds)
                    if instruments.are_told:
                        instruments.tell(CRITICAL_TIME, seconds, queue, HANDLED_OUTCOME)
            case (
                RetryByReject()
                | RetryByRepublish()
                | RetryByLadder()
                | RetryByBroker()
                | RetryInPlace()
            ):
                instruments.add(RETRIED, queue)
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
        seconds = _since_published(delivery)
        if seconds is not None:
            self._instruments.record(CRITICAL_TIME, seconds, queue, outcome)

    def redriven(self, queue: str, delivery: Delivery) -> None:
        """A failed message is back in its main queue."""
        self._instruments.add(REDRIVEN, queue)
        self._note(
            f"redrive {queue}",
            delivery,
            {**operation("redrive", "send"), "messaging.destination.name": queue},
        )

    def _note(self, name: str, delivery: Delivery, attributes: dict[str, str]) -> None:
        """A moment in the trace of a message, if it belongs to one."""
        if self._sampling < 1 and not self._carries_context(delivery):
            return
        self._tracer.start_span(
            name, context=self._context_of(delivery), attributes={**attributes, **_about(delivery)}
        ).end()

    def _is_untraced(self) -> bool:
        """Whether what is published now neither belongs to a trace nor begins one."""
        return not self._begins_a_trace() and not self._belongs_to_trace_here()

    def _begins_a_trace(self) -> bool:
        """Whether a message that belongs to no trace begins one, by chance; none does before there
        is a provider that makes spans."""
        sampling = self._sampling
        if sampling < 1 and (not sampling or random.random() >= sampling):
            return False
        return self._makes_spans()

    def _makes_spans(self) -> bool:
        """Whether there is a provider that makes spans by now."""
        if self._has_tracer:
            return True
        now = monotonic()
        if now < self._asked_again_at:
            return False
        self._asked_again_at = now + _PROVIDER_EVERY
        provider = self._trace.get_tracer_provider()
        self._has_tracer = not isinstance(
            provider, self._trace.ProxyTracerProvider | self._trace.NoOpTracerProvider
        )
        return self._has_tracer

    def _belongs_to_trace_here(self) -> bool:
        """Whether what is published now goes on with a trace, sampled or not."""
        # Most have no context at all, and to be told that costs a third.
        return (
            bool(self._current_context())
            and self._trace.get_current_span().get_span_context().is_valid
        )

    def _carries_context(self, delivery: Delivery) -> bool:
        """Whether a message says that it belongs to a trace, sampled or not."""
        headers = delivery.properties.headers
        encoded = headers.encode()
        if encoded == self._without_context:
            return False
        data = encoded.lower()
        for name in self._context_bytes:
            if data.find(name) >= 0:  # `in` tries bytes as a number first, which takes longer
                fields = self._context_fields
                return any(name.lower() in fields for name, _ in headers.raw_fields())
        self._without_context = encoded
        return False  # as of most, whose headers need not be read for it

    def _context_of(self, delivery: Delivery) -> "Context":
        table = delivery.properties.headers
        carrier = {
            name.lower(): value for name in table if isinstance(value := table.scalar(name), str)
        }
        return self._propagate.extract(carrier)

    def _mark(self, span: "Span", error: BaseException) -> None:
        if (
            span.is_recording()
        ):  # its record_exception would show secrets, and fails where the error has no text
            report = report_of(error)
            attributes = {
                "exception.type": report.type,
                "exception.message": redact(report.message),
                "exception.stacktrace": redact(traceback_of(error)),
            }
            span.add_event("exception", attributes)
        span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)


class _Watched:
    """A running handler that is counted and timed."""

    __slots__ = ("_began", "_error", "_instruments", "_queue", "_times")

    def __init__(self, instruments: Instruments, queue: str) -> None:
        self._instruments = instruments
        self._queue = queue
        self._error = ""
        shard = instruments.tally.own.shard  # asked here, since one is made of each attempt
        count, self._times = shard.attempts.get(queue) or instruments.attempts_of(queue)
        count.value += 1

    def __enter__(self) -> Self:
        self._began = perf_counter()
        return self

    def failed(self, error: BaseException) -> None:
        """It raised."""
        self._error = type(error).__qualname__

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = perf_counter() - self._began
        if self._error:
            self._instruments.record(DURATION, seconds, self._queue, self._error)
            return
        self._times.add(seconds)
        if self._instruments.are_told:
            self._instruments.tell(DURATION, seconds, self._queue)


class _Traced(_Watched):
    """The same, with a span."""

    __slots__ = ("_current", "_mark", "_span")

    def __init__(
        self,
        instruments: Instruments,
        queue: str,
        span: "AbstractContextManager[Span]",
        mark: "Callable[[Span, BaseException], None]",
    ) -> None:
        super().__init__(instruments, queue)
        self._current = span
        self._mark = mark

    def __enter__(self) -> Self:
        self._span = self._current.__enter__()
        super().__enter__()
        return self

    def failed(self, error: BaseException) -> None:
        """It raised."""
        super().failed(error)
        self._mark(self._span, error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._current.__exit__(kind, error, trace)


def _since_published(delivery: Delivery | None) -> float | None:
    """Seconds since a message was published; None where it does not say when that was, or was
    requeued by a person since."""
    if delivery is None:
        return None
    # What was requeued comes with the queue's name at the end of its key, as hardly any other does.
    if delivery.routing_key.endswith(delivery.queue) and COUNT in delivery.properties.headers:
        return None
    return seconds_since(delivery.properties.timestamp, time())


def _about(delivery: Delivery) -> dict[str, str]:
    message_id = delivery.properties.message_id
    known = {"messaging.rabbitmq.destination.routing_key": delivery.original_routing_key}
    return {**known, "messaging.message.id": message_id} if message_id else known


active: Telemetry | None = None
"""What measures and traces; None where nothing does."""


def instrument(
    meter_provider: "MeterProvider | None" = None,
    tracer_provider: "TracerProvider | None" = None,
    *,
    sampling: float = 1.0,
) -> None:
    """Begins to measure and to trace, for every publisher and subscriber of this process.

    Args:
        meter_provider: where metrics go; the global one where none is given.
        tracer_provider: where traces go; the global one where none is given.
        sampling: the share, from 0 to 1, of messages that are traced of those that belong to no
            trace yet. It is decided before anything is done for a span; what the provider's own
            sampler decides comes on top. A message that comes with a context keeps to it.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, or the share is none.
    """
    global active
    active = Telemetry(meter_provider, tracer_provider, sampling)


def uninstrument() -> None:
    """Ends what `instrument` has begun."""
    global active
    active = None


def attempt(queue: str, delivery: Delivery) -> AbstractContextManager[RunningHandler]:
    """Watches a handler for as long as the block, where anything is watched."""
    return _UNWATCHED if active is None else active.attempt(queue, delivery)


def publishing(exchange: str, headers: _Headers | None) -> Publication:
    """Begins to watch a publish, where anything is watched."""
    return (
        Publication(headers, _unwatched) if active is None else active.publishing(exchange, headers)
    )
