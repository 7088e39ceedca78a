"""`redrive exporter` as a process, and what it serves."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pika
from prometheus_client.parser import text_string_to_metric_families

from cli_support import Process, running
from redrive.testing.ports import free_ports
from waiting import wait_until


def get(port: int, path: str) -> httpx.Response:
    with httpx.Client(timeout=60, trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}{path}")


def is_served(port: int) -> bool:
    try:
        return get(port, "/health").status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def exporting(url: str, management_url: str) -> Iterator[tuple[int, Process]]:
    """An exporter that asks every second; its port and its process."""
    port = free_ports(1, "127.0.0.1")[0]
    arguments = ("--metrics", f"127.0.0.1:{port}", "--every", "1s")
    with running("exporter", *arguments, "--management-url", management_url, url=url) as process:
        wait_until(lambda: is_served(port) or process.has_ended, "it serves")
        yield port, process
        if not process.has_ended:
            process.signal(signal.SIGTERM)
            assert process.end().code == 0


def samples(port: int, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels and values of a metric that is served."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(get(port, "/metrics").text)
        for sample in family.samples
        if sample.name == name
    ]


def made_by_others(url: str, published: int | None) -> None:
    """A dead-letter queue that redrive did not make, with a message that was published then."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders.dlq", durable=True, arguments={"x-queue-type": "classic"})
        to_it = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"}
        channel.queue_declare("orders", durable=True, arguments=to_it)
        properties = pika.BasicProperties(  # type: ignore[no-untyped-call]
            timestamp=published, delivery_mode=2
        )
        channel.basic_publish("", "orders.dlq", b"{}", properties)
