"""`redrive dlq scan`, `status` and `top` with dead-letter queues as others declare them."""

from types import SimpleNamespace
from typing import Any, cast

import pika
import pytest
import typer
from pika.adapters.blocking_connection import BlockingChannel

from cli_support import (
    PATIENCE,
    Outcome,
    Terminal,
    declare,
    give_the_management_api_time,
    redrive,
)
from contract.administration import Administration
from contract.plain import plain_channel
from redrive.cli import completion
from waiting import wait_until

pytestmark = pytest.mark.versions("what the management API says of queues and policies")

NOWHERE = ("--management-url", "http://127.0.0.1:9")
DLX, KEY, TTL = "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl"
MOMENT = 1_700_000_000


def make(channel: BlockingChannel, queue: str, **arguments: object) -> None:
    """Declares a queue with the arguments `dlx`, `key`, `ttl` and `type`."""
    names = {"dlx": DLX, "key": KEY, "ttl": TTL, "type": "x-queue-type"}
    channel.queue_declare(
        queue, durable=True, arguments={names[one]: value for one, value in arguments.items()}
    )


def frameworks_on(url: str) -> None:
    """Declares what Spring, Celery beside a dead-letter exchange, dramatiq, MassTransit and rascal
    do."""
    with plain_channel(url) as channel:
        for exchange, kind in {
            "DLX": "direct",
            "celery.dead": "topic",
            "order_error": "fanout",
            "dead_letters": "topic",
            "retry": "topic",
        }.items():
            channel.exchange_declare(exchange, kind, durable=True)
        make(channel, "so.g", dlx="DLX", key="so.g", type="quorum")
        make(channel, "so.g.dlq", type="quorum")
        channel.queue_bind("so.g.dlq", "DLX", "so.g")
        make(channel, "celery", dlx="celery.dead")
        make(channel, "graveyard")
        channel.queue_bind("graveyard", "celery.dead", "#")
        for name in ("default", "default.DQ"):
            make(channel, name, dlx="", key="default.XQ")
        make(channel, "default.XQ", ttl=604_800_000)
        make(channel, "order")
        make(channel, "order_error")
        channel.queue_bind("order_error", "order_error", "")
        make(channel, "shop:orders", dlx="dead_letters", key="shop.orders.dead")
        make(channel, "shop:dead")
        channel.queue_bind("shop:dead", "dead_letters", "shop.#")
        make(channel, "delay:1m", dlx="retry", ttl=60_000)
        channel.queue_bind("shop:orders", "retry", "shop.orders.#")


def asked(url: str, management_url: str, *arguments: str) -> dict[str, Any]:
    """What `redrive dlq scan` says as JSON, by queue."""
    done = redrive(
        *("dlq", "scan", *arguments, "--output", "json", "--management-url", management_url),
        url=url,
    )
    assert done.code == 0, done.err
    return {one["queue"]: one for one in done.json()["queues"]}


def test_it_finds_what_frameworks_declare(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    frameworks_on(rabbitmq_url)
    declare(rabbitmq_url, "ucenter@user")
    found = asked(rabbitmq_url, rabbitmq_management_url)
    assert {
        name: [(one["queue"], one["known_by"], one["certain"]) for one in queue["origins"]]
        for name, queue in found.items()
    } == {
        "so.g.dlq": [("so.g", "argument", True)],
        "graveyard": [("celery", "argument", True)],
        "default.XQ": [("default", "argument", True), ("default.DQ", "argument", True)],
        "order_error": [("order", "name", False)],
        "shop:dead": [("shop:orders", "argument", True)],
    }
    assert {name: one["dialects"] for name, one in found.items() if one["dialects"]} == {
        "default.XQ": ["dramatiq"],
        "order_error": ["masstransit"],
    }


def test_it_finds_what_a_policy_makes(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    with plain_channel(rabbitmq_url) as channel:
        make(channel, "orders", type="quorum")
        make(channel, "payments")
        make(channel, "graveyard")
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    administration.set_policy(
        "all-dead",
        "^(orders|payments)$",
        {"dead-letter-exchange": "", "dead-letter-routing-key": "graveyard"},
        "queues",
    )

    def origins() -> list[tuple[str, str, str]]:
        found = asked(rabbitmq_url, rabbitmq_management_url).get("graveyard", {"origins": []})
        return [(one["queue"], one["known_by"], one["policy"]) for one in found["origins"]]

    both = [("orders", "policy", "all-dead"), ("payments", "policy", "all-dead")]
    wait_until(lambda: origins() == both, "the management API tells of the policy")


def test_it_follows_what_the_broker_does(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    """Each message is found in the queue that the scan names for certain: through an alternate
    exchange by policy, a binding between exchanges, and a key by policy with an exchange by
    argument."""
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    administration.set_policy("else", "^first$", {"alternate-exchange": "second"}, "exchanges")
    administration.set_policy("key", "^payments$", {KEY.removeprefix("x-"): "k"}, "queues")
    with plain_channel(rabbitmq_url) as channel:
        for exchange, kind in {"first": "direct", "second": "fanout", "third": "topic"}.items():
            channel.exchange_declare(exchange, kind, durable=True)
        channel.exchange_bind("third", "second", "")
        make(channel, "orders", dlx="first", key="nobody", type="quorum")
        make(channel, "payments", dlx="third", type="quorum")
        make(channel, "lost")
        make(channel, "keyed")
        channel.queue_bind("lost", "third", "nobody")
        channel.queue_bind("keyed", "third", "k")

        def told() -> dict[str, list[str]]:
            return {
                name: [origin["queue"] for origin in one["origins"] if origin["certain"]]
                for name, one in asked(rabbitmq_url, rabbitmq_management_url).items()
            }

        wait_until(
            lambda: told() == {"lost": ["orders"], "keyed": ["payments"]},
            "the policies are told of",
        )
        for queue, target in (("orders", "lost"), ("payments", "keyed")):
            channel.basic_publish("", queue, queue.encode())
            method, _, _ = channel.basic_get(queue)
            assert method is not None
            channel.basic_reject(method.delivery_tag, requeue=False)
            arrived: list[bytes | None] = []

            def arrives(target: str = target, arrived: list[bytes | None] = arrived) -> bool:
                arrived.append(channel.basic_get(target, auto_ack=True)[2])
                return arrived[-1] is not None

            wait_until(arrives, f"a message in {target}")
            assert arrived[-1] == queue.encode()


def test_it_counts_and_says_what_to_do_next(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    published = pika.BasicProperties(timestamp=MOMENT)  # type: ignore[no-untyped-call]
    with plain_channel(rabbitmq_url) as channel:
        make(channel, "orders", dlx="", key="orders dlq")
        make(channel, "orders dlq")
        make(channel, "other.dlq")
        for _ in range(3):
            channel.basic_publish("", "orders dlq", b"x", published)

    def scan(*arguments: str) -> Outcome:
        return redrive(
            *("dlq", "scan", "--management-url", rabbitmq_management_url, *arguments),
            url=rabbitmq_url,
        )

    def is_known() -> bool:
        said = scan().out
        return "2023-11-14" in said and "3 messages in" in said

    wait_until(is_known, "the management API tells the oldest, and how many there are")
    done = scan()
    lines = done.out.splitlines()
    assert lines[0].split() == [
        *("queue", "messages", "consumers", "comes", "from", "dialect"),
        *("oldest", "(UTC)"),
    ]
    assert "orders by argument" in lines[2]
    assert lines[2].endswith("2023-11-14 22:13:20")
    assert lines[3].startswith("other.dlq")
    assert lines[-2:] == [
        "3 messages in 2 dead-letter queues.",
        "Next: redrive failed groups 'orders dlq'",
    ]
    assert (done.code, done.err) == (0, "")
    found = scan("--output", "json").json()["queues"]
    assert [(one["queue"], one["messages"], one["next"]) for one in found] == [
        ("orders dlq", 3, "redrive failed groups 'orders dlq'"),
        ("other.dlq", 0, "redrive failed groups other.dlq"),
    ]


def test_where_there_is_none_it_says_so(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    declare(rabbitmq_url, "ucenter@user")
    done = redrive("dlq", "scan", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert (done.code, done.out) == (0, "")
    assert done.err == "No dead-letter queue was found that redrive did not make.\n"


def test_without_the_management_api_it_says_what_to_do(rabbitmq_url: str) -> None:
    done = redrive("dlq", "scan", *NOWHERE, url=rabbitmq_url)
    assert (done.code, done.out) == (2, "")
    assert done.error_lines[0].startswith("Error: can't find the dead-letter queues: ")
    assert "redrive dlq scan QUEUE…" in done.error_lines[1]
    assert len(done.error_lines) == 2


def test_amqp_alone_counts_queues_that_are_named(rabbitmq_url: str) -> None:
    with plain_channel(rabbitmq_url) as channel:
        make(channel, "default.XQ")
        make(channel, "graveyard")
        channel.basic_publish("", "graveyard", b"x")
    done = redrive(
        *("dlq", "scan", "default.XQ", "graveyard", "gone", *NOWHERE, "--output", "json"),
        url=rabbitmq_url,
    )
    assert done.code == 1
    assert "1 queue missing: gone." in done.err
    assert "Where their messages come from is not known: " in done.err
    told = done.json()
    assert told["management"] is False
    assert [(one["queue"], one["messages"], one["dialects"]) for one in told["queues"]] == [
        ("graveyard", 1, []),
        ("default.XQ", 0, ["dramatiq"]),
    ]


def test_a_headers_binding_with_a_table_in_it_is_nothing_special(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    with plain_channel(rabbitmq_url) as channel:
        channel.exchange_declare("dlx", "headers", durable=True)
        make(channel, "orders", dlx="dlx")
        make(channel, "graveyard")
        channel.queue_bind("graveyard", "dlx", "", {"x-match": "any", "a": {"b": [1]}})
    (origin,) = asked(rabbitmq_url, rabbitmq_management_url)["graveyard"]["origins"]
    assert (origin["queue"], origin["certain"]) == ("orders", False)


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("redrive failed groups", ["orders.dlq", "ucenter@user"]),
        ("redrive dlq scan", ["orders.dlq"]),
        ("redrive declare", ["ucenter@user"]),
    ],
)
def test_the_shell_completes_them_where_they_are_taken(
    command: str,
    offered: list[str],
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "_TIME_LIMIT", PATIENCE)
    with plain_channel(rabbitmq_url) as channel:
        make(channel, "orders.dlq")
    declare(rabbitmq_url, "ucenter@user")
    context = SimpleNamespace(
        command_path=command,
        params={"url": rabbitmq_url, "management_url": rabbitmq_management_url},
    )
    found = completion.queues(cast(typer.Context, context), "")
    assert sorted(name for name, _ in found) == offered


# --- status and top -------------------------------------------------------------------------------


def test_status_lists_them_below_the_subscriptions(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    frameworks_on(rabbitmq_url)
    declare(rabbitmq_url, "ucenter@user")
    at = ("--management-url", rabbitmq_management_url)
    lines = redrive("status", *at, url=rabbitmq_url).out.splitlines()
    below = lines.index("Other queues with failed messages:")
    assert lines[2].split()[0] == "ucenter@user"
    assert {line.split()[0] for line in lines[below + 3 :]} == {
        *("so.g.dlq", "graveyard", "default.XQ", "order_error", "shop:dead"),
    }
    listed = redrive("status", *at, "--output", "json", url=rabbitmq_url).json()
    assert [one["queue"] for one in listed] == ["ucenter@user"]


@pytest.mark.parametrize("knows", [True, False])
def test_status_tells_of_one_that_is_named(
    knows: bool,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_the_management_api_time(monkeypatch)
    with plain_channel(rabbitmq_url) as channel:
        make(channel, "orders", dlx="", key="orders.dlq")
        make(channel, "orders.dlq")
        channel.basic_publish("", "orders.dlq", b"x")
    declare(rabbitmq_url, "ucenter@user")
    at = ("--management-url", rabbitmq_management_url) if knows else NOWHERE
    named = ("status", "orders.dlq", "ucenter@user", *at)
    done = redrive(*named, url=rabbitmq_url)
    assert (done.code, done.err) == (0, "")
    how = "argument" if knows else "name"
    assert done.out.splitlines()[-1].split() == [
        "orders.dlq",
        "1",
        "0",
        "orders",
        "by",
        how,
    ]
    ours, other = redrive(*named, "--output", "json", url=rabbitmq_url).json()
    assert ours["queue"] == "ucenter@user"
    assert (other["queue"], other["dead_letter_queue"]["messages"]) == ("orders.dlq", 1)


def test_top_lists_them_too(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    frameworks_on(rabbitmq_url)
    declare(rabbitmq_url, "ucenter@user")
    at = ("--once", "--management-url", rabbitmq_management_url)
    lines = redrive("top", *at, url=rabbitmq_url).out.splitlines()
    assert "Other queues with failed messages:" in lines
    told = redrive("top", *at, "--output", "json", url=rabbitmq_url).json()
    assert [one["queue"] for one in told["subscriptions"]] == ["ucenter@user"]
    assert len(told["dead_letter_queues"]) == 5
    some = redrive("top", "*.dlq", *at, "--output", "json", url=rabbitmq_url).json()
    assert [one["queue"] for one in some["dead_letter_queues"]] == ["so.g.dlq"]
    family = redrive(
        "top", "--exchange", "master", *at, "--output", "json", url=rabbitmq_url
    ).json()
    assert family["dead_letter_queues"] == []


def test_the_live_view_shows_the_fullest(rabbitmq_url: str, rabbitmq_management_url: str) -> None:
    with plain_channel(rabbitmq_url) as channel:
        for number in range(6):
            make(channel, f"q{number}.dlq")
    at = ("--management-url", rabbitmq_management_url)
    environment = {"LINES": "24"}
    with Terminal("top", *at, url=rabbitmq_url, environment=environment) as terminal:
        terminal.wait_for("2 more: redrive dlq scan")
        assert "Other queues with failed messages:" in terminal.words
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_shows_names_and_depths(
    columns: int, rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    frameworks_on(rabbitmq_url)
    at = ("--management-url", rabbitmq_management_url)
    with Terminal("dlq", "scan", *at, url=rabbitmq_url, columns=columns) as terminal:
        assert terminal.end() == 0
        assert all(len(line) <= columns for line in terminal.words.splitlines())
        for name in ("so.g.dlq", "graveyard", "default.XQ", "order_error", "shop:dead"):
            assert name in terminal.words


def test_the_live_view_has_names_and_depths_of_them_in_40_columns(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    frameworks_on(rabbitmq_url)
    at = ("--management-url", rabbitmq_management_url)
    environment = {"LINES": "40"}
    with Terminal("top", *at, url=rabbitmq_url, columns=40, environment=environment) as terminal:
        terminal.wait_for("1 more: redrive dlq scan")
        for name in ("default.XQ", "graveyard", "order_error", "shop:dead"):
            assert name in terminal.words
        terminal.type("q")
        assert terminal.end() == 0
