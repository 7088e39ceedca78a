"""What OpenTelemetry's `opentelemetry-instrument` finds of redrive, by the entry point
`opentelemetry_instrumentor`.

It has the methods of `opentelemetry.instrumentation.instrumentor.BaseInstrumentor`, and is not made
of that: redrive needs OpenTelemetry's API alone. Source: opentelemetry-instrumentation 0.66b2,
instrumentor.py and auto_instrumentation/_load.py.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from redrive.pubsub import telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class RedriveInstrumentor:
    """Begins to measure and to trace, as `redrive.instrument` does, and ends it. There is one of
    it, as of any instrumentor."""

    _instance: ClassVar["RedriveInstrumentor | None"] = None

    def __new__(cls) -> "RedriveInstrumentor":
        """The one that there is."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether redrive measures and traces."""
        return telemetry.active is not None

    def instrumentation_dependencies(self) -> Collection[str]:
        """What it instruments: the redrive that it is part of, whichever that is."""
        return ["redrive"]

    def instrument(
        self,
        *,
        meter_provider: "MeterProvider | None" = None,
        tracer_provider: "TracerProvider | None" = None,
        sampling: float = 1.0,
        **_: object,
    ) -> None:
        """Begins to measure and to trace. Where that is done already, nothing changes."""
        if telemetry.active is None:
            telemetry.instrument(meter_provider, tracer_provider, sampling=sampling)

    def uninstrument(self, **_: object) -> None:
        """Ends it. Where nothing was begun, nothing changes."""
        telemetry.uninstrument()
