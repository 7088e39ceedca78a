"""`redrive status` on a real broker."""

import asyncio
from datetime import timedelta

from cli_support import declare, depth_of, give_up_on, redrive
from redrive import App, AsyncApp, FailedQueue, Message, Publisher, RetryPolicy
from waiting import wait_until

QUEUE = "ucenter@user"
NOTHING = {"messages": 0, "consumers": 0}
NOTHING_HELD = {**NOTHING, "held": 0}


def test_it_counts_what_is_in_each_queue(rabbitmq_url: str) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    assert redrive("publish", "user.create", "x", url=rabbitmq_url).code == 0
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 1, "retry": 0, "failed": 2}


def test_the_table_has_a_row_for_each_subscription(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("status", QUEUE, url=rabbitmq_url)
    lines = done.out.splitlines()
    assert lines[0].split() == ["queue", "main", "retry", "failed", "consumers"]
    assert lines[2].split() == [QUEUE, "0", "0", "0", "0"]


def test_a_queue_that_is_not_there_is_null(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    done = redrive("status", QUEUE, "nobody@knows", "--output", "json", url=rabbitmq_url)
    assert done.code == 1
    assert done.json() == [
        {
            "queue": QUEUE,
            "main": NOTHING,
            "retry": NOTHING,
            "failed": NOTHING_HELD,
            "dead_lettering": None,
            "retry_policies": None,
            "selects": None,
            "paused": None,
            "down": None,
        },
        {
            "queue": "nobody@knows",
            "main": None,
            "retry": None,
            "failed": None,
            "dead_lettering": None,
            "retry_policies": None,
            "selects": None,
            "paused": None,
            "down": None,
        },
    ]
    assert "nobody@knows@retry" in done.err


def test_messages_that_somebody_looks_at_count_as_failed_and_are_said(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    at = ("--management-url", rabbitmq_management_url)
    wait_until(
        lambda: (
            redrive("top", "--once", *at, "--output", "json", url=rabbitmq_url).json()[
                "subscriptions"
            ][0]["failed"]
            == 2
        ),
        "the management API has counted both",
    )
    looking = FailedQueue(rabbitmq_url, QUEUE).browse()
    next(looking)

    def counted() -> bool:
        done = redrive(
            "status",
            QUEUE,
            "--management-url",
            rabbitmq_management_url,
            "--output",
            "json",
            url=rabbitmq_url,
        )
        found = done.json()[0]["failed"]
        assert found["held"] is None or (found["messages"], found["held"]) == (2, 2)
        return found["held"] is not None

    wait_until(counted, "the management API tells what is held")
    said = "2 messages of ucenter@user@failed are held by somebody who is reading them."
    named = ("status", QUEUE, "--management-url", rabbitmq_management_url)
    wait_until(lambda: said in redrive(*named, url=rabbitmq_url).out, "a table says so")
    looking.close()
    assert depth_of(rabbitmq_url, QUEUE)["failed"] == 2


def test_where_nobody_tells_how_many_are_held_status_says_that_it_is_unknown(
    rabbitmq_url: str,
) -> None:
    give_up_on(rabbitmq_url, QUEUE, [1, 2])
    looking = FailedQueue(rabbitmq_url, QUEUE).browse()
    next(looking)
    nowhere = ("--management-url", "http://127.0.0.1:9")
    assert (
        redrive("status", QUEUE, *nowhere, "--output", "json", url=rabbitmq_url).json()[0][
            "failed"
        ]["held"]
        is None
    )
    shown = redrive("status", QUEUE, *nowhere, url=rabbitmq_url).out
    assert "0 + unknown" in shown
    assert "An unknown number of messages of ucenter@user@failed is held by" in shown
    looking.close()


def test_in_the_table_a_queue_that_is_not_there_is_said_in_words(rabbitmq_url: str) -> None:
    done = redrive("status", "nobody@knows", url=rabbitmq_url)
    assert done.code == 1
    assert done.out.count("missing") == 3


def test_without_a_name_it_finds_every_subscription(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url, "a@first")
    declare(rabbitmq_url, "b@second")
    done = redrive(
        "status", "--management-url", rabbitmq_management_url, "--output", "json", url=rabbitmq_url
    )
    assert [one["queue"] for one in done.json()] == ["a@first", "b@second"]
    assert done.code == 0


def test_where_nothing_is_there_it_says_so(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    done = redrive("status", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("There is no subscription")


def test_where_the_management_api_does_not_answer_it_says_to_name_the_queues(
    rabbitmq_url: str,
) -> None:
    done = redrive("status", "--management-url", "http://127.0.0.1:9", url=rabbitmq_url)
    assert done.code == 2
    assert done.error_lines[1].startswith("Name the queues: redrive status QUEUE…")
    assert len(done.error_lines) == 2


def test_the_name_of_a_retry_queue_is_no_subscription(rabbitmq_url: str) -> None:
    done = redrive("status", f"{QUEUE}@retry", url=rabbitmq_url)
    assert (done.code, done.error_lines[1]) == (2, "Name the main queue: 'ucenter@user'.")


def test_it_tells_of_what_waits_on_the_delay_ladder_by_when_it_is_due(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    with Publisher(rabbitmq_url) as publisher:
        for minutes in (
            60 * 24 * 30,
            30,
            0.5,
            0.5,
        ):  # the first declares the whole ladder, before the time of the short ones begins
            publisher.publish("x", "user.create", delay=timedelta(minutes=minutes))

    shown = redrive("status", QUEUE, url=rabbitmq_url).out
    found = redrive("status", "--ladder", "--output", "json", url=rabbitmq_url).json()

    assert "On the delay ladder: 2 due within a minute, 1 due within an hour, 1 due later." in shown
    assert (found["waiting"], found["unrouted"], len(found["levels"])) == (4, 0, 22)
    assert {
        level["due_within_seconds"]: level["messages"]
        for level in found["levels"]
        if level["messages"]
    } == {
        31: 2,
        2047: 1,
        2**22 - 1: 1,
    }


def test_where_nothing_was_delayed_it_says_that_there_is_no_ladder(rabbitmq_url: str) -> None:
    done = redrive("status", "--ladder", url=rabbitmq_url)
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("There is no delay ladder")


async def handles(message: Message) -> None: ...


def test_it_says_how_long_the_workers_that_run_try(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    app = App(rabbitmq_url)
    app.subscriber(QUEUE)(lambda message: None)
    at = ("--management-url", rabbitmq_management_url)
    with app:
        wait_until(
            lambda: (
                "Workers of ucenter@user: 3 retries, given up 1m30s after the first failure."
                in redrive("status", QUEUE, *at, url=rabbitmq_url).out
            ),
            "the policy of its worker is told",
        )


def test_json_has_the_policies_and_filters_of_workers_in_asyncio(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    app = AsyncApp(rabbitmq_url, retry=RetryPolicy(backoff=["10s", "1m"]))
    app.subscriber(QUEUE, where="headers.country = 'DE'")(handles)
    at = ("--management-url", rabbitmq_management_url, "--output", "json")

    def told() -> bool:
        found = redrive("status", QUEUE, *at, url=rabbitmq_url).json()[0]
        return (found["retry_policies"], found["selects"]) == (
            ["2 retries, given up 1m10s after the first failure"],
            ["where headers.country = 'DE'"],
        )

    async def runs() -> None:
        async with app:
            await asyncio.to_thread(wait_until, told, "the policy of its worker is told")

    asyncio.run(runs())
