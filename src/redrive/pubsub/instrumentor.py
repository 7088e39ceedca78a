"""Instrumentor for OpenTelemetry's `opentelemetry-instrument`, which finds it by the entry point
`opentelemetry_instrumentor`.

It has the methods of `opentelemetry.instrumentation.instrumentor.BaseInstrumentor` without
inheriting from it, since redrive depends only on OpenTelemetry's API. Source:
opentelemetry-instrumentation 0.66b2, instrumentor.py and auto_instrumentation/_load.py.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from redrive.pubsub import telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class RedriveInstrumentor:
    """Singleton that starts and stops metrics and traces, as `redrive.instrument` does."""

    _instance: ClassVar["RedriveInstrumentor | None"] = None

    def __new__(cls) -> "RedriveInstrumentor":
        """Return the only instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether redrive records metrics and traces."""
        return telemetry.active is not None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the package that it instruments: redrive itself, in any version."""
        return ["redrive"]

    def instrument(
        self,
        *,
        meter_provider: "MeterProvider | None" = None,
        tracer_provider: "TracerProvider | None" = None,
        sampling: float = 1.0,
        **_: object,
    ) -> None:
        """Start metrics and traces, unless they are on already."""
        if telemetry.active is None:
            telemetry.instrument(meter_provider, tracer_provider, sampling=sampling)

    def uninstrument(self, **_: object) -> None:
        """Stop metrics and traces; do nothing if they are off."""
        telemetry.uninstrument()
