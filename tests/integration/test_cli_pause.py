"""`redrive pause` and `redrive resume`, and where a pause shows."""

import pytest

from cli_support import declare, redrive
from redrive import App, Message
from waiting import wait_until

QUEUE = "ucenter@user"


@pytest.mark.versions("streams")
def test_a_paused_subscription_says_by_whom_why_since_when_and_until_when(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    at = ("--management-url", rabbitmq_management_url)
    app = App(rabbitmq_url)
    handled: list[str | None] = []

    @app.subscriber(QUEUE, "user.*")
    def on_user(message: Message) -> None:
        handled.append(message.message_id)

    with app:
        done = redrive("pause", QUEUE, "--reason", "a migration", "--for", "1h", url=rabbitmq_url)
        assert done.code == 0
        assert f"{QUEUE} is paused by guest" in done.out
        assert "until 20" in done.out
        assert "a migration" in done.out
        (subscriber,) = app.subscribers
        wait_until(lambda: subscriber.paused, "the worker knows")
        assert app.ready

        status = redrive("status", QUEUE, url=rabbitmq_url)
        assert f"{QUEUE} is paused by guest" in status.out
        found = redrive("status", QUEUE, "--output", "json", url=rabbitmq_url).json()[0]["paused"]
        assert (found["by"], found["reason"]) == ("guest", "a migration")

        def on_top() -> bool:
            top = redrive("top", "--once", *at, url=rabbitmq_url)
            return f"{QUEUE} is paused by guest" in top.out

        wait_until(on_top, "the management API counts the queue")

        id_ = app.publisher.publish({}, "user.create")
        assert redrive("resume", QUEUE, url=rabbitmq_url).out == f"{QUEUE} is resumed.\n"
        wait_until(lambda: handled == [id_], "it goes on")
    assert (
        redrive("status", QUEUE, "--output", "json", url=rabbitmq_url).json()[0]["paused"] is None
    )


def test_a_pause_of_a_queue_that_nobody_runs_or_that_does_not_exist_is_said(
    rabbitmq_url: str,
) -> None:
    declare(rabbitmq_url, QUEUE)
    assert "Nobody consumes it now" in redrive("pause", QUEUE, url=rabbitmq_url).err
    assert (
        "There is no queue nobody@knows" in redrive("pause", "nobody@knows", url=rabbitmq_url).err
    )


@pytest.mark.parametrize(
    "options", [("--for", "a while"), ("--for", "0s"), ("--rate", "fast"), ("--rate", "0/s")]
)
def test_a_pause_that_makes_no_sense_is_refused(
    rabbitmq_url: str, options: tuple[str, str]
) -> None:
    done = redrive("pause", QUEUE, *options, url=rabbitmq_url)
    assert done.code == 2
    assert "Traceback" not in done.err
