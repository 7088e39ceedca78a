"""What the exporter makes of what it was told."""

import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from redrive.cli.exporter import _families, _readiness
from redrive.pubsub.admin.broker_watch import DEAD_LETTER_QUEUES, QUEUES, BrokerSample
from redrive.topology.flow import QueueCount
from redrive.topology.queue_role import QueueRole


def scraped(told: BrokerSample) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples that Prometheus reads, by their names."""

    class Collector:
        def collect(self) -> list[Metric]:
            return list(_families(told))

    registry = CollectorRegistry()
    registry.register(Collector())
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", 'a{b="c"} 1\n# x', "\udcff", "é\u202e"])
def test_no_name_of_a_queue_breaks_the_page(name: str) -> None:
    told = BrokerSample(((QueueRole(name, "dead-letter"), QueueCount(ready=7)),))
    ((labels, value), *_) = scraped(told)["redrive_queue_messages"]
    assert value == 7
    assert labels["messaging_destination_name"] == name.encode("utf-8", "backslashreplace").decode()


def test_what_the_broker_holds_back_is_served_where_it_holds_something_back() -> None:
    count = QueueCount(ready=1, held=2, dead_lettering=3, held_back=4, holds_back=True)
    found = scraped(BrokerSample(((QueueRole("a", "main", "a"), count),)))
    assert {
        labels["redrive_state"]: value for labels, value in found["redrive_queue_messages"]
    } == {
        "ready": 1,
        "held": 2,
        "dead-lettering": 3,
        "held-back": 4,
    }


def test_an_age_is_in_seconds_and_is_served_only_if_it_is_told() -> None:
    old = QueueCount(head_published=int(time.time()) - 60)
    queues = ((QueueRole("a", "failed"), old), (QueueRole("b", "failed"), QueueCount()))
    ((labels, age),) = scraped(BrokerSample(queues))["redrive_queue_head_age_seconds"]
    assert labels["messaging_destination_name"] == "a"
    assert 60 <= age < 3600


def test_of_a_broker_that_tells_nothing_there_is_no_queue() -> None:
    found = scraped(BrokerSample(problems={QUEUES: "away", DEAD_LETTER_QUEUES: "away"}))
    assert set(found) == {"redrive_management_up"}
    assert {value for _, value in found["redrive_management_up"]} == {0}


@pytest.mark.parametrize(("survey", "status"), [(QUEUES, 503), (DEAD_LETTER_QUEUES, 200)])
def test_it_is_ready_while_the_queues_are_told_of(survey: str, status: int) -> None:
    assert _readiness(BrokerSample(problems={survey: "away"})).status == status
