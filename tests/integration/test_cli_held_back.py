"""What the command line tells of a subscription whose failed messages RabbitMQ 4.3 itself holds
back, and that an older broker is told apart."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import redrive
from contract.support import Recorder, Service, always_fails, retrying
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declaring
from waiting import wait_until

pytestmark = pytest.mark.every_broker

QUEUE = "shop@orders"
DECLARE = ("declare", "--queue", QUEUE, "--routing-key", "order.*", "--retry-via", "broker")


def holds_back(url: str) -> bool:
    """Whether this broker holds failed messages back by itself; else `declare` refuses."""
    with declaring(Connector(url, "test")) as declarer:
        if declarer.version.holds_failed_messages_back:
            return True
    done = redrive(*DECLARE, url=url)
    assert (done.code, "needs RabbitMQ 4.3 or newer" in done.err) == (2, True), done
    return False


def test_declare_makes_two_queues_and_finds_them_again(rabbitmq_url: str) -> None:
    if not holds_back(rabbitmq_url):
        return
    first = redrive(*DECLARE, "--retry-delay", "10s", "--output", "json", url=rabbitmq_url)
    again = redrive(*DECLARE, "--retry-delay", "10s", url=rabbitmq_url)
    other = redrive(*DECLARE, "--retry-delay", "20s", url=rabbitmq_url)

    made = [one["name"] for one in json.loads(first.out)["objects"] if one["kind"] == "queue"]
    assert made == ["shop@orders@failed", "shop@orders"]
    assert again.code == 0, again.err
    assert other.code == 1
    assert "x-delayed-retry-m" in other.err


def test_what_is_held_back_is_shown_wherever_depths_are(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path
) -> None:
    if not holds_back(rabbitmq_url):
        return
    management = ("--management-url", rabbitmq_management_url)
    service = Service(rabbitmq_url, queue=QUEUE, retry=retrying(3, timedelta(minutes=10)))
    handler = Recorder(always_fails)
    with service.subscriber(handler, retry_via="broker"):
        service.publish_numbered(4)
        handler.wait_for_attempts(4)

    def status() -> dict[str, object]:
        done = redrive("status", QUEUE, "--output", "json", *management, url=rabbitmq_url)
        assert done.code == 0, done
        (found,) = json.loads(done.out)
        return dict(found)

    wait_until(lambda: status()["held_back"] == 4, "status counts what is held back")
    assert status()["retry"] is None
    table = redrive("status", QUEUE, *management, url=rabbitmq_url)
    assert "4 failed messages of shop@orders are held back in the main queue" in table.out
    top = redrive("top", "--once", "--output", "json", *management, url=rabbitmq_url)
    assert '"retry": 4' in top.out

    unknown = redrive(
        "status",
        QUEUE,
        "--output",
        "json",
        "--management-url",
        "http://localhost:1",
        url=rabbitmq_url,
    )
    assert json.loads(unknown.out)[0]["held_back"] is None

    doctor = redrive("doctor", QUEUE, "--output", "json", *management, url=rabbitmq_url)
    report = json.loads(doctor.out)
    assert {finding["kind"] for finding in report["findings"]} <= {"topic-permission"}
    assert report["would_gain"] == []

    file = tmp_path / "team.yaml"
    assert redrive("topology", "init", str(file), *management, url=rabbitmq_url).code == 0
    assert "retry_via: broker" in file.read_text()
    plan = redrive("topology", "check", str(file), *management, url=rabbitmq_url)
    assert plan.code == 0, plan


def test_doctor_says_who_would_gain(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    Service(rabbitmq_url, queue=QUEUE).declare()
    done = redrive("doctor", QUEUE, "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    said = "can hold failed messages back by itself" in done.err + done.out
    with declaring(Connector(rabbitmq_url, "test")) as declarer:
        assert said == declarer.version.holds_failed_messages_back
