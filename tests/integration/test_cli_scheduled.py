"""`redrive scheduled`: what waits for its time, and what can't be known about it."""

import pytest

from cli_support import declare, redrive
from contract.plain import plain_channel
from redrive import Publisher
from waiting import wait_until

QUEUE = "ucenter@user"
NOWHERE = ("--management-url", "http://127.0.0.1:9")


@pytest.mark.versions("what the management API says of arguments")
def test_messages_before_their_retry_and_delayed_ones_are_counted_with_their_time(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    at = ("--management-url", rabbitmq_management_url)
    done = redrive("declare", "--queue", QUEUE, "--routing-key", "user.*", url=rabbitmq_url)
    assert done.code == 0
    with plain_channel(rabbitmq_url) as channel:
        for _ in range(2):
            channel.basic_publish("", f"{QUEUE}@retry", b"")
    with Publisher(rabbitmq_url) as publisher:
        publisher.publish("", "user.create", delay="1h")

    def is_counted() -> bool:
        found = redrive("scheduled", QUEUE, *at, "--output", "json", url=rabbitmq_url).json()
        return bool(found["retry"]["messages"] == 2 and found["ladder"]["messages"] == 1)

    wait_until(is_counted, "all are counted")
    found = redrive("scheduled", QUEUE, *at, "--output", "json", url=rabbitmq_url).json()
    assert found["retry"] == {
        "queue": f"{QUEUE}@retry",
        "messages": 2,
        "due_within_seconds": 30.0,
    }
    assert (found["held_back"], found["is_ordered"], found["problem"]) == (None, False, None)
    assert found["ladder"]["for_this_queue"] is None
    levels = [one for one in found["ladder"]["levels"] if one["messages"]]
    assert levels == [{"due_within_seconds": 4095.0, "messages": 1}]

    shown = redrive("scheduled", QUEUE, *at, url=rabbitmq_url)
    assert [line.split() for line in shown.out.splitlines()[2:]] == [
        [f"{QUEUE}@retry", "2", "within", "30s"],
        ["delay", "ladder", "of", "master", "1", "within", "1h8m15s"],
    ]
    assert f"which of them are for {QUEUE} is not known" in shown.err


def test_without_the_management_api_delays_are_unknown(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("scheduled", QUEUE, *NOWHERE, "--output", "json", url=rabbitmq_url)
    found = done.json()
    assert found["retry"] == {"queue": f"{QUEUE}@retry", "messages": 0, "due_within_seconds": None}
    assert found["is_ordered"] is None
    assert "127.0.0.1:9" in found["problem"]
    shown = redrive("scheduled", QUEUE, *NOWHERE, url=rabbitmq_url)
    assert "unknown" in shown.out
    assert "Delays, and what RabbitMQ holds back, are not known" in shown.err


def test_a_queue_that_does_not_exist_is_said(rabbitmq_url: str) -> None:
    done = redrive("scheduled", "nobody@knows", *NOWHERE, url=rabbitmq_url)
    assert done.code == 2
    assert "there is no queue 'nobody@knows'" in done.err
