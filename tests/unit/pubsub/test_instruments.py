"""What is measured, as providers of OpenTelemetry's SDK collect it."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
)
from opentelemetry.sdk.metrics.view import (
    Aggregation,
    DropAggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from prometheus_client.parser import text_string_to_metric_families

from redrive import uninstrument
from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.pubsub import late_attempts, order_counts, sdk_histograms, stops, telemetry
from redrive.pubsub.instruments import CRITICAL_TIME, DURATION, Instruments
from redrive.pubsub.late_attempts import LateAttempts
from redrive.pubsub.order_counts import OrderCounts, OrderedQueues
from redrive.pubsub.probes import measuring
from redrive.pubsub.stops import Stop, Stops
from redrive.pubsub.telemetry import Telemetry
from redrive.pubsub.verdict import Verdict
from redrive.topology.decision import Ack, Discard, Drop, MoveToFailed, Settlement
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import ErrorReport

QUEUE = "shop@orders"
INFINITY = float("inf")


def delivered(published: int | None = None, headers: dict[str, int] | None = None) -> Delivery:
    properties = Properties(headers=Table.of(headers or {}), timestamp=published)
    return Delivery(QUEUE, "master", "order.paid", properties, b"")


def requeued(published: int) -> Delivery:
    properties = Properties(headers=Table.of({"redrive-count": 1}), timestamp=published)
    return Delivery(QUEUE, "", QUEUE, properties, b"")


def verdict_of(settlement: Settlement) -> Verdict:
    """A verdict with this settlement, of which no more is asked."""
    return Verdict(settlement, step=None)  # type: ignore[arg-type]


def metric(reader: InMemoryMetricReader, name: str) -> Metric | None:
    """A metric of what a reader collects now; None where there is none of it."""
    data = reader.get_metrics_data()
    if data is None:
        return None
    found = [
        one
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
        if one.name == name
    ]
    assert len(found) <= 1
    return found[0] if found else None


def points(reader: InMemoryMetricReader, name: str) -> list[HistogramDataPoint]:
    """The points of a histogram."""
    found = metric(reader, name)
    assert found is not None
    assert isinstance(found.data, Histogram)
    return list(found.data.data_points)


def attempt(measured: Telemetry, error: Exception | None = None) -> None:
    measured.ended(measured.begun(QUEUE, delivered()), error)


@pytest.fixture
def scrape() -> Iterator[Callable[[], str]]:
    """Measures; gives what Prometheus would scrape."""
    scraped, _ = measuring("the test")
    yield lambda: scraped().decode()
    uninstrument()


Buckets = dict[str, list[tuple[float, float]]]


def scraped_buckets(text: str, name: str) -> tuple[Buckets, dict[str, float], dict[str, float]]:
    """The buckets, the counts and the sums of a histogram, by its other labels."""
    buckets: Buckets = {}
    counts: dict[str, float] = {}
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == name else ():
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            series = repr(sorted(labels.items()))
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                buckets.setdefault(series, []).append((bound, sample.value))
            elif sample.name.endswith("_count"):
                counts[series] = sample.value
            elif sample.name.endswith("_sum"):
                sums[series] = sample.value
    return buckets, counts, sums


def test_scraped_buckets_rise_to_the_count_and_never_fall_while_threads_add_to_them(
    scrape: Callable[[], str],
) -> None:
    measured = telemetry.active
    assert measured is not None
    before: dict[tuple[str, float], float] = {}
    scrapes = 0

    def run() -> None:
        for number in range(3000):
            attempt(measured, ValueError() if number % 3 == 0 else None)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    while scrapes < 3 or any(thread.is_alive() for thread in threads):
        buckets, counts, _ = scraped_buckets(scrape(), "messaging_process_duration_seconds")
        for series, rising in buckets.items():
            assert all(less[1] <= more[1] for less, more in pairwise(rising))
            assert rising[-1] == (INFINITY, counts[series])
            for bound, count in rising:
                assert count >= before.get((series, bound), 0)
                before[series, bound] = count
        scrapes += 1
    for thread in threads:
        thread.join()
    _, counts, _ = scraped_buckets(scrape(), "messaging_process_duration_seconds")
    assert sorted(counts.values()) == [4 * 1000, 4 * 2000]


def test_a_scraped_sum_is_that_of_all_durations(scrape: Callable[[], str]) -> None:
    measured = telemetry.active
    assert measured is not None
    began = time.perf_counter()
    for _ in range(3):
        watch = measured.begun(QUEUE, delivered())
        time.sleep(0.03)
        measured.ended(watch, None)
    took = time.perf_counter() - began
    buckets, counts, sums = scraped_buckets(scrape(), "messaging_process_duration_seconds")
    ((series, total),) = sums.items()
    assert 0.09 <= total <= took
    assert counts[series] == 3
    assert dict(buckets[series])[0.025] == 0


def test_a_failed_attempt_is_timed_by_the_type_of_its_error() -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    attempt(measured, KeyError("no"))
    (point,) = points(reader, "messaging.process.duration")
    assert dict(point.attributes or {})["error.type"] == "KeyError"


def test_what_runs_is_what_was_begun_and_has_not_ended() -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))

    def running() -> list[float]:
        found = metric(reader, "redrive.attempts.running")
        assert found is not None
        return [point.value for point in found.data.data_points]  # type: ignore[union-attr]

    first, second = (measured.begun(QUEUE, delivered()) for _ in range(2))
    assert running() == [2]
    measured.ended(first, ValueError())
    assert running() == [1]
    measured.ended(second, None)
    assert running() == [0]


def test_handlers_that_run_on_though_their_time_is_up_are_a_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = LateAttempts()
    monkeypatch.setattr(late_attempts, "of_this_process", late)
    Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    late.add(QUEUE, 2)
    late.add(QUEUE, -1)
    found = metric(reader, "redrive.attempts.late")
    assert found is not None
    (point,) = found.data.data_points
    assert dict(point.attributes or {})["messaging.destination.name"] == QUEUE
    assert point.value == 1  # type: ignore[union-attr]


class Waiting:
    """A subscriber of an ordered queue."""

    queue = QUEUE
    order_counts = OrderCounts(1, 2, 3, 4)


def test_what_an_ordered_queue_waits_for_is_a_metric_each(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = OrderedQueues()
    monkeypatch.setattr(order_counts, "of_this_process", queues)
    Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    queues.add(Waiting())
    found = []
    for name in ("blocked_keys", "behind", "parked_keys", "keyless"):
        told = metric(reader, f"redrive.order.{name}")
        assert told is not None
        (point,) = told.data.data_points
        found.append(point.value)  # type: ignore[union-attr]
    assert found == [1, 2, 3, 4]


def test_subscribers_that_are_stopped_are_a_metric_that_says_why_as_long_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stops, "of_this_process", stopped := Stops())
    Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    stopped.add(outage := Stop(QUEUE, "billing"))
    stopped.add(Stop(QUEUE, "paused", "paused by ops"))
    stopped.remove(outage)
    found = metric(reader, "redrive.subscribers.stopped")
    assert found is not None
    (point,) = found.data.data_points
    attributes = dict(point.attributes or {})
    assert attributes["redrive.reason"] == "paused"
    assert attributes["redrive.note"] == "paused by ops"


@pytest.mark.parametrize(
    ("settlement", "outcome"),
    [
        (Ack(), "handled"),
        (Drop(), "let-go"),
        (Discard("not-retryable", 0), "discarded"),
        (MoveToFailed("retries-exhausted", ErrorReport("ValueError", "no"), 1), "given-up"),
    ],
)
def test_critical_time_is_from_the_publisher_s_timestamp_to_the_end_by_outcome(
    settlement: Settlement, outcome: str
) -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]), sampling=0)
    measured.settled(QUEUE, delivered(int(time.time()) - 90), verdict_of(settlement))
    (point,) = points(reader, "redrive.critical_time")
    assert dict(point.attributes or {}) == {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": QUEUE,
        "redrive.outcome": outcome,
    }
    assert point.sum >= 90
    assert sum(point.bucket_counts) == point.count == 1
    assert point.bucket_counts[point.explicit_bounds.index(60)] == 0


@pytest.mark.parametrize(
    "message",
    [
        delivered(None),
        delivered(int(time.time()) + 3600),
        delivered(2**64 - 1),
        requeued(int(time.time()) - 90),
        None,
    ],
    ids=["no timestamp", "a future one", "no moment at all", "requeued", "not readable"],
)
def test_a_message_that_says_no_usable_time_has_no_critical_time(message: Delivery | None) -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    measured.settled(QUEUE, message, verdict_of(Ack()))
    assert metric(reader, "redrive.messages.handled") is not None
    assert metric(reader, "redrive.critical_time") is None


def test_a_publisher_who_says_that_a_message_was_requeued_is_not_believed() -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    forged = delivered(int(time.time()) - 90, {"redrive-count": 1})
    measured.settled(QUEUE, forged, verdict_of(Ack()))
    assert len(points(reader, "redrive.critical_time")) == 1


def test_a_publisher_s_clock_that_is_a_little_ahead_counts_as_no_time_at_all() -> None:
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    measured.settled(QUEUE, delivered(int(time.time()) + 30), verdict_of(Ack()))
    (point,) = points(reader, "redrive.critical_time")
    assert (point.sum, point.bucket_counts[0]) == (0, 1)


def test_the_installed_sdk_reads_the_histograms_itself() -> None:
    """If this fails, a new version of the SDK tells each reader otherwise what to collect."""
    assert not Instruments(MeterProvider([InMemoryMetricReader()])).are_told


def test_each_reader_of_a_provider_gets_all() -> None:
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    measured = Telemetry(MeterProvider(readers))
    attempt(measured)
    for _ in range(2):
        assert [points(one, DURATION.name)[0].count for one in readers] == [1, 1]


def test_a_histogram_comes_beside_what_a_program_measures_itself() -> None:
    provider = MeterProvider([reader := InMemoryMetricReader()])
    measured = Telemetry(provider)
    provider.get_meter("shop").create_counter("orders").add(1)
    attempt(measured)
    assert metric(reader, "orders") is not None
    assert metric(reader, DURATION.name) is not None


def test_a_view_of_the_program_s_holds() -> None:
    views = [
        View(
            instrument_name=DURATION.name, aggregation=ExplicitBucketHistogramAggregation((1, 60))
        ),
        View(instrument_name=CRITICAL_TIME.name, aggregation=DropAggregation()),
    ]
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()], views=views))
    attempt(measured)
    measured.settled(QUEUE, delivered(int(time.time())), verdict_of(Ack()))
    (point,) = points(reader, DURATION.name)
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([1, 60], [1, 0, 0])
    assert metric(reader, CRITICAL_TIME.name) is None


def test_a_reader_that_wants_differences_gets_them() -> None:
    reader = InMemoryMetricReader({HistogramInstrument: AggregationTemporality.DELTA})
    measured = Telemetry(MeterProvider([reader]))
    for attempts in (2, 1):
        for _ in range(attempts):
            attempt(measured, ValueError())
        (point,) = points(reader, DURATION.name)
        assert point.count == attempts


def test_a_reader_that_wants_another_histogram_gets_it() -> None:
    exponential: dict[type, Aggregation] = {
        HistogramInstrument: ExponentialBucketHistogramAggregation()
    }
    reader = InMemoryMetricReader(preferred_aggregation=exponential)
    measured = Telemetry(MeterProvider([reader]))
    attempt(measured)
    measured.settled(QUEUE, delivered(int(time.time())), verdict_of(Ack()))
    found = metric(reader, DURATION.name)
    assert found is not None
    assert isinstance(found.data, ExponentialHistogram)
    assert metric(reader, CRITICAL_TIME.name) is not None


def test_a_provider_that_is_not_the_sdk_s_is_told() -> None:
    measured = Telemetry(NoOpMeterProvider())
    attempt(measured)
    attempt(measured, ValueError())
    measured.settled(QUEUE, delivered(int(time.time())), verdict_of(Ack()))
    assert measured._instruments.are_told


def test_an_sdk_with_other_insides_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(_: object) -> bool:
        raise AttributeError("_instrument_class_temporality")

    monkeypatch.setattr(sdk_histograms, "_takes_sums", changed)
    measured = Telemetry(MeterProvider([reader := InMemoryMetricReader()]))
    attempt(measured)
    assert points(reader, DURATION.name)[0].count == 1


def test_a_provider_without_a_reader_is_no_trouble() -> None:
    attempt(Telemetry(MeterProvider()))
