"""`redrive declare` on a real broker."""

import pytest

from cli_support import Outcome, depth_of, redrive

QUEUE = "ucenter@user"


def declare(url: str, *arguments: str, key: str = "user.*") -> Outcome:
    return redrive("declare", "--queue", QUEUE, "--routing-key", key, *arguments, url=url)


def states(outcome: Outcome) -> dict[str, str]:
    return {
        item.get("name", item.get("routing_key")): item["state"]
        for item in outcome.json()["objects"]
    }


def test_a_subscription_is_made(rabbitmq_url: str) -> None:
    done = declare(rabbitmq_url)
    assert done.code == 0
    assert "quorum queue ucenter@user@failed" in done.out
    assert depth_of(rabbitmq_url, QUEUE) == {"main": 0, "retry": 0, "failed": 0}


def test_a_second_run_finds_everything_there(rabbitmq_url: str) -> None:
    first, second = (declare(rabbitmq_url, "--output", "json") for _ in range(2))
    assert states(first)["ucenter@user@retry"] == "created"
    assert states(second)["ucenter@user@retry"] == "exists"


def test_without_prune_it_says_that_old_bindings_stay(rabbitmq_url: str) -> None:
    assert "--prune" in declare(rabbitmq_url).err


def test_classic_queues_are_the_other_choice(rabbitmq_url: str) -> None:
    assert (
        "classic queue ucenter@user@retry" in declare(rabbitmq_url, "--queue-type", "classic").out
    )


def test_a_message_waits_for_the_delay_asked_for(rabbitmq_url: str) -> None:
    objects = declare(rabbitmq_url, "--retry-delay", "1m30s", "--output", "json").json()["objects"]
    assert [
        item["arguments"]["x-message-ttl"]
        for item in objects
        if item.get("name") == "ucenter@user@retry"
    ] == [90_000]


def test_another_exchange_is_another_family(rabbitmq_url: str) -> None:
    assert "topic exchange shop.retry" in declare(rabbitmq_url, "--exchange", "shop").out


# --- what differs ---------------------------------------------------------------------------------


def test_a_queue_with_other_arguments_is_named_and_left_alone(rabbitmq_url: str) -> None:
    declare(rabbitmq_url, "--retry-delay", "30s")
    done = declare(rabbitmq_url, "--retry-delay", "1m")
    assert done.code == 1
    assert done.error_lines[0] == (
        "Error: queue 'ucenter@user@retry' is on the broker with x-message-ttl=30000; "
        "x-message-ttl=60000 is asked for."
    )


def test_where_one_queue_differs_nothing_is_made(rabbitmq_url: str) -> None:
    declare(rabbitmq_url)
    assert (
        redrive(
            "declare",
            "--queue",
            "ucenter@other",
            "--routing-key",
            "a",
            "--exchange",
            "shop",
            url=rabbitmq_url,
        ).code
        == 0
    )
    assert declare(rabbitmq_url, "--exchange", "third").code == 1
    dry_run = redrive(
        "declare",
        "--queue",
        "new",
        "--routing-key",
        "a",
        "--exchange",
        "third",
        "--dry-run",
        "--output",
        "json",
        url=rabbitmq_url,
    )
    assert states(dry_run)["third"] == "would be created"


def test_a_dry_run_makes_nothing(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    done = declare(rabbitmq_url, "--dry-run", "--management-url", rabbitmq_management_url)
    assert done.code == 0
    assert "would be created" in done.out
    assert depth_of(rabbitmq_url, QUEUE) == {"main": None, "retry": None, "failed": None}


def test_a_dry_run_with_a_mismatch_exits_with_1(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url)
    done = declare(
        rabbitmq_url,
        "--dry-run",
        "--retry-delay",
        "1m",
        "--management-url",
        rabbitmq_management_url,
    )
    assert done.code == 1
    assert (
        "queue ucenter@user@retry has x-message-ttl=30000, expected x-message-ttl=60000" in done.out
    )


def test_a_dry_run_names_every_argument_that_differs(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url)
    done = declare(
        rabbitmq_url,
        "--dry-run",
        "--queue-type",
        "classic",
        "--management-url",
        rabbitmq_management_url,
        "--output",
        "json",
    )
    differences = {
        item["name"]: {one["argument"] for one in item["differences"]}
        for item in done.json()["objects"]
        if "name" in item
    }
    assert differences["ucenter@user@failed"] == {"x-queue-type", "x-delivery-limit"}


def test_a_dry_run_without_the_management_api_says_what_it_could_not_compare(
    rabbitmq_url: str,
) -> None:
    declare(rabbitmq_url)
    done = declare(rabbitmq_url, "--dry-run", "--management-url", "http://127.0.0.1:9")
    assert done.code == 0
    assert "not checked" in done.out
    assert done.err.startswith(
        "Bindings were not compared: RabbitMQ at http://127.0.0.1:9 can't be used"
    )


# --- patterns that are no longer asked for --------------------------------------------------------


def test_a_dry_run_shows_bindings_that_would_stay_or_go(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url)
    arguments = ("--dry-run", "--management-url", rabbitmq_management_url, "--output", "json")
    assert states(declare(rabbitmq_url, *arguments, key="account.*"))["user.*"] == "would stay"
    assert (
        states(declare(rabbitmq_url, *arguments, "--prune", key="account.*"))["user.*"]
        == "would be removed"
    )


def test_prune_removes_what_is_no_longer_asked_for(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url)
    done = declare(
        rabbitmq_url,
        "--prune",
        "--yes",
        "--management-url",
        rabbitmq_management_url,
        "--output",
        "json",
        key="account.*",
    )
    assert done.code == 0
    assert states(done)["user.*"] == "removed"
    assert redrive("publish", "user.create", "x", url=rabbitmq_url).code == 1
    assert redrive("publish", "account.create", "x", url=rabbitmq_url).code == 0


def test_prune_with_nothing_to_remove_asks_nobody(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    assert declare(rabbitmq_url, "--prune", "--management-url", rabbitmq_management_url).code == 0


def test_prune_without_a_terminal_and_without_yes_changes_nothing(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    declare(rabbitmq_url)
    done = declare(
        rabbitmq_url, "--prune", "--management-url", rabbitmq_management_url, key="account.*"
    )
    assert done.code == 2
    assert done.error_lines[-2:] == [
        "Error: there is no terminal to ask at: Remove 2 bindings?",
        "Give --yes to go ahead, or --dry-run to see what would happen.",
    ]
    assert redrive("publish", "account.create", "x", url=rabbitmq_url).code == 1


def test_prune_without_the_management_api_changes_nothing(rabbitmq_url: str) -> None:
    done = declare(rabbitmq_url, "--prune", "--yes", "--management-url", "http://127.0.0.1:9")
    assert done.code == 2
    assert depth_of(rabbitmq_url, QUEUE)["main"] is None


# --- what can't be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--retry-delay", "1h3x"), "the duration '1h3x' has the unknown unit 'x' in '3x'"),
        (("--retry-delay", "30"), "the duration '30' has no unit after 30"),
        (("--retry-delay", ""), "the duration is empty"),
        (("--retry-delay", "99d"), "the retry delay is 99 days, 0:00:00"),
        (("--max-retries", "-1"), "max_retries is -1"),
        (("--max-retries", "many"), "Invalid value for '--max-retries'"),
        (("--queue-type", "stream"), "queue_type is 'stream'"),
        (("--exchange", ""), "the exchange name is ''"),
        (("--output", "xml"), "Invalid value for '--output'"),
        (("--routing-key", "k" * 256), "is 256 bytes; at most 255 fit"),
        (("more",), "Got unexpected extra argument"),
    ],
)
def test_what_cant_be_is_said_in_two_lines(
    rabbitmq_url: str, arguments: tuple[str, ...], problem: str
) -> None:
    done = declare(rabbitmq_url, *arguments)
    assert done.code == 2
    assert problem in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert done.out == ""


@pytest.mark.parametrize("queue", ["ucenter@retry", "ucenter@failed", "", "amq.mine", "q" * 249])
def test_a_queue_name_that_cant_be_is_refused(rabbitmq_url: str, queue: str) -> None:
    done = redrive("declare", "--queue", queue, "--routing-key", "user.*", url=rabbitmq_url)
    assert done.code == 2
    assert done.err.startswith("Error: the queue name ")


def test_a_missing_option_is_named(rabbitmq_url: str) -> None:
    done = redrive("declare", "--queue", QUEUE, url=rabbitmq_url)
    assert (done.code, done.error_lines[0]) == (2, "Error: Missing option '--routing-key'.")
