"""What is measured of the queues of subscribers, with a management API that is a stub."""

import json
import logging
import time

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from redrive import ConfigurationError, Subscriber
from redrive.pubsub.admin import queue_metrics
from redrive.pubsub.admin.queue_metrics import observe_queues
from unit.pubsub.admin.test_management_api import answering

BROKER = "amqp://shop:s3cr3t@localhost/orders"
COUNTED = json.dumps({"messages_ready": 7, "messages_unacknowledged": 2, "messages_dlx": 3})


def measured(
    reader: InMemoryMetricReader, gauge: str = "redrive.queue.messages"
) -> dict[tuple[str, str], int | float]:
    """The measurements of a gauge, by queue and state."""
    data = reader.get_metrics_data()
    return {
        (
            str((point.attributes or {})["messaging.destination.name"]),
            str((point.attributes or {}).get("redrive.state")),
        ): point.value  # type: ignore[union-attr]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if metric.name == gauge
    }


def observing(management_url: str) -> InMemoryMetricReader:
    """What collects the measurements of one subscriber's queues."""
    reader = InMemoryMetricReader()
    observe_queues(
        Subscriber(BROKER, "shop@orders"),
        management_url=management_url,
        meter_provider=MeterProvider([reader]),
    )
    return reader


def test_each_queue_is_measured_in_each_state() -> None:
    with answering(200, COUNTED) as address:
        found = measured(observing(address))
    assert found == {
        (f"shop@orders{suffix}", state): count
        for suffix in ("", "@retry", "@failed")
        for state, count in (("ready", 7), ("held", 2), ("dead-lettering", 3))
    }


def test_what_the_broker_does_not_count_has_no_sample_and_is_said_to_be_uncounted() -> None:
    with answering(200, json.dumps({"name": "shop@orders"})) as address:
        reader = observing(address)
        assert measured(reader) == {}
        assert measured(reader, "redrive.queue.consumers") == {}
        assert set(measured(reader, "redrive.queue.uncounted").values()) == {1}


def test_what_the_broker_holds_back_is_measured_where_it_holds_something_back() -> None:
    held = {"arguments": {"x-delayed-retry-type": "failed"}, "messages_delayed": 4}
    held |= {"messages_ready": 0}
    with answering(200, json.dumps(held)) as address:
        found = measured(observing(address))
    assert found["shop@orders", "held-back"] == 4
    assert found["shop@orders", "ready"] == 0


def test_each_queue_says_how_many_consume_it_and_how_old_its_head_is_if_that_is_told() -> None:
    told = {"consumers": 3, "head_message_timestamp": int(time.time()) - 60}
    with answering(200, json.dumps(told)) as address:
        reader = observing(address)
        consumers, ages = (
            measured(reader, gauge)
            for gauge in ("redrive.queue.consumers", "redrive.queue.head_age")
        )
    assert set(consumers.values()) == {3}
    assert all(60 <= age < 120 for age in ages.values())
    assert len(consumers) == len(ages) == 3


@pytest.mark.parametrize("told", [{}, {"head_message_timestamp": 10**15}])
def test_no_age_is_made_up(told: dict[str, int]) -> None:
    with answering(200, json.dumps(told)) as address:
        assert measured(observing(address), "redrive.queue.head_age") == {}


def test_a_measurement_names_the_role_and_the_subscription_of_its_queue() -> None:
    with answering(200, COUNTED) as address:
        data = observing(address).get_metrics_data()
    assert data is not None
    attributes = [
        dict(point.attributes or {})
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    ]
    assert {(one["redrive.role"], one["redrive.subscription"]) for one in attributes} == {
        (role, "shop@orders") for role in ("main", "retry", "failed")
    }


def test_a_queue_that_is_not_there_has_no_number() -> None:
    with answering(404, '{"error": "Object Not Found"}') as address:
        assert measured(observing(address)) == {}


def test_an_api_that_does_not_tell_is_said_once_and_no_number_is_made_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_metrics, "_AGE", 0.0)
    with answering(401, "{}") as address:
        reader = observing(address)
        assert [measured(reader), measured(reader)] == [{}, {}]
    warnings = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("the queues of shop@orders are not measured: ")


def test_numbers_are_asked_for_every_few_seconds_however_often_they_are_collected() -> None:
    with answering(200, COUNTED) as address:
        reader = observing(address)
        known = measured(reader)
    # Nobody answers now, and nobody is asked.
    assert measured(reader) == known


def test_one_api_is_not_asked_for_the_queues_of_several_brokers() -> None:
    with pytest.raises(ConfigurationError, match="on several brokers"):
        observe_queues(
            Subscriber(BROKER, "shop@orders"),
            Subscriber("amqp://shop:s3cr3t@elsewhere/orders", "shop@orders"),
            management_url="http://localhost:15672",
        )


def test_an_address_that_is_none_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="http:// or https://"):
        observe_queues(Subscriber(BROKER, "shop@orders"), management_url="localhost")
