"""`redrive doctor` on a real broker: each finding where it can occur, with what it means and the
command that mends it."""

import contextlib
import shlex
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from cli_support import declare, give_the_management_api_time, redrive
from contract.administration import Administration, Memory
from contract.plain import plain_channel
from contract.shells import Shell
from contract.support import Recorder, Service, both_shells
from redrive import Message, PublishRefused, Subscriber
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.testing import Broker
from redrive.topology.broker_version import BrokerVersion
from waiting import wait_until

pytestmark = pytest.mark.versions("what the management API says of a broker that is not well")

QUEUE = "ucenter@user"
NOWHERE = "http://127.0.0.1:9"

Doctor = Callable[..., list[dict[str, str]]]


@pytest.fixture
def administration(rabbitmq_management_url: str, rabbitmq_url: str) -> Administration:
    return Administration(rabbitmq_management_url, rabbitmq_url)


@pytest.fixture
def doctor(rabbitmq_url: str, rabbitmq_management_url: str) -> Doctor:
    """Runs the command, and gives what it found."""

    def run(
        *arguments: str, url: str = rabbitmq_url, management_url: str = rabbitmq_management_url
    ) -> list[dict[str, str]]:
        done = redrive(
            "doctor", *arguments, "--management-url", management_url, "--output", "json", url=url
        )
        found: list[dict[str, str]] = done.json()["findings"]
        assert done.code == (1 if found else 0), done.err
        return found

    return run


def kinds(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Which findings there are, and about what."""
    return [(one["kind"], one["where"]) for one in found]


def declare_as_peers(channel: BlockingChannel, queue: str, pattern: str) -> None:
    """Declares a subscription as services do that republish what fails."""
    for suffix in ("", ".retry", ".failed"):
        channel.exchange_declare(f"master{suffix}", "topic", durable=True)
    arguments = {
        "x-dead-letter-exchange": "master",
        "x-dead-letter-routing-key": queue,
        "x-message-ttl": 30000,
    }
    channel.queue_declare(queue, durable=True)
    channel.queue_declare(f"{queue}@retry", durable=True, arguments=arguments)
    channel.queue_declare(f"{queue}@failed", durable=True)
    channel.queue_bind(queue, "master", pattern)
    channel.queue_bind(queue, "master", queue)
    channel.queue_bind(f"{queue}@retry", "master.retry", queue)
    channel.queue_bind(f"{queue}@failed", "master.failed", queue)


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[BlockingChannel]:
    """A channel of a service without redrive."""
    with plain_channel(rabbitmq_url) as channel:
        yield channel


def test_a_healthy_subscription_has_no_finding(doctor: Doctor, rabbitmq_url: str) -> None:
    declare(rabbitmq_url, QUEUE)
    assert doctor() == []
    assert doctor(QUEUE, "--routing-key", "user.*", "--handler-time", "1m") == []


def test_a_queue_whose_name_no_subscription_can_have_is_left_out_and_named(
    rabbitmq_url: str, rabbitmq_management_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_declare("\x1b]0;owned\x07@failed", durable=True)
    done = redrive("doctor", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert done.code == 0, done.err
    assert "Not checked: " in done.err
    assert "\x1b]" not in done.out + done.err


def test_amqp_alone_tells_of_a_named_subscription(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    assert doctor(QUEUE, management_url=NOWHERE) == []
    channel.exchange_delete("master.retry")
    assert kinds(doctor(QUEUE, management_url=NOWHERE)) == [("dead-letter-target", QUEUE)]


def test_without_a_name_and_the_management_api_it_asks_for_a_name(rabbitmq_url: str) -> None:
    done = redrive("doctor", "--management-url", NOWHERE, url=rabbitmq_url)
    assert (done.code, done.error_lines[1]) == (2, "Name the queues: redrive doctor QUEUE…")


def test_it_says_in_words_what_it_found_what_it_means_and_what_mends_it(
    rabbitmq_url: str, rabbitmq_management_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_unbind(f"{QUEUE}@retry", "master.retry", QUEUE)
    done = redrive("doctor", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
    assert done.code == 1
    assert (
        "found:  it dead-letters to the exchange 'master.retry', which has no queue for the key "
        "'ucenter@user'." in done.out
    )
    assert "means:  Messages that are rejected or expire in it" in done.out
    fix = (
        next(line for line in done.out.splitlines() if "fix:" in line).partition("fix:")[2].split()
    )
    assert fix[:2] == ["redrive", "declare"]
    assert redrive(*[word.strip("'") for word in fix[1:]], url=rabbitmq_url).code == 0
    assert (
        redrive("doctor", "--management-url", rabbitmq_management_url, url=rabbitmq_url).code == 0
    )


def test_a_dead_letter_target_that_was_deleted_is_found(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_delete(QUEUE)
    assert kinds(doctor()) == [("not-there", QUEUE), ("dead-letter-target", f"{QUEUE}@retry")]


def test_a_queue_that_gets_the_retries_of_another_is_found_and_its_remedy_mends_it(
    doctor: Doctor, administration: Administration, channel: BlockingChannel
) -> None:
    declare_as_peers(channel, QUEUE, "user.*")
    channel.queue_declare("audit", durable=True)
    channel.queue_bind("audit", "master", "#")
    (found,) = doctor(QUEUE)
    assert kinds([found]) == [("copies-of-retries", "audit")]
    _, _, path = found["remedy"].partition("http://HOST:15672/api/")
    administration.delete(path.partition(" ")[0].rstrip("."))
    assert doctor(QUEUE) == []


def test_a_queue_bound_to_everything_is_no_finding_where_retries_go_past_the_exchange(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_declare("audit", durable=True)
    channel.queue_bind("audit", "master", "#")
    assert doctor() == []


def declare_with_a_limit_that_deletes(
    channel: BlockingChannel, broker_version: BrokerVersion
) -> None:
    """Puts a failed queue that loses what is looked at in the place of ours."""
    channel.queue_delete(f"{QUEUE}@failed")
    limit = {} if broker_version.deletes_after_deliveries else {"x-delivery-limit": -1}
    channel.queue_declare(
        f"{QUEUE}@failed", durable=True, arguments={"x-queue-type": "quorum", **limit}
    )
    channel.queue_bind(f"{QUEUE}@failed", "master.failed", QUEUE)


def test_a_delivery_limit_that_deletes_failed_messages_is_found(
    doctor: Doctor,
    broker_version: BrokerVersion,
    administration: Administration,
    rabbitmq_url: str,
    channel: BlockingChannel,
) -> None:
    declare(rabbitmq_url, QUEUE)
    declare_with_a_limit_that_deletes(channel, broker_version)
    for address in (NOWHERE, administration.management_url):
        findings = doctor(QUEUE, management_url=address)
        assert len(findings) == 1, findings
        found = findings[0]
        assert kinds([found]) == [("delivery-limit", f"{QUEUE}@failed")]
        assert "deletes them" in found["meaning"]
        assert (
            "rabbitmqctl set_policy"
            if broker_version.deletes_after_deliveries
            else "rabbitmqctl delete_queue"
        ) in found["remedy"]


def test_a_handler_that_takes_longer_than_the_consumer_timeout_is_found(
    doctor: Doctor, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    (found,) = doctor(QUEUE, "--handler-time", "45m")
    assert kinds([found]) == [("consumer-timeout", QUEUE)]
    assert "for 2700 s" in found["problem"]
    assert "5400000" in found["remedy"]


def test_a_policy_counts_where_it_hurts_and_where_it_mends(
    doctor: Doctor,
    broker_version: BrokerVersion,
    administration: Administration,
    rabbitmq_url: str,
    channel: BlockingChannel,
) -> None:
    declare(rabbitmq_url, QUEUE)
    if broker_version.deletes_after_deliveries:
        declare_with_a_limit_that_deletes(channel, broker_version)
    timeout = (
        {"consumer-timeout": 5_400_000}
        if broker_version.has_a_consumer_timeout_for_each_queue
        else {}
    )
    administration.set_policy(
        "tidy", ".*", {"message-ttl": 60_000, "delivery-limit": 1_000_000_000, **timeout}, "queues"
    )
    # The management API lists a policy's effect after some seconds.
    wait_until(
        lambda: sum(one["kind"] == "message-ttl" for one in doctor()) == 2, "the policy is listed"
    )
    found = doctor(QUEUE, "--handler-time", "45m")
    assert kinds(found) == [
        ("message-ttl", QUEUE),
        ("message-ttl", f"{QUEUE}@failed"),
        *([] if timeout else [("consumer-timeout", QUEUE)]),
    ]
    assert found[0]["problem"] == "policy 'tidy' sets message-ttl to 60000 ms"
    assert found[0]["remedy"].endswith(
        f"rabbitmqctl clear_policy -p {administration.virtual_host} tidy"
    )


def test_a_binding_that_is_no_longer_asked_for_is_found_and_its_remedy_mends_it(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_bind(QUEUE, "master", "order.#")
    (found,) = doctor(QUEUE, "--routing-key", "user.*")
    assert kinds([found]) == [("stale-binding", QUEUE)]
    assert (
        found["remedy"]
        == f"redrive declare --queue {QUEUE} --routing-key 'user.*' --retry-delay 200ms --prune"
    )


@contextlib.contextmanager
def consumed_by_redrive(url: str) -> Iterator[None]:
    """A worker of ours on the queue."""
    subscriber = Subscriber(url, QUEUE, declare=False, queue_type="classic")

    @subscriber.handler
    def handle(_: Message) -> None: ...

    subscriber.start()
    try:
        yield
    finally:
        subscriber.stop()
        subscriber.wait()


def test_a_consumer_that_can_only_republish_is_found_where_the_broker_ignores_its_count(
    doctor: Doctor, broker_version: BrokerVersion, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare_as_peers(channel, QUEUE, "user.*")
    assert doctor(QUEUE) == []
    channel.basic_consume(QUEUE, lambda *_: None)
    expected = [] if broker_version.continues_client_x_death else [("republishing-consumer", QUEUE)]
    wait_until(lambda: kinds(doctor(QUEUE)) == expected, "the broker lists the consumer")
    assert kinds(doctor(QUEUE, management_url=NOWHERE)) == expected


def test_a_consumer_of_redrives_own_is_none_that_can_only_republish(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    declare_as_peers(channel, QUEUE, "user.*")
    with consumed_by_redrive(rabbitmq_url):
        wait_until(lambda: not doctor(QUEUE), "the broker lists whose consumer it is")


# --- rights ---------------------------------------------------------------------------------------


def test_a_user_that_may_only_publish_is_found_able_to_publish_and_nothing_else(
    doctor: Doctor, administration: Administration, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    with administration.user(
        administration.unique("writer"), configure="^$", write="^master$", read="^$"
    ) as url:
        assert doctor(QUEUE, "--role", "publisher", url=url, management_url=NOWHERE) == []
        found = doctor(QUEUE, url=url, management_url=NOWHERE)
    assert kinds(found) == [("permission", QUEUE)] * 4
    assert "can't be a subscriber" in found[0]["problem"]
    assert f"read queue {QUEUE}" in found[0]["problem"]
    assert "write exchange master," not in found[0]["problem"]


def test_a_user_that_may_write_into_others_failed_queues_is_found_until_it_is_restricted(
    doctor: Doctor, administration: Administration, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    name = f"worker-{uuid.uuid4().hex[:12]}"
    with administration.user(
        name, configure="^$", write=r"^master\.(retry|failed)$", read=f"^{QUEUE}$"
    ):
        assert doctor(QUEUE) == []  # nobody else is there
        declare(rabbitmq_url, "shop@orders")
        wait_until(
            lambda: kinds(doctor()) == [("topic-permission", name)],
            "the API lists both subscriptions",
        )
        (found,) = doctor()
        assert (
            f"rabbitmqctl set_topic_permissions -p {administration.virtual_host} {name} "
            "master.failed" in found["remedy"]
        )
        for exchange in ("master.failed", "master.retry"):
            administration.set_topic_permission(name, exchange, write=f"^{QUEUE}$")
        wait_until(lambda: doctor() == [], "the API lists both topic permissions")


def test_looking_for_rights_makes_nothing_and_sends_nothing(
    doctor: Doctor, rabbitmq_url: str, channel: BlockingChannel
) -> None:
    channel.exchange_declare("master", "topic", durable=True)
    channel.queue_declare("audit", durable=True)
    channel.queue_bind("audit", "master", "#")
    assert [kind for kind, _ in kinds(doctor(QUEUE))] == ["not-there"]
    answer: Any = channel.queue_declare("audit", passive=True)
    assert answer.method.message_count == 0
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare(QUEUE, passive=True)


def test_a_role_that_there_is_not_is_named_with_those_that_are(rabbitmq_url: str) -> None:
    done = redrive("doctor", QUEUE, "--role", "admin", url=rabbitmq_url)
    assert (done.code, done.error_lines[1]) == (
        2,
        "Give one of publisher, subscriber, delayer, declarer, operator.",
    )


def test_a_pattern_needs_one_queue(rabbitmq_url: str) -> None:
    done = redrive("doctor", "a@b", "c@d", "--routing-key", "user.*", url=rabbitmq_url)
    assert (done.code, done.error_lines[1]) == (2, "Name the queue that it belongs to.")


@pytest.mark.nightly("waits for the statistics of the management API")
def test_messages_that_can_not_be_dead_lettered_are_found_and_shown(
    doctor: Doctor,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    channel: BlockingChannel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_the_management_api_time(monkeypatch)
    declare(rabbitmq_url, QUEUE)
    # What the main queue dead-letters finds no queue: the broker keeps it and tries on.
    channel.queue_unbind(f"{QUEUE}@retry", "master.retry", QUEUE)
    for _ in range(3):
        channel.basic_publish("master", "user.create", b"{}", mandatory=True)
    for taken, (method, _, _) in enumerate(channel.consume(QUEUE), 1):
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
        if taken == 3:
            break
    channel.cancel()
    status = ("status", QUEUE, "--management-url", rabbitmq_management_url)
    wait_until(
        lambda: (
            redrive(*status, "--output", "json", url=rabbitmq_url).json()[0]["dead_lettering"] == 3
        ),
        "the management API lists what is being dead-lettered",
    )
    shown = " ".join(redrive(*status, url=rabbitmq_url).out.split())
    assert f"3 messages of {QUEUE} are being dead-lettered and not counted." in shown
    top = redrive(
        "top",
        "--once",
        "--management-url",
        rabbitmq_management_url,
        "--output",
        "json",
        url=rabbitmq_url,
    ).json()["subscriptions"][0]
    assert (top["main"], top["dead_lettering"]) == (3, 3)

    target, stuck = doctor()
    assert kinds([target, stuck]) == [
        ("dead-letter-target", QUEUE),
        ("dead-lettering-stuck", QUEUE),
    ]
    assert stuck["problem"].startswith("3 messages that it is dead-lettering did not become fewer")


def test_a_failed_queue_that_a_policy_has_delete_its_oldest_messages_is_found(
    doctor: Doctor, administration: Administration, rabbitmq_url: str
) -> None:
    declare(rabbitmq_url, QUEUE)
    administration.set_policy(
        "short", f"^{QUEUE}@failed$", {"max-length": 1000, "delivery-limit": 10**9}, "queues"
    )
    wait_until(lambda: ("drop-head", f"{QUEUE}@failed") in kinds(doctor()), "the policy is listed")
    (found,) = doctor()
    assert "policy 'short' sets max-length to 1000" in found["problem"]


def test_a_retry_queue_that_no_policy_matches_is_found_and_what_is_printed_mends_it(
    doctor: Doctor, administration: Administration, rabbitmq_broker: Broker, rabbitmq_url: str
) -> None:
    retry = f"{QUEUE}@retry"
    declare(rabbitmq_url, QUEUE)
    with plain_channel(rabbitmq_url) as channel:
        channel.queue_delete(retry)
        channel.queue_declare(retry, durable=True)
        channel.queue_bind(retry, "master.retry", QUEUE)
    administration.set_policy("retries", "^elsewhere@retry$", {"message-ttl": 5000}, "queues")
    wait_until(
        lambda: kinds(doctor()) == [("no-delay", retry), ("dead-letter-target", retry)],
        "the queue is listed",
    )
    command = shlex.split(doctor()[0]["remedy"])
    rabbitmq_broker.control(*command[1:])
    wait_until(lambda: doctor() == [], "the policy is listed")


def test_messages_that_a_newer_broker_refuses_are_found_before_the_upgrade(
    rabbitmq_url: str, rabbitmq_management_url: str, broker_version: BrokerVersion
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    body = bytes(17 * 1024 * 1024)
    with service.publisher() as publisher:
        if broker_version.largest_message < len(body):
            with pytest.raises(PublishRefused, match="max_message_size"):
                publisher.publish(body, "order.paid")
            return
        publisher.publish(body, "order.paid")

    def later() -> list[dict[str, str]]:
        found: list[dict[str, str]] = redrive(
            "doctor",
            "--for",
            "4.3",
            "--management-url",
            rabbitmq_management_url,
            "--output",
            "json",
            url=rabbitmq_url,
        ).json()["after_upgrade"]
        return found

    wait_until(lambda: ("message-size", service.queue) in kinds(later()), "the size is listed")


@both_shells
def test_live_subscribers_that_ask_for_different_tags_are_found(
    doctor: Doctor, rabbitmq_url: str, shell: Shell
) -> None:
    service = Service(rabbitmq_url, shell=shell)
    with (
        service.subscriber(Recorder(), tags="vip"),
        service.subscriber(Recorder(), tags="vip"),
        service.subscriber(Recorder(), tags="eu || us"),
    ):
        wait_until(lambda: "different-tags" in dict(kinds(doctor())), "all are listed")
        (found,) = (one for one in doctor() if one["kind"] == "different-tags")
        assert (
            found["problem"]
            == "its subscribers ask for different tags or filters: 'eu || us', 'vip'"
        )


@pytest.mark.nightly("waits for the statistics of the management API")
def test_a_node_that_is_short_of_memory_is_found_and_permissions_are_left_out(
    rabbitmq_broker: Broker,
    administration: Administration,
    doctor: Doctor,
    rabbitmq_url: str,
    rabbitmq_management_url: str,
) -> None:
    declare(rabbitmq_url, QUEUE)
    memory = Memory(rabbitmq_broker, administration)
    memory.use_up()
    try:
        wait_until(lambda: "alarm" in dict(kinds(doctor())), "the alarm is listed")
        # A check of a permission to write publishes, and the broker would never answer.
        done = redrive("doctor", "--management-url", rabbitmq_management_url, url=rabbitmq_url)
        blind = redrive("doctor", QUEUE, "--management-url", NOWHERE, url=rabbitmq_url)
    finally:
        memory.free()
    assert "Permissions were not checked" in done.err
    assert "Permissions were not checked" in blind.err
    assert doctor() == []


def test_what_an_upgrade_will_hurt_is_found_before(
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    channel: BlockingChannel,
    broker_version: BrokerVersion,
) -> None:
    declare(rabbitmq_url, QUEUE)
    channel.queue_delete(f"{QUEUE}@failed")
    channel.queue_declare(f"{QUEUE}@failed", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind(f"{QUEUE}@failed", "master.failed", QUEUE)
    arguments = ("doctor", "--for", "4.3", "--management-url", rabbitmq_management_url)
    found = redrive(*arguments, "--output", "json", url=rabbitmq_url).json()
    expected = [("delivery-limit", f"{QUEUE}@failed")]
    hurts_now = broker_version.deletes_after_deliveries is not None
    assert kinds(found["findings"]) == (expected if hurts_now else [])
    assert kinds(found["after_upgrade"]) == ([] if hurts_now else expected)
    done = redrive(*arguments, url=rabbitmq_url)
    assert done.code == 1
    assert (
        "No further problem found for RabbitMQ 4.3."
        if hurts_now
        else "Once the broker is RabbitMQ 4.3:"
    ) in done.out
    assert redrive("doctor", "--for", "soon", url=rabbitmq_url).error_lines == [
        "Error: 'soon' is not a version of RabbitMQ",
        "Give one such as 4.3 or 4.3.6.",
    ]


def test_bindings_that_look_for_lists_and_tables_trouble_nobody(
    rabbitmq_url: str, rabbitmq_management_url: str, doctor: Doctor
) -> None:
    declare(rabbitmq_url, QUEUE)
    assert doctor() == []
    looked_for: list[dict[str, Any]] = [
        {"x": ["a", 1]},
        {"x": {"b": [True]}},
        {"x": 1},
        {"x": "1"},
    ]
    with plain_channel(rabbitmq_url) as channel:
        channel.exchange_declare("others", "headers", durable=True)
        for arguments in looked_for:
            # And one that is compared with those of the topology.
            for exchange in ("others", "master"):
                channel.queue_bind(QUEUE, exchange, "user.*", arguments)
    assert kinds(doctor()) == [("stale-binding", QUEUE)] * len(looked_for)
    status = redrive(
        *("status", "--management-url", rabbitmq_management_url, "--output", "json"),
        url=rabbitmq_url,
    )
    assert status.code == 0, status.err
    pruned = redrive(
        *("declare", "--queue", QUEUE, "--routing-key", "user.*", "--retry-delay", "200ms"),
        *("--prune", "--yes", "--management-url", rabbitmq_management_url),
        url=rabbitmq_url,
    )
    assert pruned.code == 0, pruned.err
    left = ManagementAPI(BrokerURL.parse(rabbitmq_url), rabbitmq_management_url)
    with left:
        found = [one for one in left.bindings() if one.destination == QUEUE]
    assert sum(one.source == "others" for one in found) == len(looked_for)
    assert [one.arguments for one in found if one.source == "master"] == [(), ()]
