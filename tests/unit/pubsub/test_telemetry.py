"""What is traced of messages, with a tracer provider that keeps its spans."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.pubsub.telemetry import Telemetry
from redrive.topology.headers import Delivery
from waiting import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"


def tracing(sampling: float) -> tuple[Telemetry, InMemorySpanExporter]:
    """Telemetry that traces such a share, and where its spans go."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Telemetry(MeterProvider(), provider, sampling), kept


def delivered(headers: dict[str, str]) -> Delivery:
    properties = Properties(headers=Table.of(headers))
    return Delivery("shop@orders", "master", "order.paid", properties, b"")


def test_a_publish_that_is_not_sampled_gets_no_header_and_makes_no_span() -> None:
    telemetry, kept = tracing(0)
    publication = telemetry.publishing("master", None)
    publication.ended(None)
    assert (publication.headers, kept.get_finished_spans()) == (None, ())


def test_a_publish_that_is_sampled_carries_its_context() -> None:
    telemetry, kept = tracing(1)
    publication = telemetry.publishing("master", None)
    publication.ended(None)
    assert set(publication.headers or {}) == {"traceparent"}
    assert len(kept.get_finished_spans()) == 1


@pytest.mark.parametrize(("flags", "spans"), [("01", 1), ("00", 0)])
@pytest.mark.parametrize("sampling", [0, 1])
def test_an_attempt_keeps_to_what_was_decided_for_its_trace(
    sampling: float, flags: str, spans: int
) -> None:
    telemetry, kept = tracing(sampling)
    traced = delivered({"traceparent": f"00-{TRACE}-b7ad6b7169203331-{flags}"})
    telemetry.ended(telemetry.begun("shop@orders", traced), None)
    assert len(kept.get_finished_spans()) == spans


@pytest.mark.parametrize(("sampling", "spans"), [(0, 0), (1, 1)])
def test_an_attempt_without_a_trace_begins_one_if_it_is_sampled(
    sampling: float, spans: int
) -> None:
    telemetry, kept = tracing(sampling)
    telemetry.ended(telemetry.begun("shop@orders", delivered({})), ValueError("no"))
    assert len(kept.get_finished_spans()) == spans


def test_an_attempt_without_a_trace_begins_one_of_its_own_whatever_runs_around_it() -> None:
    telemetry, kept = tracing(1)
    with telemetry._tracer.start_as_current_span("around") as around:
        watch = telemetry.begun("shop@orders", delivered({}))
        within = trace.get_current_span()
        telemetry.ended(watch, None)
        assert trace.get_current_span() is around
    attempt = kept.get_finished_spans()[0]
    assert attempt.context == within.get_span_context()
    assert attempt.parent is None
    assert within.get_span_context().trace_id != around.get_span_context().trace_id


def test_nothing_is_done_for_spans_before_there_is_a_provider_that_makes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telemetry = Telemetry(MeterProvider())
    assert telemetry.publishing("master", None).headers is None
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(telemetry, "_tracer", provider.get_tracer("redrive"))
    headers = wait_until(lambda: telemetry.publishing("master", None).headers, "it is found")
    assert set(headers or ()) == {"traceparent"}


@pytest.mark.parametrize("sampling", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(sampling: float) -> None:
    with pytest.raises(ConfigurationError, match=f"sampling is {sampling}\nGive a share"):
        tracing(sampling)
