"""`redrive exporter`: the queues of a broker, for Prometheus, without any worker."""

import signal
import socket
import time

import httpx
import pika
import pytest

from cli_support import declare, give_up_on, redrive
from exporter_support import exporting, get, made_by_others, samples
from redrive.testing import Proxy
from waiting import wait_until

QUEUE = "ucenter@user"
Depths = dict[tuple[str, str, str], int]


def depths(port: int) -> Depths:
    """How many messages are in each queue and state that has some, by its role."""
    return {
        (
            labels["messaging_destination_name"],
            labels["redrive_role"],
            labels["redrive_state"],
        ): int(value)
        for labels, value in samples(port, "redrive_queue_messages")
        if value
    }


def on_the_way_to(management_url: str, url: str) -> Proxy:
    """A proxy in front of the management API."""
    port = httpx.URL(management_url).port
    address = url.rpartition("@")[2].partition("/")[0]
    return Proxy(url.replace(address, f"{address.rpartition(':')[0]}:{port}"))


def test_each_queue_of_the_virtual_host_is_served_by_its_role(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    redrive("publish", "user.create", "{}", url=rabbitmq_url)
    made_by_others(rabbitmq_url, None)
    with exporting(rabbitmq_url, rabbitmq_management_url) as (port, _):
        wait_until(
            lambda: (
                depths(port)
                == {
                    (QUEUE, "main", "ready"): 1,
                    (f"{QUEUE}@failed", "failed", "ready"): 2,
                    ("orders.dlq", "dead-letter", "ready"): 1,
                }
            ),
            "all of them are served",
        )
        consumers = samples(port, "redrive_queue_consumers")
        assert {labels["redrive_subscription"] for labels, _ in consumers} == {QUEUE, ""}
        assert {value for _, value in consumers} == {0}
        assert samples(port, "redrive_management_up") == [
            ({"redrive_survey": "queues"}, 1),
            ({"redrive_survey": "dead-letter-queues"}, 1),
        ]
        assert get(port, "/ready").json() == {
            "ready": True,
            "measured": {"queues": True, "dead-letter-queues": True},
            "problems": {},
        }
        assert get(port, "/health").json() == {"healthy": True}
        assert get(port, "/elsewhere").status_code == 404


@pytest.mark.versions("what the management API says of the head of a queue")
@pytest.mark.nightly("the ages are read by the same code for each queue")
def test_what_is_at_the_head_of_a_classic_queue_has_an_age_and_of_a_quorum_queue_none(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    made_by_others(rabbitmq_url, int(time.time()) - 3600)
    with exporting(rabbitmq_url, rabbitmq_management_url) as (port, _):
        wait_until(lambda: samples(port, "redrive_queue_head_age_seconds"), "an age is served")
        wait_until(lambda: (f"{QUEUE}@failed", "failed", "ready") in depths(port), "it is counted")
        ((labels, age),) = samples(port, "redrive_queue_head_age_seconds")
    assert labels["messaging_destination_name"] == "orders.dlq"
    assert 3600 <= age < 3600 + 600


@pytest.mark.versions("what the management API says of the head of a queue")
def test_serving_changes_no_message(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    with exporting(rabbitmq_url, rabbitmq_management_url) as (port, _):
        wait_until(lambda: (f"{QUEUE}@failed", "failed", "ready") in depths(port), "it is counted")
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        method, properties, _ = connection.channel().basic_get(f"{QUEUE}@failed")
        assert method is not None
        assert not method.redelivered
        assert properties is not None
        assert not (properties.headers or {}).get("x-delivery-count")


def test_while_the_management_api_is_away_it_says_so_and_serves_no_number(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1])
    with on_the_way_to(rabbitmq_management_url, rabbitmq_url) as proxy:
        proxy.refuse()
        address = f"http://127.0.0.1:{httpx.URL(proxy.url.replace('amqp', 'http', 1)).port}"
        with exporting(rabbitmq_url, address) as (port, process):
            ready = get(port, "/ready")
            assert (ready.status_code, ready.json()["ready"]) == (503, False)
            assert address in ready.json()["problems"]["queues"]
            assert {value for _, value in samples(port, "redrive_management_up")} == {0}
            assert depths(port) == {}
            proxy.accept()
            wait_until(lambda: get(port, "/ready").status_code == 200, "it is ready")
            wait_until(lambda: depths(port), "the queues are served")
            proxy.refuse()
            proxy.cut()
            wait_until(lambda: get(port, "/ready").status_code == 503, "it is not ready")
            assert depths(port) == {}
            assert get(port, "/health").status_code == 200
            process.signal(signal.SIGTERM)
            done = process.end()
    assert done.code == 0
    assert done.out.startswith("Serving the queues of ")
    assert "HTTP Request" not in done.err
    assert [("not measured" in line, "again" in line) for line in done.error_lines] == [
        (True, False),
        (False, True),
        (True, False),
    ]


def test_a_user_that_may_not_ask_is_refused_in_two_lines(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    user = rabbitmq_url.partition("//")[2].partition("@")[0]
    wrong = rabbitmq_url.replace(user, "nobody:s3cret")
    done = redrive("exporter", "--management-url", rabbitmq_management_url, url=wrong)
    assert done.code == 2
    assert "refused the user 'nobody'" in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert "s3cret" not in done.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--url", "localhost"], "is not a broker address"),
        (["--management-url", "localhost"], "the management address can't be read"),
        (["--metrics", "9464"], "is not a host and port to serve metrics at"),
        (["--every", "soon"], "the duration 'soon' can't be read"),
        (["--every", "10ms"], "the broker counts every five seconds"),
    ],
)
def test_a_wrong_argument_is_said_in_two_lines(arguments: list[str], problem: str) -> None:
    done = redrive("exporter", *arguments)
    assert done.code == 2
    assert problem in done.error_lines[0]
    assert len(done.error_lines) == 2


def test_a_port_in_use_is_said(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = redrive(
            "exporter",
            "--metrics",
            f"127.0.0.1:{taken.getsockname()[1]}",
            "--management-url",
            rabbitmq_management_url,
            url=rabbitmq_url,
        )
    assert (done.code, len(done.error_lines)) == (2, 2)
    assert "Address already in use" in done.error_lines[0]
