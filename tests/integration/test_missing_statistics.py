"""What the management API does not tell is not known: no reader of it says 0, and none breaks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_support import Outcome, redrive
from contract.plain import plain_channel
from effort import effort, nightly
from live_shop import EACH, NEW, OLD, Shop
from management_proxy import FIELDS, REFUSED, UNCOUNTED, Proxy, proxy_before
from redrive.pubsub.admin.broker_watch import BrokerWatch
from redrive.pubsub.admin.queue_metrics import MESSAGES, samples_of
from redrive.pubsub.url import BrokerURL
from redrive.topology.durations import duration_of
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext
from waiting import wait_until

QUEUE, FAILED, GRAVEYARD = "svc@job", "svc@job@failed", "orders-graveyard"
COUNT = 5
USUAL = ("messages_ready", "messages", "consumers", "effective_policy_definition", "arguments")


@pytest.fixture
def proxy(rabbitmq_management_url: str) -> Iterator[Proxy]:
    with proxy_before(rabbitmq_management_url) as found:
        yield found


@pytest.fixture
def url(rabbitmq_url: str, proxy: Proxy) -> str:
    """A virtual host in which five messages have failed in each of two queues, counted."""
    redrive("declare", "--queue", QUEUE, "--routing-key", "job.*", url=rabbitmq_url)
    with plain_channel(rabbitmq_url) as channel:
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVEYARD}
        channel.queue_declare("orders", durable=True, arguments=dead)
        channel.queue_declare(GRAVEYARD, durable=True)
        for _ in range(COUNT):
            channel.basic_publish("master.failed", QUEUE, b"{}")
            channel.basic_publish("", GRAVEYARD, b"{}")
    # Each queue is counted by itself, every five seconds.
    wait_until(lambda: failed_in_top(rabbitmq_url, proxy) == COUNT, f"{FAILED} is counted")
    wait_until(lambda: found_by_scan(rabbitmq_url, proxy) == COUNT, f"{GRAVEYARD} is counted")
    return rabbitmq_url


def asked(url: str, proxy: Proxy, *arguments: str) -> Outcome:
    """What a command says; it may refuse, and does not break."""
    done = redrive(*arguments, "--management-url", proxy.address, url=url)
    assert "defect of redrive" not in done.err, done
    assert "is not a management API" not in done.err, done
    return done


def failed_in_top(url: str, proxy: Proxy) -> int | None:
    done = asked(url, proxy, "top", "--output", "json")
    if not done.out:
        return None
    (one,) = done.json()["subscriptions"]
    failed: int | None = one["failed"]
    return failed


def found_by_scan(url: str, proxy: Proxy) -> int | None:
    queues = asked(url, proxy, "dlq", "scan", "--output", "json").json()["queues"]
    messages: int | None = next(one["messages"] for one in queues if one["queue"] == GRAVEYARD)
    return messages


def assert_nobody_says_that_there_is_none(url: str, proxy: Proxy, *, all_queues: bool) -> None:
    """Each reader of the API says five, or that it does not know."""
    known = {COUNT, None}
    assert failed_in_top(url, proxy) in known
    table = asked(url, proxy, "top", "--once").out
    assert "missing" not in table
    if all_queues:
        assert found_by_scan(url, proxy) == COUNT  # AMQP counts where the API does not
    else:
        assert "does not show the arguments" in asked(url, proxy, "dlq", "scan").err
    status = asked(url, proxy, "status", QUEUE, "--output", "json").json()
    assert status[0]["failed"]["messages"] == COUNT, status
    asked(url, proxy, "status")
    assert asked(url, proxy, "doctor", "--output", "json").code in (0, 1)
    watch = BrokerWatch(BrokerURL.parse(url), proxy.address, duration_of("1h"))
    try:
        watch.start()
        told = watch.now()
    finally:
        watch.stop()
    for role, count in told.queues:
        ready = [
            sample.value
            for sample in samples_of(role, count, 0)
            if sample.gauge is MESSAGES and sample.attributes["redrive.state"] == "ready"
        ]
        assert role.queue not in (FAILED, GRAVEYARD) or ready in ([COUNT], [])
    if all_queues:
        settings = ConsoleSettings(url=url, management_url=proxy.address)
        for line in ConsoleContext.of(settings).queue_states.counts():
            assert line.failed in known
    asked(url, proxy, "failed", "requeue", GRAVEYARD, "--dry-run")


def written_of(url: str, proxy: Proxy) -> str:
    """The topology file that the API's answers give; empty where they are refused for it."""
    return asked(url, proxy, "topology", "init").out


@pytest.mark.versions("what the management API tells of a queue")
def test_no_reader_breaks_or_says_0_of_what_the_management_api_does_not_tell(
    url: str, proxy: Proxy
) -> None:
    whole = written_of(url, proxy)
    assert QUEUE in whole
    for field in effort(USUAL, nightly=FIELDS):
        proxy.left_out = frozenset({field})
        assert written_of(url, proxy) in (whole, "")
        assert_nobody_says_that_there_is_none(
            url, proxy, all_queues=field not in ("arguments", "type")
        )


@pytest.mark.versions("what the management API tells without statistics")
def test_without_statistics_everything_that_counts_says_that_it_does_not_know(
    url: str, proxy: Proxy
) -> None:
    proxy.left_out, proxy.refused = UNCOUNTED, REFUSED
    assert_nobody_says_that_there_is_none(url, proxy, all_queues=True)
    assert failed_in_top(url, proxy) is None
    assert "not counted by the broker" in asked(url, proxy, "top", "--once").out
    assert "the consumers are not known" in asked(url, proxy, "doctor").err


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, "Stats are disabled"),
        (401, "refused"),
        (403, "refused"),
        (503, "503"),
        nightly(None, "did not answer", why="what never answers is waited for"),
    ],
)
def test_a_list_that_could_not_be_read_is_not_empty(
    url: str, proxy: Proxy, status: int | None, told: str
) -> None:
    proxy.refused, proxy.status = frozenset({"queues"}), status
    for command in (("top", "--once"), ("dlq", "scan")):
        done = asked(url, proxy, *command)
        assert (done.code, done.out) == (2, ""), done
        assert told in done.err, done


@pytest.mark.versions("what the management API tells without statistics")
@pytest.mark.parametrize(
    "left_out",
    [
        UNCOUNTED,
        *(
            nightly(frozenset({field}), why="one field of what is left out each time")
            for field in FIELDS
        ),
    ],
    ids=lambda fields: "all" if len(fields) > 1 else min(fields),
)
def test_a_migration_loses_nothing_whatever_the_management_api_does_not_tell(
    rabbitmq_url: str, proxy: Proxy, tmp_path: Path, left_out: frozenset[str]
) -> None:
    shop = Shop(rabbitmq_url, proxy.address, tmp_path / "team.yaml", OLD["another delay"])
    with shop.consuming(shop.old):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
    proxy.left_out = left_out
    proxy.refused = REFUSED if left_out == UNCOUNTED else frozenset()
    done = asked(rabbitmq_url, proxy, "topology", "migrate", str(shop.file), "--yes")
    proxy.left_out = proxy.refused = frozenset()
    if "arguments" in left_out or "type" in left_out:
        assert done.code == 2, done
        asked(rabbitmq_url, proxy, "topology", "migrate", str(shop.file), "--yes")
    else:
        assert done.code == 0, done
    with shop.consuming(NEW):
        shop.assert_nothing_is_lost()
