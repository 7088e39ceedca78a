"""`redrive exporter`: serves queue metrics of a broker to Prometheus, without any worker."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import options
from redrive.cli.interrupt import ended_by_signals
from redrive.cli.log_options import Level, LogFormat, LogFormatOption, LogLevelOption, log_to_stderr
from redrive.cli.metrics_server import place_of, serving_pages
from redrive.cli.output import OutputFormat, Printer
from redrive.errors import ConfigurationError
from redrive.pubsub.admin.broker_watch import QUEUES, SURVEYS, BrokerSample, BrokerWatch
from redrive.pubsub.admin.queue_metrics import GAUGES, Gauge, Sample, samples_of
from redrive.pubsub.probes import TEXT, Answer
from redrive.pubsub.url import BrokerURL, Endpoint
from redrive.topology.durations import duration_of

if TYPE_CHECKING:
    from prometheus_client import Metric

MANAGEMENT_UP = Gauge(
    "redrive.management.up",
    "1",
    "Whether the management API reports the queues, and the dead-letter queues of others.",
)


@options.expanded
def exporter(
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve /metrics for Prometheus, /health and /ready at this address. :9464 is that "
            "port on every interface; write an IPv6 address in brackets, [::1]:9464.",
        ),
    ] = "127.0.0.1:9464",
    every: Annotated[
        str,
        typer.Option("--every", metavar="DURATION", help="How often to ask the management API."),
    ] = "15s",
    log_level: LogLevelOption = Level.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
    *,
    broker: options.BrokerOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Serve queue metrics to Prometheus, without any worker.

    It serves the number of messages, by state, and of consumers for each main, retry and failed
    queue of the virtual host, for delay ladders, and for the dead-letter queues that redrive did
    not make. It also serves how long ago the message at the head of a queue was published, if the
    broker reports that. The metrics have the names that redrive run --metrics uses. It only asks
    the management API, so it touches no messages.

    If the API does not answer, there are no numbers: redrive_management_up is 0, /ready says why,
    and it keeps asking. It runs until SIGTERM or Ctrl-C, and exits with 0.

    \b
    Example:
      redrive exporter --metrics :9464 --management-url http://rabbit:15672
    """
    printer = Printer(output)
    place = place_of(metrics)
    pause = duration_of(every, "--every")
    if pause.total_seconds() < 1:
        raise ConfigurationError(
            f"--every is {every}, and the broker counts every five seconds",
            "Give a second or more.",
        )
    url = BrokerURL.parse(broker.url)
    log_to_stderr(log_level, log_format)
    watch = BrokerWatch(url, broker.management_url, pause)
    scrape = _scraper(watch)
    pages = {
        "/metrics": lambda: Answer(200, TEXT, scrape()),
        "/health": lambda: _answer(watch.alive, {"healthy": watch.alive}),
        "/ready": lambda: _readiness(watch.now()),
    }
    with ended_by_signals() as ended, contextlib.ExitStack() as stack:
        stack.callback(watch.stop)
        watch.start()
        with serving_pages(place, pages) as port:
            address = f"http://{Endpoint(place.host or '*', port)}/metrics"
            printer.result({"address": address, "broker": url.address})
            printer.say(f"Serving the queues of {url.address} at {address}. Ctrl-C ends it.")
            sys.stdout.flush()
            ended.wait()


def _answer(well: bool, said: Mapping[str, object]) -> Answer:
    return Answer(200 if well else 503, "application/json", json.dumps(said).encode() + b"\n")


def _readiness(told: BrokerSample) -> Answer:
    """Return status 200 while the queues are measured, else 503 and the reasons."""
    ready = QUEUES not in told.problems
    known = {survey: survey not in told.problems for survey in SURVEYS}
    return _answer(ready, {"ready": ready, "measured": known, "problems": dict(told.problems)})


def _scraper(watch: BrokerWatch) -> Callable[[], bytes]:
    """Return a function that returns the metrics in Prometheus' format."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise ConfigurationError(
            "redrive exporter needs prometheus_client, which is not installed",
            "pip install 'redrive[metrics]'",
        ) from error

    class Collector:
        """A collector of what is known at the time of a scrape."""

        def collect(self) -> "Iterator[Metric]":
            return _families(watch.now())

    registry = CollectorRegistry()
    registry.register(Collector())
    return lambda: generate_latest(registry)


def _families(told: BrokerSample) -> "Iterator[Metric]":
    now = time.time()
    samples = [one for role, count in told.queues for one in samples_of(role, count, now)]
    for gauge in GAUGES:
        yield _family(gauge, [one for one in samples if one.gauge is gauge])
    yield _family(
        MANAGEMENT_UP,
        [
            Sample(MANAGEMENT_UP, survey not in told.problems, {"redrive.survey": survey})
            for survey in SURVEYS
        ],
    )


def _family(gauge: Gauge, samples: Iterable[Sample]) -> "Metric":
    """Return a gauge as a Prometheus metric, named by the rules that OpenTelemetry uses."""
    from prometheus_client.core import GaugeMetricFamily

    known = list(samples)
    keys = sorted({key for one in known for key in one.attributes})
    family = GaugeMetricFamily(
        gauge.name.replace(".", "_"),
        gauge.description,
        labels=[key.replace(".", "_") for key in keys],
        unit="seconds" if gauge.unit == "s" else "",
    )
    for one in known:
        # Names come from clients: one that is not valid text must not break the scrape.
        values = [one.attributes.get(key, "") for key in keys]
        family.add_metric([_text(value) for value in values], one.value)
    return family


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
