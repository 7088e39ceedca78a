"""Metrics, traces, health and JSON logs of a service on a real broker."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from cli_support import redrive, running
from contract.shells import Shell
from contract.support import Recorder, Service, always_fails, both_shells, retrying
from redrive import (
    AsyncPublisher,
    BrokerUnavailable,
    ConfigurationError,
    Message,
    Publisher,
    instrument,
    uninstrument,
)
from redrive.cli.metrics_server import MetricsAddress, serving
from redrive.pubsub.blocking.subscriber import Subscriber
from redrive.testing.ports import free_ports
from redrive.testing.proxy import Proxy
from waiting import wait_until

SHOP = """
import os
from datetime import timedelta
from redrive import Message, RetryPolicy, Subscriber

once = RetryPolicy(1, timedelta(milliseconds=50))
shop = Subscriber(os.environ["SHOP_URL"], "shop@orders", ["order.*"], retry=once)

@shop.handler
def handle(message: Message) -> None:
    if message.body == b"bad":
        raise ValueError("no plan for amqp://me:s3cret@there/")
"""


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(tracer_provider=provider)
    yield exporter
    uninstrument()
    provider.shutdown()


def get(port: int, path: str) -> httpx.Response:
    with httpx.Client(timeout=30, trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}{path}")


@both_shells
def test_one_trace_goes_through_every_attempt_the_give_up_and_the_redrive(
    rabbitmq_url: str, spans: InMemorySpanExporter, shell: Shell
) -> None:
    service = Service(rabbitmq_url, retry=retrying(2), shell=shell)
    with service.subscriber(always_fails):
        id_ = service.publish()
        service.wait_for_failed()
    assert service.failed_queue.requeue().requeued == 1
    with service.subscriber(recorder := Recorder()):
        recorder.wait_for_handled([id_])
    found = wait_until(lambda: len(done := spans.get_finished_spans()) >= 7 and done, "seven spans")
    assert isinstance(found, tuple)
    assert Counter(span.name for span in found) == {
        "send master": 1,
        "process shop@orders": 4,
        "give up shop@orders": 1,
        "redrive shop@orders": 1,
    }
    assert len({span.context.trace_id for span in found if span.context}) == 1
    sent = next(span for span in found if span.name == "send master")
    assert sent.context is not None
    assert {span.parent.span_id for span in found if span.parent} == {sent.context.span_id}
    attributes = [dict(span.attributes or {}) for span in found]
    assert {one["messaging.system"] for one in attributes} == {"rabbitmq"}
    assert Counter(
        (one["messaging.operation.name"], one["messaging.operation.type"]) for one in attributes
    ) == {
        ("send", "send"): 1,
        ("process", "process"): 4,
        ("give up", "settle"): 1,
        ("redrive", "send"): 1,
    }
    assert {one.get("messaging.message.id") for one in attributes} == {
        id_,
        None,
    }  # a publish has none before it is made
    assert [span.status.is_ok for span in found if span.name.startswith("process")] == [
        False,
        False,
        False,
        True,
    ]


def test_what_a_handler_traces_itself_belongs_to_its_attempt(
    rabbitmq_url: str, spans: InMemorySpanExporter
) -> None:
    from opentelemetry import trace

    seen: list[int] = []
    service = Service(rabbitmq_url)
    with service.subscriber(
        lambda _: seen.append(trace.get_current_span().get_span_context().span_id)
    ):
        service.publish()
        wait_until(lambda: seen, "the handler ran")
    attempt = wait_until(
        lambda: next(
            (s for s in spans.get_finished_spans() if s.name == "process shop@orders"), None
        ),
        "the attempt's span",
    )
    assert attempt is not None
    assert attempt.context is not None
    assert seen == [attempt.context.span_id]


class Wordless(Exception):
    """An exception whose text can't be made."""

    def __str__(self) -> str:
        raise RuntimeError


def exception_in(spans: InMemorySpanExporter) -> Mapping[str, object]:
    """What the attempt's span tells of the exception that ended it."""
    attempt = wait_until(
        lambda: next(
            (s for s in spans.get_finished_spans() if s.name == "process shop@orders"), None
        ),
        "the span",
    )
    assert attempt is not None
    (event,) = attempt.events
    assert (event.name, attempt.status.is_ok) == ("exception", False)
    return event.attributes or {}


@both_shells
def test_an_error_in_a_trace_shows_no_password(
    rabbitmq_url: str, spans: InMemorySpanExporter, shell: Shell
) -> None:
    def handle(_: Message) -> None:
        try:
            raise KeyError("https://me:s3cret@behind/")
        except KeyError as error:
            raise ValueError("no plan for amqp://me:s3cret@there/") from error

    service = Service(rabbitmq_url, shell, retry=retrying(0))
    with service.subscriber(handle):
        service.publish()
        service.wait_for_failed()
    told = exception_in(spans)
    assert (told["exception.type"], told["exception.message"]) == (
        "ValueError",
        "no plan for amqp://me:***@there/",
    )
    assert "KeyError: 'https://me:***@behind/'" in str(told["exception.stacktrace"])
    assert "s3cret" not in repr([span.to_json() for span in spans.get_finished_spans()])


@both_shells
def test_an_error_without_a_text_is_traced_and_set_aside(
    rabbitmq_url: str, spans: InMemorySpanExporter, shell: Shell
) -> None:
    def handle(_: Message) -> None:
        raise Wordless

    service = Service(rabbitmq_url, shell, retry=retrying(0))
    with service.subscriber(handle):
        service.publish()
        service.wait_for_failed()
    assert exception_in(spans)["exception.message"] == "<its text is not available: RuntimeError>"


def test_an_unroutable_message_is_an_error_in_its_span(
    rabbitmq_url: str, spans: InMemorySpanExporter
) -> None:
    with Service(rabbitmq_url).publisher() as publisher:
        publisher.publish("x", "nobody.listens")
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok


def test_a_publish_that_finds_no_broker_is_an_error_in_its_span(
    spans: InMemorySpanExporter,
) -> None:
    [port] = free_ports(1)
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    with pytest.raises(BrokerUnavailable):
        Publisher(url).publish("x", "order.paid")
    with pytest.raises(BrokerUnavailable):
        asyncio.run(AsyncPublisher(url).publish("x", "order.paid"))

    assert [span.status.is_ok for span in spans.get_finished_spans()] == [False, False]


def test_scraped_metrics_match_the_messages_counted(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url, retry=retrying(1))
    subscriber = Subscriber(rabbitmq_url, service.queue, service.routing_keys, retry=service.retry)

    @subscriber.handler
    def handle(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("no")

    service.declare()
    with serving(MetricsAddress("127.0.0.1", 0), [subscriber]) as port:
        subscriber.start()
        with service.publisher() as publisher:
            report = publisher.publish_many(
                ((body, "order.paid") for body in ["good"] * 20 + ["bad"] * 5), mandatory=True
            )
        wait_until(
            lambda: (
                service.failed_queue.depth() == 5
                and _samples(port)["redrive_messages_handled_total"] == 20
            ),
            "all are handled",
        )
        assert service.failed_queue.requeue(limit=3).requeued == 3
        wait_until(
            lambda: (
                service.failed_queue.depth() == 5
                and _samples(port)["redrive_messages_given_up_total"] == 8
            ),
            "they fail again",
        )
        samples = _samples(port)
        subscriber.stop()
        subscriber.wait()
    assert report.confirmed == samples["messaging_client_sent_messages_total"] == 25
    assert samples["messaging_client_consumed_messages_total"] == 20 + 2 * 5 + 2 * 3
    assert samples["messaging_process_duration_seconds_count"] == 36
    assert samples["redrive_messages_retried_total"] == 5 + 3
    assert samples["redrive_messages_redriven_total"] == 3
    assert samples["redrive_attempts_running"] == 0


def test_scraped_metrics_say_what_is_in_the_queues(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.set_aside(2)
    service.publish_numbered(3)
    subscriber = Subscriber(rabbitmq_url, service.queue, service.routing_keys, retry=service.retry)
    with serving(MetricsAddress("127.0.0.1", 0), [subscriber], rabbitmq_management_url) as port:
        wait_until(
            lambda: _messages_in_queues(port) == {service.queue: 3, f"{service.queue}@failed": 2},
            "the broker tells of them",
        )
        assert 'redrive_state="dead-lettering"' in get(port, "/metrics").text


def test_a_management_api_without_metrics_is_refused() -> None:
    done = redrive("run", "shop:shop", "--management-url", "http://localhost:15672")
    assert (done.code, done.error_lines) == (
        2,
        ["Error: --management-url is for what --metrics serves", "Give --metrics too."],
    )


def test_ready_is_false_while_the_broker_is_away_and_true_after(rabbitmq_url: str) -> None:
    with Proxy(rabbitmq_url) as proxy:
        subscriber = Subscriber(proxy.url, "shop@orders", ["order.*"])
        subscriber.handler(Recorder())
        with serving(MetricsAddress("127.0.0.1", 0), [subscriber]) as port:
            assert get(port, "/ready").status_code == 503
            subscriber.start()
            wait_until(lambda: get(port, "/ready").status_code == 200, "it is ready")
            proxy.refuse()
            proxy.cut()
            wait_until(
                lambda: (
                    get(port, "/ready").json()
                    == {"ready": False, "subscribers": {"shop@orders": False}}
                ),
                "it is not ready",
            )
            assert get(port, "/health").status_code == 200
            proxy.accept()
            wait_until(lambda: get(port, "/ready").status_code == 200, "it is ready again")
            assert get(port, "/elsewhere").status_code == 404
            subscriber.stop()
            subscriber.wait()
            assert get(port, "/health").status_code == 503


def test_a_worker_logs_each_move_as_one_json_line_and_serves_its_health(
    rabbitmq_url: str, tmp_path: Path
) -> None:
    import signal

    (tmp_path / "shop.py").write_text(SHOP)
    port = free_ports(1, "127.0.0.1")[0]
    arguments = (
        "run",
        "shop:shop",
        "--log-format",
        "json",
        "--log-level",
        "debug",
        "--metrics",
        f"127.0.0.1:{port}",
    )
    with running(*arguments, environment={"SHOP_URL": rabbitmq_url}, cwd=str(tmp_path)) as process:
        wait_until(lambda: _is_ready(port), "the worker is ready")
        for body in ("good", "bad"):
            redrive("publish", "order.paid", body, url=rabbitmq_url)
        wait_until(
            lambda: _samples(port)["redrive_messages_given_up_total"] == 1,
            "the message is given up",
        )
        process.signal(signal.SIGTERM)
        done = process.end()
    assert done.code == 0
    moves = [line for line in map(json.loads, done.err.splitlines()) if "event" in line]
    assert [(line["event"], line["now_in"]) for line in moves] == [
        ("handled", None),
        ("retried", "shop@orders@retry"),
        ("given-up", "shop@orders@failed"),
    ]
    assert (moves[2]["reason"], moves[2]["error_type"], moves[2]["routing_key"]) == (
        "retries-exhausted",
        "ValueError",
        "order.paid",
    )
    assert "s3cret" not in done.err


@pytest.mark.parametrize("place", ["9464", "host:", ":70000", ":x"])
def test_a_place_that_is_none_is_said(place: str, tmp_path: Path) -> None:
    done = redrive("run", "shop:shop", "--metrics", place)
    assert (done.code, done.error_lines[0]) == (
        2,
        f"Error: {place!r} is not a host and port to serve metrics at",
    )


def test_a_port_in_use_is_said_before_anything_runs(rabbitmq_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        subscriber = Subscriber(rabbitmq_url, "shop@orders")
        with (
            pytest.raises(
                ConfigurationError,
                match=f"can't be served at 127.0.0.1:{port}: Address already in use",
            ),
            serving(MetricsAddress("127.0.0.1", port), [subscriber]),
        ):
            raise AssertionError("it serves")


def _is_ready(port: int) -> bool:
    try:
        return get(port, "/ready").status_code == 200
    except httpx.HTTPError:
        return False


def _samples(port: int) -> Counter[str]:
    """The sum of each metric's samples over its labels."""
    sums: Counter[str] = Counter()
    for line in get(port, "/metrics").text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            sums[name.partition("{")[0]] += float(value)  # type: ignore[assignment]
    return sums


def _messages_in_queues(port: int) -> Counter[str]:
    """How many messages are in each queue that has some, as far as it is measured."""
    messages: Counter[str] = Counter()
    for family in text_string_to_metric_families(get(port, "/metrics").text):
        if family.name == "redrive_queue_messages":
            for sample in family.samples:
                messages[sample.labels["messaging_destination_name"]] += int(sample.value)
    return +messages
