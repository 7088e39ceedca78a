"""redrive with metrics and traces on: every message is counted, timed and traced, and the numbers
stay in memory."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.contenders import redrive
from benchmarks.measure import Clock, Ledger, Load, Place
from redrive import instrument


def publish(place: Place, load: Load, clock: Clock) -> int:
    """As redrive's own entry."""
    _switch_on()
    return redrive.publish(place, load, clock)


def consume(place: Place, ledger: Ledger) -> None:
    """As redrive's own entry."""
    _switch_on()
    redrive.consume(place, ledger)


def _switch_on() -> None:
    instrument(MeterProvider([InMemoryMetricReader()]), TracerProvider())
