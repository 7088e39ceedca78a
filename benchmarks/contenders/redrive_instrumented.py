"""redrive with metrics and traces on, whose numbers stay in memory: every message is counted and
timed, and all or one in a hundred begin a trace, or there are no traces."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.contenders import redrive
from benchmarks.measure import Clock, Ledger, Load, Place
from redrive import instrument


def publish(place: Place, load: Load, clock: Clock) -> int:
    """As redrive's own entry; each publish has a span."""
    _switch_on(1.0)
    return redrive.publish(place, load, clock)


def publish_sampled(place: Place, load: Load, clock: Clock) -> int:
    """The same with a span for one publish in a hundred."""
    _switch_on(0.01)
    return redrive.publish(place, load, clock)


def publish_counted(place: Place, load: Load, clock: Clock) -> int:
    """Metrics alone."""
    instrument(MeterProvider([InMemoryMetricReader()]))
    return redrive.publish(place, load, clock)


def consume(place: Place, ledger: Ledger) -> None:
    """As redrive's own entry; each attempt has a span."""
    _switch_on(1.0)
    redrive.consume(place, ledger)


def _switch_on(sampling: float) -> None:
    instrument(MeterProvider([InMemoryMetricReader()]), TracerProvider(), sampling=sampling)
