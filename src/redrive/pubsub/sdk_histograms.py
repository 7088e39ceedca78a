"""Histograms kept outside OpenTelemetry's SDK, which takes nine microseconds per value and whose
API has no observable histogram.

The specification provides metric producers for this, but the SDK for Python does not have them yet.
Source: https://opentelemetry.io/docs/specs/otel/metrics/sdk/#metricproducer, and
https://github.com/open-telemetry/opentelemetry-python/issues/4768. So this module puts itself
between a provider and its readers. Only this file depends on internals of the SDK; if they have
changed, values are recorded one by one, as for any instrument.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.pubsub.thread_tally import Sums

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import Metric, MetricReader, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

logger = logging.getLogger("redrive")


class Collected(NamedTuple):
    """A snapshot of a histogram: its series, each with its attributes."""

    name: str
    unit: str
    description: str
    bounds: Sequence[float]
    series: Sequence[tuple[dict[str, str], Sums]]


def feed(
    provider: "MeterProvider",
    instruments: Iterable[object],
    collected: Callable[[], Iterable[Collected]],
) -> bool:
    """Make the readers of a provider collect these histograms too; return whether they do.

    They don't if the provider is not the SDK's, or if it must see each value: when a view applies
    to one of these instruments, or a reader wants deltas or another kind of histogram.
    """
    try:
        from opentelemetry.sdk.metrics import MeterProvider
    except ImportError:
        return False
    if not isinstance(provider, MeterProvider):
        return False
    try:
        return _feed(provider, list(instruments), collected)
    except (AttributeError, KeyError, ImportError, TypeError) as error:
        logger.debug("recording each duration in OpenTelemetry's SDK instead: %r", error)
        return False


def _feed(
    provider: Any, instruments: list[Any], collected: Callable[[], Iterable[Collected]]
) -> bool:
    consumer, settings = provider._measurement_consumer, provider._sdk_config
    scope: InstrumentationScope = instruments[0].instrumentation_scope
    readers: list[Any] = list(consumer._reader_storages)
    if not all(map(_takes_sums, readers)) or any(
        view._match(one) for view in settings.views for one in instruments
    ):
        return False
    collect = consumer.collect
    began = time.time_ns()

    def collect_more(reader: "MetricReader", *arguments: Any, **named: Any) -> "MetricsData | None":
        data: MetricsData | None = collect(reader, *arguments, **named)
        if not _takes_sums(reader):
            return data  # the reader was added later
        metrics = [metric for one in collected() if (metric := _metric(one, began)) is not None]
        return _merged(data, scope, metrics, settings.resource) if metrics else data

    for reader in readers:
        reader._set_collect_callback(collect_more)
    consumer.collect = collect_more
    return True


def _takes_sums(reader: Any) -> bool:
    """Check whether a reader wants cumulative histograms with the instrument's own bounds."""
    from opentelemetry.sdk.metrics import Histogram
    from opentelemetry.sdk.metrics.export import AggregationTemporality
    from opentelemetry.sdk.metrics.view import DefaultAggregation

    def of_histograms(by_class: Any) -> Any:
        return next(value for kind, value in by_class.items() if issubclass(kind, Histogram))

    temporality = of_histograms(reader._instrument_class_temporality)
    aggregation = of_histograms(reader._instrument_class_aggregation)
    return (
        temporality is AggregationTemporality.CUMULATIVE and type(aggregation) is DefaultAggregation
    )


def _metric(histogram: Collected, began: int) -> "Metric | None":
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
    )

    if not histogram.series:
        return None
    now = time.time_ns()
    points = [
        HistogramDataPoint(
            attributes,
            start_time_unix_nano=began,
            time_unix_nano=now,
            count=sums.count,
            sum=sums.total,
            bucket_counts=sums.buckets,
            explicit_bounds=tuple(histogram.bounds),
            min=sums.least,
            max=sums.most,
        )
        for attributes, sums in histogram.series
    ]
    return Metric(
        histogram.name,
        histogram.description,
        histogram.unit,
        Histogram(points, AggregationTemporality.CUMULATIVE),
    )


def _merged(
    data: "MetricsData | None",
    scope: "InstrumentationScope",
    metrics: list["Metric"],
    resource: "Resource",
) -> "MetricsData":
    """Return the data that a provider has collected, with these metrics added to a scope."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

    found = list(data.resource_metrics) if data is not None else []
    if not found:
        found = [ResourceMetrics(resource, [], resource.schema_url)]
    scopes = list(found[0].scope_metrics)
    for position, one in enumerate(scopes):
        if one.scope == scope:
            scopes[position] = replace(one, metrics=[*one.metrics, *metrics])
            break
    else:
        scopes.append(ScopeMetrics(scope, metrics, scope.schema_url or ""))
    return MetricsData([replace(found[0], scope_metrics=scopes), *found[1:]])
