"""Metrics and traces, by OpenTelemetry's API: which SDK takes them, and where to, is the program's
choice.

    redrive.instrument()     # after the program has set its providers; needs redrive[metrics]

Until then nothing is measured, and nothing is paid. One trace goes through all that happens to a
message: its publisher puts the context into the headers, where every move keeps it. Names are those
of OpenTelemetry's conventions for messaging, and `redrive.…` where there is none. Source:
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
from redrive.pubsub.thread_tally import AT_A_TIME, Distribution
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
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_T = TypeVar("_T")
_Headers = Mapping[str, FieldValue]
_PROVIDER_EVERY = 0.1
"""Seconds after which it is asked again for a provider of spans, which takes a microsecond."""


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
        self._context = context
        self._has_tracer = tracer_provider is not None
        self._without_context = b""
        """The headers of a message that belongs to no trace: most of a queue's are alike."""
        self._asked_again_at = 0.0
        """When it is asked again whether there is a provider by now, by `perf_counter`."""
        self._propagate = propagate
        self._sampling = sampling
        self._context_fields = frozenset(propagate.get_global_textmap().fields)
        self._context_bytes = tuple(name.encode() for name in self._context_fields)
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._instruments = instruments_of(meter_provider or metrics.get_meter_provider())

    def publishing(self, exchange: str, headers: _Headers | None) -> "Publication":
        """Begins to watch a publish."""
        if self._is_untraced():
            return Publication(headers, partial(_count_sent, self._instruments, exchange))
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

        return Publication({**(headers or {}), **context}, ended)

    def watched(
        self,
        exchange: str,
        headers: _Headers | None,
        settled: Callable[[_T, RedriveError | None], None],
    ) -> tuple[_Headers | None, Callable[[_T, RedriveError | None], None]]:
        """Watches one publish of many: the headers to send, and what to call when it is settled."""
        if self._is_untraced():
            return headers, _Counted(self._instruments, exchange, settled)
        publication = self.publishing(exchange, headers)

        def settle(outgoing: _T, error: RedriveError | None) -> None:
            publication.ended(error)
            settled(outgoing, error)

        return publication.headers, settle

    def begun(self, queue: str, delivery: Delivery) -> "Watch":
        """An attempt begins, on this thread and in this context; `ended` is told of its end."""
        shard = self._instruments.tally.own.shard
        count, times = shard.attempts.get(queue) or self._instruments.attempts_of(queue)
        count.value += 1
        if not count.value % AT_A_TIME:
            times.sort_in()
        span = None
        began = perf_counter()
        # In two steps, since most attempts are in no trace, and a call takes a tenth of all this.
        if self._has_tracer or (began > self._asked_again_at and self._makes_spans()):
            span = self._span_of(queue, delivery)
            if span is not None:
                began = perf_counter()  # without what it took to begin it
        return self, queue, times, span, began

    def _span_of(self, queue: str, delivery: Delivery) -> "_Span | None":
        """The span of an attempt, which has begun; None where it is in no trace."""
        carries_context = self._carries_context(delivery)
        if not carries_context and not self._begins_a_trace():
            return None
        span = self._tracer.start_span(
            f"process {queue}",
            # What runs around is no parent: a subscriber may have been started in a trace.
            context=self._context_of(delivery) if carries_context else self._context.Context(),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={**PROCESS, "messaging.destination.name": queue, **_about(delivery)},
        )
        return span, self._context.attach(self._trace.set_span_in_context(span))

    def ended(self, watch: "Watch", error: BaseException | None) -> None:
        """An attempt has ended.

        Args:
            watch: what its beginning gave.
            error: what the handler has raised.
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
        """The handler has returned for these, and they are acknowledged together."""
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
        """A verdict was carried out."""
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
        if sampling < 1 and (not sampling or random() >= sampling):
            return False
        return self._makes_spans()

    def _makes_spans(self) -> bool:
        """Whether there is a provider that makes spans by now."""
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
        """Whether what is published now goes on with a trace, sampled or not."""
        # Most have no context at all, and to be told that costs a third.
        return (
            bool(self._context.get_current())
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


class _Counted(Generic[_T]):
    """Counts a publish of many once it is settled.

    A function in its place would be five objects that Python looks through for garbage, again and
    again while they are in flight: that took more time than all else that is measured.
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
        """It is settled."""
        _count_sent(self._instruments, self._exchange, error)
        self._settled(outgoing, error)


def _count_sent(instruments: Instruments, exchange: str, error: RedriveError | None) -> None:
    instruments.add(SENT, exchange, "" if error is None else type(error).__name__)


def _since_published(deliveries: Iterable[Delivery | None]) -> list[float]:
    """Seconds since messages were published, without those that do not say when that was, or were
    requeued by a person since."""
    now = time()
    found: list[float] = []
    for delivery in deliveries:
        if delivery is None:
            continue
        properties = delivery.properties
        # What was requeued comes with the queue's name at the end of its key, as hardly any other
        # does.
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
"""The span of an attempt, and what was the current one before."""
Watch = tuple[Telemetry, str, Distribution, _Span | None, float]
"""An attempt that runs: what watches it, its queue, what is known of the time that others took, its
span and when it began. A tuple, since one is made of each attempt and a class takes five times as
long."""

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


def begun(queue: str, delivery: Delivery) -> Watch | None:
    """An attempt begins, which is watched where anything is."""
    return None if active is None else active.begun(queue, delivery)


def ended(watch: Watch | None, error: BaseException | None) -> None:
    """The attempt has ended, with what its handler has raised; on the thread and in the context
    that it began in."""
    if watch is not None:
        watch[0].ended(watch, error)


def publishing(exchange: str, headers: _Headers | None) -> Publication:
    """Begins to watch a publish, where anything is watched."""
    return (
        Publication(headers, _unwatched) if active is None else active.publishing(exchange, headers)
    )
