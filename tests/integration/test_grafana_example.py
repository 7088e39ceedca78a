"""The board and the alert rules of examples/06-grafana ask for what a worker and an exporter really
serve: a name that changes leaves them empty and silent."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from contract.support import Recorder, Service, always_fails, retrying
from exporter_support import exporting, get, made_by_others, samples
from redrive import App
from redrive.cli.metrics_server import MetricsAddress, serving
from redrive.pubsub.blocking.subscriber import Subscriber
from waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/06-grafana"
_NAME = re.compile(r"\b(?:messaging|redrive)_[a-z_]+\b")
_MATCHERS = re.compile(r"\{[^{}]*\}")
_CLAUSE = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^()]*)\)")
_TEXT = re.compile(r'"([^"]*)"')
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
OF_PROMETHEUS = {"le", "instance", "job", "__name__"}
"""Labels that Prometheus adds, or that every histogram has."""


class Asked(NamedTuple):
    """What an expression asks for."""

    metrics: set[str]
    labels: set[str]


def asked_by(expression: str) -> Asked:
    labels = {
        label
        for matchers in _MATCHERS.findall(expression)
        for label in _LABEL.findall(re.sub(r'"[^"]*"', '""', matchers))
    }
    bare = _MATCHERS.sub("", expression)
    for clause in _CLAUSE.findall(bare):
        labels |= {label.strip() for label in clause.split(",")}
    labels |= {text for text in _TEXT.findall(bare) if _NAME.fullmatch(text)}
    return Asked(set(_NAME.findall(_TEXT.sub("", _CLAUSE.sub("", bare)))), labels)


def expressions_of_the_board() -> list[str]:
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((EXAMPLE / "alerts.yaml").read_text())
    assert set(read) == {"groups"}
    found: list[dict[str, Any]] = []
    for group in read["groups"]:
        assert set(group) == {"name", "rules"}
        found += group["rules"]
    return found


class Served(NamedTuple):
    """The names of samples and of labels that were scraped."""

    metrics: set[str]
    labels: set[str]


def served_at(port: int) -> Served:
    found = [
        sample
        for family in text_string_to_metric_families(get(port, "/metrics").text)
        for sample in family.samples
    ]
    return Served({one.name for one in found}, {label for one in found for label in one.labels})


@pytest.fixture
def served(rabbitmq_url: str, rabbitmq_management_url: str) -> Iterator[Served]:
    """What a worker and an exporter serve after a message failed, was requeued and handled."""
    service = Service(rabbitmq_url, retry=retrying(1))
    subscriber = Subscriber(rabbitmq_url, service.queue, service.routing_keys, retry=service.retry)
    subscriber.handler(always_fails)
    service.declare()
    made_by_others(rabbitmq_url, int(time.time()) - 60)
    with (
        serving(MetricsAddress("127.0.0.1", 0), [subscriber], rabbitmq_management_url) as port,
        exporting(rabbitmq_url, rabbitmq_management_url) as (other, _),
    ):
        subscriber.start()
        service.publish()
        service.wait_for_failed()
        subscriber.stop()
        subscriber.wait()
        with service.subscriber(Recorder()):
            service.failed_queue.requeue()
            wait_until(
                lambda: any(value for _, value in samples(port, "redrive_messages_handled_total")),
                "it is handled",
            )
            App(rabbitmq_url).pause(service.queue)
            wait_until(lambda: samples(port, "redrive_subscribers_stopped"), "it is paused")
            worker = served_at(port)
        wait_until(lambda: samples(other, "redrive_queue_head_age_seconds"), "an age is served")
        exporter = served_at(other)
        yield Served(worker.metrics | exporter.metrics, worker.labels | exporter.labels)


def test_the_board_and_the_rules_ask_for_metrics_and_labels_that_are_served(
    served: Served,
) -> None:
    for expression in [*expressions_of_the_board(), *(rule["expr"] for rule in rules())]:
        asked = asked_by(expression)
        assert asked.metrics, expression
        assert asked.metrics <= served.metrics, expression
        assert asked.labels <= served.labels | OF_PROMETHEUS, expression


def test_worker_and_exporter_tell_of_a_queue_in_the_same_words(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    service.publish_numbered(3)
    subscriber = Subscriber(rabbitmq_url, service.queue, service.routing_keys, retry=service.retry)

    def told(port: int) -> list[tuple[list[tuple[str, str]], float]]:
        return sorted(
            (sorted(labels.items()), value)
            for name in ("redrive_queue_messages", "redrive_queue_consumers")
            for labels, value in samples(port, name)
        )

    with (
        serving(MetricsAddress("127.0.0.1", 0), [subscriber], rabbitmq_management_url) as port,
        exporting(rabbitmq_url, rabbitmq_management_url) as (other, _),
    ):
        wait_until(
            lambda: any(value == 3 for _, value in told(port)) and told(port) == told(other),
            "both tell the same",
        )


def test_each_rule_is_well_formed() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 5
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[1-9][0-9]*[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        for opening, closing in ("()", "{}", "[]"):
            assert rule["expr"].count(opening) == rule["expr"].count(closing)


def test_a_rule_s_text_names_only_labels_that_its_result_keeps() -> None:
    for rule in rules():
        kept = {
            label.strip()
            for clause in _CLAUSE.findall(_MATCHERS.sub("", rule["expr"]))
            for label in clause.split(",")
        }
        named = set(re.findall(r"\$labels\.([a-z_]+)", json.dumps(rule["annotations"])))
        assert named <= kept, rule["alert"]
