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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from redrive.amqp.field_table import FieldValue
from redrive.errors import ConfigurationError, RedriveError
from redrive.pubsub.handler_error import report_of, traceback_of
from redrive.pubsub.thread_counter import counter_of
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
from redrive.topology.headers import Delivery

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_T = TypeVar("_T")
_Headers = Mapping[str, FieldValue]
_SYSTEM = {"messaging.system": "rabbitmq"}
_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)


class RunningHandler(Protocol):
    """A running handler."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


class _Unwatched:
    """A running handler that nobody watches."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


_UNWATCHED: AbstractContextManager[RunningHandler] = contextlib.nullcontext(_Unwatched())


@dataclass(frozen=True, slots=True)
class Publication:
    """A publish on its way.

    Args:
        headers: the user's, and the trace's context where there is one.
        ended: to be called when it is confirmed, with None, or when it is not, with why.
    """

    headers: _Headers | None
    ended: Callable[[RedriveError | None], None]

    def watched(
        self, settled: Callable[[_T, RedriveError | None], None]
    ) -> Callable[[_T, RedriveError | None], None]:
        """Does what `settled` does, and ends this."""

        def settle(outgoing: _T, error: RedriveError | None) -> None:
            self.ended(error)
            settled(outgoing, error)

        return settle


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
            from opentelemetry import metrics, propagate, trace
        except ImportError as error:
            raise ConfigurationError(
                "metrics and traces need OpenTelemetry, which is not installed",
                "pip install 'redrive[metrics]'",
            ) from error
        self._trace = trace
        self._propagate = propagate
        self._sampling = sampling
        self._context_fields = frozenset(propagate.get_global_textmap().fields)
        self._tracer = trace.get_tracer("redrive", tracer_provider=tracer_provider)
        provider = meter_provider or metrics.get_meter_provider()
        meter = provider.get_meter("redrive")
        self._sent = counter_of(
            provider,
            "messaging.client.sent.messages",
            "{message}",
            "Messages that were published, and how that ended.",
        )
        self._consumed = counter_of(
            provider, "messaging.client.consumed.messages", "{message}", "Attempts that were begun."
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long handlers ran.",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self._running = counter_of(
            provider,
            "redrive.attempts.running",
            "{attempt}",
            "Handlers that run now.",
            falls=True,
        )
        self._handled = counter_of(
            provider, "redrive.messages.handled", "{message}", "Messages whose handler returned."
        )
        self._retried = counter_of(
            provider,
            "redrive.messages.retried",
            "{message}",
            "Failed attempts that are tried again.",
        )
        self._given_up = counter_of(
            provider, "redrive.messages.given_up", "{message}", "Messages that were set aside."
        )
        self._let_go = counter_of(
            provider,
            "redrive.messages.let_go",
            "{message}",
            "Broadcast messages that failed and are done all the same.",
        )
        self._redriven = counter_of(
            provider,
            "redrive.messages.redriven",
            "{message}",
            "Failed messages that were requeued.",
        )

    def publishing(self, exchange: str, headers: _Headers | None) -> "Publication":
        """Begins to watch a publish."""
        attributes = {**_operation("send", "send"), "messaging.destination.name": exchange}
        if not self._belongs_to_trace_here() and not self._begins_a_trace():

            def counted(error: RedriveError | None) -> None:
                self._sent.add(1, {**attributes, **_outcome(error)})

            return Publication(headers, counted)
        span = self._tracer.start_span(
            f"send {exchange}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        )
        context: dict[str, str] = {}
        self._propagate.inject(context, self._trace.set_span_in_context(span))

        def ended(error: RedriveError | None) -> None:
            self._sent.add(1, {**attributes, **_outcome(error)})
            if error is not None:
                span.set_status(self._trace.StatusCode.ERROR, redact(str(error)))
            span.end()

        return Publication({**(headers or {}), **context}, ended)

    @contextlib.contextmanager
    def attempt(self, queue: str, delivery: Delivery) -> Iterator[RunningHandler]:
        """Watches a handler for as long as the block."""
        attributes = {**_operation("process", "process"), "messaging.destination.name": queue}
        self._consumed.add(1, attributes)
        self._running.add(1, attributes)
        began = time.perf_counter()
        outcome: dict[str, str] = {}
        try:
            with (
                self._tracer.start_as_current_span(
                    f"process {queue}",
                    context=self._context_of(delivery),
                    kind=self._trace.SpanKind.CONSUMER,
                    attributes={**attributes, **_about(delivery)},
                )
                if self._carries_context(delivery) or self._begins_a_trace()
                else contextlib.nullcontext(self._trace.INVALID_SPAN)
            ) as span:
                yield _Watched(outcome, lambda error: self._mark(span, error))
        finally:
            self._running.add(-1, attributes)
            self._duration.record(time.perf_counter() - began, {**attributes, **outcome})

    def settled(self, queue: str, delivery: Delivery | None, verdict: Verdict) -> None:
        """A verdict was carried out."""
        attributes = {**_SYSTEM, "messaging.destination.name": queue}
        settlement = verdict.settlement
        match settlement:
            case Ack():
                self._handled.add(1, attributes)
            case (
                RetryByReject()
                | RetryByRepublish()
                | RetryByLadder()
                | RetryByBroker()
                | RetryInPlace()
            ):
                self._retried.add(1, attributes)
            case Drop():
                self._let_go.add(1, attributes)
            case MoveToFailed(reason):
                self._given_up.add(1, {**attributes, "redrive.reason": reason})
                if delivery is not None:
                    self._note(
                        f"give up {queue}",
                        delivery,
                        {**attributes, **_operation("give up", "settle"), "redrive.reason": reason},
                    )
            case _:
                assert_never(settlement)

    def redriven(self, queue: str, delivery: Delivery) -> None:
        """A failed message is back in its main queue."""
        attributes = {**_SYSTEM, "messaging.destination.name": queue}
        self._redriven.add(1, attributes)
        self._note(f"redrive {queue}", delivery, {**attributes, **_operation("redrive", "send")})

    def _note(self, name: str, delivery: Delivery, attributes: dict[str, str]) -> None:
        """A moment in the trace of a message, if it belongs to one."""
        if self._sampling < 1 and not self._carries_context(delivery):
            return
        self._tracer.start_span(
            name, context=self._context_of(delivery), attributes={**attributes, **_about(delivery)}
        ).end()

    def _begins_a_trace(self) -> bool:
        """Whether a message that belongs to no trace begins one, by chance."""
        return self._sampling == 1 or random.random() < self._sampling

    def _belongs_to_trace_here(self) -> bool:
        """Whether what is published now goes on with a trace, sampled or not."""
        return self._trace.get_current_span().get_span_context().is_valid

    def _carries_context(self, delivery: Delivery) -> bool:
        """Whether a message says that it belongs to a trace, sampled or not."""
        return not self._context_fields.isdisjoint(map(str.lower, delivery.properties.headers))

    def _context_of(self, delivery: Delivery) -> "Context":
        table = delivery.properties.headers
        carrier = {
            name.lower(): value for name in table if isinstance(value := table.scalar(name), str)
        }
        return self._propagate.extract(carrier)

    def _mark(self, span: object, error: BaseException) -> None:
        assert isinstance(span, self._trace.Span)
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
    """A running handler that is watched."""

    def __init__(self, outcome: dict[str, str], mark: Callable[[BaseException], None]) -> None:
        self._outcome = outcome
        self._mark = mark

    def failed(self, error: BaseException) -> None:
        """It raised."""
        self._outcome["error.type"] = type(error).__qualname__
        self._mark(error)


def _outcome(error: RedriveError | None) -> dict[str, str]:
    return {} if error is None else {"error.type": type(error).__name__}


def _operation(name: str, kind: str) -> dict[str, str]:
    """Source: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/"""
    return {**_SYSTEM, "messaging.operation.name": name, "messaging.operation.type": kind}


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
