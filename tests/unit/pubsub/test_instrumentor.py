"""redrive's entry point for OpenTelemetry, as its own loader takes it."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

import pytest
from opentelemetry.instrumentation.auto_instrumentation._load import _load_instrumentors
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts
from opentelemetry.instrumentation.distro import DefaultDistro  # type: ignore[attr-defined]
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]
    BaseInstrumentor,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from redrive import ConfigurationError, instrument
from redrive.pubsub import telemetry
from redrive.pubsub.instrumentor import RedriveInstrumentor


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    telemetry.uninstrument()


def entry_point() -> EntryPoint:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="redrive")
    return found


def test_opentelemetry_s_loader_begins_to_measure_and_to_trace() -> None:
    _load_instrumentors(DefaultDistro())  # type: ignore[no-untyped-call]
    assert telemetry.active is not None


def test_opentelemetry_sees_nothing_that_would_keep_it_from_loading_it() -> None:
    distribution = entry_point().dist
    assert distribution is not None
    assert get_dist_dependency_conflicts(distribution) is None


def test_it_is_loaded_with_the_arguments_that_a_distribution_gives() -> None:
    provider = TracerProvider()
    DefaultDistro().load_instrumentor(
        entry_point(),
        tracer_provider=provider,
        meter_provider=MeterProvider(),
        skip_dep_check=True,
        raise_exception_on_conflict=True,
    )
    assert telemetry.active is not None
    assert telemetry.active._tracer.__dict__["resource"] is provider.resource


def test_it_has_what_an_instrumentor_has() -> None:
    public = {name for name in vars(BaseInstrumentor) if not name.startswith("_")}
    assert public <= set(dir(RedriveInstrumentor))


def test_it_ends_what_it_began_and_says_so() -> None:
    RedriveInstrumentor().instrument()
    assert RedriveInstrumentor().is_instrumented_by_opentelemetry
    RedriveInstrumentor().uninstrument()
    assert not RedriveInstrumentor().is_instrumented_by_opentelemetry
    assert telemetry.active is None
    RedriveInstrumentor().uninstrument()


def test_what_a_program_has_begun_itself_stays() -> None:
    instrument(MeterProvider(), TracerProvider(), sampling=0.01)
    begun = telemetry.active
    RedriveInstrumentor().instrument()
    assert telemetry.active is begun


def test_the_share_that_is_traced_can_be_given() -> None:
    with pytest.raises(ConfigurationError, match="sampling is 2"):
        RedriveInstrumentor().instrument(sampling=2)
