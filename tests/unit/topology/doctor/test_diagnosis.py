"""What is found on a broker of which everything, or hardly anything, is known."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest

from redrive.topology import names
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.doctor.diagnosis import Question, diagnose, diagnose_upgrade, would_gain
from redrive.topology.doctor.facts import Access, Consumers, Facts, QueueFacts
from redrive.topology.doctor.finding import Finding
from redrive.topology.model import Binding, Subscription
from redrive.topology.names import ExchangeFamily

Q, RETRY, FAILED = "ucenter@user", "ucenter@user@retry", "ucenter@user@failed"
OLD, NEW = BrokerVersion(3, 10, 8), BrokerVersion(4, 0, 5)
HOLDS_BACK = BrokerVersion(4, 3, 6)
SUBSCRIPTION = Subscription(Q, ["user.*"])
QUESTION = Question(Q, ExchangeFamily())
PEERS = (
    QueueFacts(Q, {"x-queue-type": "classic"}),
    QueueFacts(
        RETRY,
        {
            "x-queue-type": "classic",
            "x-dead-letter-exchange": "master",
            "x-dead-letter-routing-key": Q,
            "x-message-ttl": 30_000,
        },
    ),
    QueueFacts(FAILED, {"x-queue-type": "classic"}),
)
"""A subscription as services declare it that republish what fails."""


def healthy(version: BrokerVersion = NEW) -> Facts:
    """A broker on which a subscription is as redrive declares it."""
    topology = SUBSCRIPTION.topology()
    return Facts(
        version,
        "/",
        {exchange.name: exchange.type for exchange in topology.exchanges},
        {queue.name: QueueFacts(queue.name, dict(queue.arguments)) for queue in topology.queues},
        frozenset(topology.bindings),
        complete=True,
        nodes=1,
    )


def with_queues(*queues: QueueFacts, version: BrokerVersion = NEW) -> Facts:
    """The same, with these queues in place of those of their names."""
    facts = healthy(version)
    return replace(facts, queues={**facts.queues, **{queue.name: queue for queue in queues}})


def changed(name: str, version: BrokerVersion = NEW, **changes: object) -> Facts:
    """The same, with changed arguments of one queue; `_` stands for `-`, and None takes one off."""
    facts = healthy(version)
    arguments = {
        **(facts.queues[name].arguments or {}),
        **{f"x-{key.replace('_', '-')}": value for key, value in changes.items()},
    }
    return with_queues(
        QueueFacts(name, {key: value for key, value in arguments.items() if value is not None}),
        version=version,
    )


def under_policy(name: str, policy: dict[str, object], **names: str) -> Facts:
    """The same, with a policy on one queue."""
    return with_queues(
        replace(healthy().queues[name], policy=policy, **(names or {"policy_name": "p"}))  # type: ignore[arg-type]
    )


def found(facts: Facts, question: Question = QUESTION) -> list[tuple[str, str]]:
    """Which findings there are, and about what."""
    return [(finding.kind, finding.where) for finding in diagnose(facts, [question])]


def only(facts: Facts, question: Question = QUESTION) -> Finding:
    """The one finding that there is."""
    (finding,) = diagnose(facts, [question])
    return finding


@pytest.mark.parametrize("version", [OLD, NEW, BrokerVersion(4, 3, 0)])
def test_a_healthy_subscription_has_no_finding(version: BrokerVersion) -> None:
    assert found(healthy(version)) == []


def test_of_what_cannot_be_seen_nothing_is_found() -> None:
    queues = {name: QueueFacts(name, None) for name in (Q, RETRY, FAILED)}
    assert found(Facts(NEW, "/", {}, queues)) == []


def test_subscriptions_are_known_by_their_retry_and_failed_queues() -> None:
    assert names.main_queues(["b", "b@retry", "a@failed", "@retry", "c"]) == ["a", "b"]


# --- dead letters ---------------------------------------------------------------------------------


def test_queues_that_are_not_there_are_one_finding() -> None:
    facts = replace(healthy(), queues={Q: healthy().queues[Q]})
    finding = only(facts)
    assert finding.problem == f"of the subscription's three queues, {RETRY}, {FAILED} do not exist"
    assert finding.remedy == f"redrive declare --queue {Q} --routing-key 'user.*'"


def test_a_dead_letter_exchange_that_is_not_there_is_found() -> None:
    facts = healthy()
    finding = only(
        replace(
            facts,
            exchanges={
                name: kind for name, kind in facts.exchanges.items() if name != "master.retry"
            },
        )
    )
    assert (finding.kind, finding.problem) == (
        "dead-letter-target",
        "it dead-letters to the exchange 'master.retry', which does not exist",
    )


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [("topic", "ucenter.#", 0), ("direct", "ucenter.#", 1), ("direct", Q, 0)],
)
def test_a_dead_letter_is_routed_as_its_exchange_routes(kind: str, key: str, expected: int) -> None:
    facts = changed(
        FAILED,
        dead_letter_exchange="graves",
        dead_letter_routing_key=Q if kind == "direct" else "ucenter.user",
    )
    facts = replace(
        facts,
        exchanges={**facts.exchanges, "graves": kind},
        bindings=(facts.bindings or frozenset()) | {Binding("graves", "g", key)},
    )
    assert len(found(facts)) == expected


@pytest.mark.parametrize("kind", ["fanout", "headers", "x-delayed-message", ""])
def test_of_an_exchange_that_routes_otherwise_no_binding_of_the_key_is_asked_for(
    kind: str,
) -> None:
    facts = changed(FAILED, dead_letter_exchange="graves", dead_letter_routing_key=Q)
    facts = replace(facts, exchanges={**facts.exchanges, "graves": kind})
    assert bool(found(facts)) is (kind in ("fanout", "headers"))
    bound = (facts.bindings or frozenset()) | {Binding("graves", FAILED, "")}
    assert found(replace(facts, bindings=bound)) == []


# --- queues that redrive did not make -------------------------------------------------------------

DROPPED = "Messages that are rejected or expire in it are dropped."


def foreign(*queues: QueueFacts, **more: object) -> list[Finding]:
    """What is found of the queues of others, with and without their being asked for."""
    facts = Facts(NEW, "/", {"shop": "topic"}, {one.name: one for one in queues}, frozenset())
    facts = replace(facts, complete=True, **more)  # type: ignore[arg-type]
    findings = diagnose(facts, [], others=True)
    assert diagnose(facts, [Question("orders", ExchangeFamily())]) == findings
    assert diagnose(facts, []) == []
    return findings


def test_dead_letters_of_others_that_are_dropped_are_found_and_what_makes_the_exchange() -> None:
    (finding,) = foreign(QueueFacts("orders", {"x-dead-letter-exchange": "orders.dlx"}))
    assert (finding.where, finding.problem, finding.meaning) == (
        "orders",
        "it dead-letters to the exchange 'orders.dlx', which does not exist",
        DROPPED,
    )
    assert "redrive" not in finding.remedy
    assert "http://HOST:15672/api/exchanges/%2F/orders.dlx" in finding.remedy
    assert "http://HOST:15672/api/bindings/%2F/e/orders.dlx/q/orders.dlq" in finding.remedy


def test_a_queue_without_dead_letters_that_is_asked_for_is_to_be_a_subscription() -> None:
    facts = Facts(NEW, "/", {}, {"orders": QueueFacts("orders", {})}, complete=True)
    assert found(facts, Question("orders", ExchangeFamily())) == [("not-there", "orders")]


def test_no_queue_of_a_subscription_is_taken_for_one_of_others() -> None:
    facts = changed(RETRY, dead_letter_exchange="gone")
    assert diagnose(facts, [], others=True) == []
    assert found(facts) == [("dead-letter-target", RETRY)]


def test_where_a_policy_sets_it_the_policy_that_mends_it_is_named() -> None:
    orders = QueueFacts("orders", {}, {"dead-letter-exchange": "dlx", "max-length": 9}, "all")
    (finding,) = foreign(orders, QueueFacts("orders.dlq", {}))
    assert finding.remedy.startswith(
        'rabbitmqctl set_policy -p / dead-letters \'^orders$\' \'{"dead-letter-exchange": "", '
        '"max-length": 9, "dead-letter-routing-key": "orders.dlq"}\' --apply-to queues'
    )


def test_an_exchange_to_which_nothing_is_bound_drops_them_unless_it_has_an_alternate() -> None:
    orders = QueueFacts("orders", {"x-dead-letter-exchange": "shop"})
    (finding,) = foreign(orders)
    assert finding.problem == "it dead-letters to the exchange 'shop', to which no queue is bound"
    assert foreign(orders, alternates={"shop": "lost"}) == []


def test_an_exchange_is_bound_by_the_key_that_dead_letters_get() -> None:
    arguments = {"x-dead-letter-exchange": "gone", "x-dead-letter-routing-key": "orders.dead"}
    (finding,) = foreign(QueueFacts("orders", arguments))
    assert '"routing_key": "orders.dead"' in finding.remedy


def test_a_direct_exchange_is_bound_by_each_key_that_the_messages_keep() -> None:
    (finding,) = foreign(
        QueueFacts("orders", {"x-dead-letter-exchange": "dlx"}),
        exchanges={"shop": "topic", "dlx": "direct"},
        bindings=frozenset({Binding("shop", "orders", "order.paid")}),
    )
    assert [
        key for key in ("order.paid", "orders", "#") if f'"routing_key": "{key}"' in finding.remedy
    ] == [
        "order.paid",
        "orders",
    ]


def test_a_queue_that_is_to_keep_its_dead_letters_keeps_them() -> None:
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "gone",
        "x-dead-letter-strategy": "at-least-once",
    }
    (finding,) = foreign(QueueFacts("orders", arguments))
    assert finding.meaning == "Messages that are rejected or expire in it stay stuck."
    assert finding.remedy.endswith("http://HOST:15672/api/queues/%2F/gone")


def test_an_exchange_that_forwards_to_others_is_left_alone() -> None:
    facts = changed(FAILED, dead_letter_exchange="graves", dead_letter_routing_key=Q)
    facts = replace(facts, exchanges={**facts.exchanges, "graves": "topic"})
    assert found(facts) == [("dead-letter-target", FAILED)]
    forwarded = Binding("graves", "cemetery", "#", to="exchange")
    assert found(replace(facts, bindings=(facts.bindings or frozenset()) | {forwarded})) == []


def test_a_dead_letter_that_keeps_its_key_is_left_alone() -> None:
    assert found(changed(Q, dead_letter_routing_key=None)) == []


def test_a_queue_that_a_retry_returns_to_and_that_is_gone_is_found_where_all_queues_are_known() -> (
    None
):
    facts = changed(RETRY, dead_letter_routing_key="gone")
    assert found(facts) == [("dead-letter-target", RETRY)]
    assert found(replace(facts, complete=False)) == []


# --- copies of retries ----------------------------------------------------------------------------


def test_a_binding_that_matches_another_queues_retries_is_found() -> None:
    facts = with_queues(*PEERS)
    finding = only(
        replace(
            facts,
            bindings=(facts.bindings or frozenset())
            | {Binding("master", "audit", "#"), Binding("master", "mail", "*.*")},
        )
    )
    assert (finding.kind, finding.where) == ("copies-of-retries", "audit")
    assert (
        "curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/master/q/audit/%23."
        in finding.remedy
    )


def test_a_binding_of_the_retry_exchange_that_matches_all_is_found() -> None:
    facts = healthy()
    facts = replace(
        facts, bindings=(facts.bindings or frozenset()) | {Binding("master.retry", "audit", "#")}
    )
    assert found(facts) == [("copies-of-retries", "audit")]


def test_a_binding_that_matches_all_is_no_finding_where_retries_go_past_the_exchange() -> None:
    facts = healthy()
    assert (
        found(
            replace(
                facts, bindings=(facts.bindings or frozenset()) | {Binding("master", "audit", "#")}
            )
        )
        == []
    )


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "limit", "returns"),
    [
        (NEW, None, 20),
        (OLD, None, None),
        (NEW, 5, 5),
        (OLD, 5, 5),
        (OLD, -1, 0),
        (NEW, -1, None),
        (NEW, 1000, None),
    ],
)
def test_a_delivery_limit_is_found_where_it_deletes(
    version: BrokerVersion, limit: int | None, returns: int | None
) -> None:
    facts = changed(FAILED, version, delivery_limit=limit)
    if returns is None:
        assert found(facts) == []
        return
    finding = only(facts)
    assert (finding.kind, finding.where) == ("delivery-limit", FAILED)
    assert f"after {returns} returns" in finding.problem
    assert ("set_policy" if limit is None else "delete_queue") in finding.remedy


def test_a_main_queue_with_a_small_limit_loses_what_kills_its_workers() -> None:
    finding = only(changed(Q, delivery_limit=None))
    assert "whose worker dies 21 times" in finding.meaning


def test_of_a_limit_in_a_policy_the_smaller_one_counts_and_the_policy_is_taken_over() -> None:
    unlimited = changed(FAILED, delivery_limit=None).queues[FAILED]
    finding = only(
        with_queues(replace(unlimited, policy={"delivery-limit": 7, "max-age": 9}, policy_name="p"))
    )
    assert "after 7 returns" in finding.problem
    policy = """'{"delivery-limit": 1000000000, "max-age": 9}'"""
    assert f"{policy} --apply-to queues --priority 100 (only one policy applies" in finding.remedy


@pytest.mark.parametrize(
    ("names", "origin", "commands"),
    [
        ({"policy_name": "p"}, "policy 'p'", "rabbitmqctl clear_policy -p / p"),
        (
            {"operator_policy_name": "o"},
            "operator policy 'o'",
            "rabbitmqctl clear_operator_policy -p / o",
        ),
    ],
)
def test_a_ttl_of_a_policy_is_found_with_its_name(
    names: dict[str, str], origin: str, commands: str
) -> None:
    finding = only(under_policy(Q, {"message-ttl": 60_000}, **names))
    assert finding.problem == f"{origin} sets message-ttl to 60000 ms"
    assert finding.remedy.endswith(f"or clear it: {commands}")


def test_a_ttl_of_the_queues_own_is_found() -> None:
    finding = only(changed(FAILED, message_ttl=60_000))
    assert (finding.where, finding.problem) == (FAILED, "its argument sets message-ttl to 60000 ms")
    assert "deleted" in finding.meaning
    assert (
        "rabbitmqctl delete_queue -p / ucenter@user@failed (with all its messages)"
        in finding.remedy
    )


def test_a_retry_queue_may_have_a_ttl_but_not_expire() -> None:
    assert found(under_policy(RETRY, {"message-ttl": 60_000})) == []
    assert found(under_policy(RETRY, {"expires": 60_000})) == [("message-ttl", RETRY)]


@pytest.mark.parametrize(
    ("timeout", "policy", "minutes", "expected"),
    [
        (None, None, 29, False),
        (None, None, 30, True),
        (None, 3_600_000, 45, False),
        (None, 600_000, 15, True),
        (timedelta(minutes=10), 3_600_000, 15, True),
        (timedelta(hours=1), None, 45, False),
    ],
)
def test_a_handler_is_held_to_the_shortest_timeout_that_is_known(
    timeout: timedelta | None, policy: int | None, minutes: int, expected: bool
) -> None:
    queue = replace(
        healthy().queues[Q],
        policy={"consumer-timeout": policy} if policy else {},
        consumers=Consumers(1, 0, timeout),
    )
    question = replace(QUESTION, handler_time=timedelta(minutes=minutes))
    assert found(with_queues(queue), question) == ([("consumer-timeout", Q)] if expected else [])


@pytest.mark.parametrize(
    ("version", "words"),
    [(OLD, "/etc/rabbitmq/rabbitmq.conf"), (NEW, """'{"consumer-timeout": 5400000}'""")],
)
def test_a_consumer_timeout_is_raised_where_the_broker_can(
    version: BrokerVersion, words: str
) -> None:
    assert (
        words
        in only(healthy(version), replace(QUESTION, handler_time=timedelta(minutes=45))).remedy
    )


@pytest.mark.parametrize(
    ("version", "expected"),
    [(BrokerVersion(4, 2, 9), [("consumer-timeout", Q)]), (BrokerVersion(4, 3, 0), [])],
)
def test_a_classic_queue_has_a_consumer_timeout_up_to_the_version_that_left_it_out(
    version: BrokerVersion, expected: list[tuple[str, str]]
) -> None:
    facts = healthy(version)
    queue = replace(facts.queues[Q], arguments={"x-queue-type": "classic"})
    facts = replace(facts, queues={**facts.queues, Q: queue})
    question = replace(QUESTION, handler_time=timedelta(hours=1))
    assert [one for one in found(facts, question) if one[0] == "consumer-timeout"] == expected


def test_without_its_queue_a_handler_runs_into_no_timeout() -> None:
    facts = replace(healthy(), queues={})
    assert found(facts, replace(QUESTION, handler_time=timedelta(hours=1))) == [("not-there", Q)]


# --- kinds of queues ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"),
    [((4, 2, 9), False), ((4, 3, 0), True), ((4, 3, 5), True), ((4, 3, 6), False)],
)
def test_a_single_active_consumer_is_found_on_the_versions_that_wedge_it(
    version: tuple[int, int, int], expected: bool
) -> None:
    facts = changed(Q, BrokerVersion(*version), single_active_consumer=True)
    assert found(facts) == ([("single-active-consumer", Q)] if expected else [])


def test_a_classic_queue_with_a_single_active_consumer_is_none_of_them() -> None:
    facts = changed(Q, BrokerVersion(4, 3, 2), single_active_consumer=True, queue_type="classic")
    assert found(facts) == []


@pytest.mark.parametrize(("nodes", "expected"), [(3, True), (1, False), (None, False)])
def test_classic_queues_are_found_in_a_cluster(nodes: int | None, expected: bool) -> None:
    facts = replace(with_queues(*PEERS), nodes=nodes)
    assert found(facts) == ([("classic-in-cluster", Q)] if expected else [])


def test_a_classic_queue_is_deleted_only_where_it_is_empty() -> None:
    assert (
        f"rabbitmqctl delete_queue -p / {RETRY} --if-empty;"
        in only(replace(with_queues(*PEERS), nodes=3)).remedy
    )


def test_quorum_queues_are_at_home_in_a_cluster() -> None:
    assert found(replace(healthy(), nodes=3)) == []


@pytest.mark.parametrize(
    ("version", "count", "foreign", "expected"),
    [
        (NEW, 1, 1, True),
        (NEW, 1, None, True),
        (NEW, 2, 0, False),
        (NEW, 0, 0, False),
        (OLD, 1, 1, False),
        (BrokerVersion(3, 13, 1), 1, 1, True),
    ],
)
def test_a_consumer_that_can_only_republish_is_found_where_its_count_is_ignored(
    version: BrokerVersion, count: int, foreign: int | None, expected: bool
) -> None:
    facts = with_queues(
        replace(PEERS[0], consumers=Consumers(count, foreign)), *PEERS[1:], version=version
    )
    assert found(facts) == ([("republishing-consumer", Q)] if expected else [])


def test_a_consumer_whose_failures_the_broker_moves_counts_right() -> None:
    assert found(with_queues(replace(healthy().queues[Q], consumers=Consumers(1, 1)))) == []


# --- bindings -------------------------------------------------------------------------------------


def test_a_binding_that_is_not_asked_for_is_found_where_it_is_known_what_is() -> None:
    facts = healthy()
    facts = replace(
        facts, bindings=(facts.bindings or frozenset()) | {Binding("master", Q, "order.#")}
    )
    assert found(facts) == []
    finding = only(facts, replace(QUESTION, routing_keys=("user.*",)))
    assert finding.kind == "stale-binding"
    assert (
        finding.remedy
        == f"redrive declare --queue {Q} --routing-key 'user.*' --retry-delay 30000ms --prune"
    )


def test_a_binding_of_a_failed_queue_to_another_queues_name_is_found_in_any_case() -> None:
    facts = healthy()
    facts = replace(
        facts,
        bindings=(facts.bindings or frozenset()) | {Binding("master.failed", FAILED, "old@name")},
    )
    assert found(facts) == [("stale-binding", FAILED)]


def test_the_remedy_declares_as_the_rest_of_the_subscription_is() -> None:
    family = ExchangeFamily("events")
    topology = Subscription(Q, ["a.*", "b.#"], family, queue_type="classic").topology()
    facts = Facts(
        NEW,
        "/",
        {exchange.name: "topic" for exchange in topology.exchanges},
        {
            queue.name: QueueFacts(queue.name, dict(queue.arguments))
            for queue in topology.queues
            if queue.name != FAILED
        },
        frozenset(topology.bindings),
        complete=True,
    )
    assert only(facts, Question(Q, family)).remedy == (
        f"redrive declare --queue {Q} --routing-key 'a.*' --routing-key 'b.#' --exchange events "
        "--retry-delay 30000ms --queue-type classic"
    )


def test_the_remedy_declares_as_peers_do_where_they_have() -> None:
    facts = with_queues(*PEERS)
    facts = replace(
        facts, queues={name: queue for name, queue in facts.queues.items() if name != FAILED}
    )
    question = Question(Q, ExchangeFamily(retry_suffix="@retry", failed_suffix="@failed"))
    (finding,) = diagnose(facts, [question])
    assert finding.remedy == (
        f"redrive declare --queue {Q} --routing-key 'user.*' --retry-suffix @retry --failed-suffix "
        "@failed --retry-delay 30000ms --retry-via republish "
        "--queue-type classic"
    )


def test_where_no_pattern_is_known_the_remedy_says_where_it_goes() -> None:
    assert "--routing-key PATTERN" in only(Facts(NEW, "/", {"master": ""}, {})).remedy


def test_who_may_write_into_others_failed_queues_is_found_once_there_are_others() -> None:
    alone = replace(healthy(), access=(Access("app", False, "^master"),))
    assert found(alone) == []
    among_others = replace(
        alone,
        queues={
            **alone.queues,
            "shop@failed": QueueFacts("shop@failed", {"x-queue-type": "classic"}),
        },
    )
    assert ("topic-permission", "app") in found(among_others)
    assert ("topic-permission", "app") not in found(replace(among_others, access=None))


# --- dead-lettering that has stopped --------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "nodes", "remedy"),
    [
        (OLD, 1, "rabbitmqctl stop_app && rabbitmqctl start_app"),
        (OLD, 3, "rabbit_quorum_queue:transfer_leadership"),
        (OLD, None, "rabbit_quorum_queue:transfer_leadership"),
        (NEW, 3, "rabbit_quorum_queue:transfer_leadership"),
    ],
)
def test_messages_whose_dead_lettering_is_stuck_are_found_with_what_releases_them(
    version: BrokerVersion, nodes: int | None, remedy: str
) -> None:
    facts = healthy(version)
    queue = replace(facts.queues[RETRY], stuck=21)
    facts = replace(facts, queues={**facts.queues, RETRY: queue}, nodes=nodes)
    (finding,) = diagnose(facts, [QUESTION])
    assert (finding.kind, finding.where) == ("dead-lettering-stuck", RETRY)
    assert "21 messages" in finding.problem
    assert remedy in finding.remedy
    assert ("3.10.20" in finding.remedy) is (version is OLD)


def test_a_level_of_the_delay_ladder_that_is_stuck_is_found() -> None:
    level = QueueFacts("master.delay.7", {"x-queue-type": "quorum"}, stuck=1)
    (finding,) = diagnose(with_queues(level), [QUESTION])
    assert (finding.kind, finding.where) == ("dead-lettering-stuck", "master.delay.7")
    assert "1 message " in finding.problem


def test_the_delay_of_a_queue_is_the_shorter_one_of_its_ttls() -> None:
    queue = QueueFacts(RETRY, {"x-message-ttl": 5000}, {"message-ttl": 2000})
    assert queue.delay == timedelta(seconds=2)
    assert QueueFacts(Q, {}).delay is None


# --- what is bounded, copied, mirrored, delayed by a plugin, or short of something ----------------


@pytest.mark.parametrize("bound", ["max-length", "max-length-bytes"])
@pytest.mark.parametrize("overflow", [None, "drop-head"])
def test_a_failed_queue_that_deletes_its_oldest_messages_is_found(
    bound: str, overflow: str | None
) -> None:
    policy = {bound: 1000} | ({} if overflow is None else {"overflow": overflow})
    queue = replace(healthy().queues[FAILED], policy=policy, policy_name="short")
    (finding,) = diagnose(with_queues(queue), [QUESTION])
    assert (finding.kind, finding.where) == ("drop-head", FAILED)
    assert f"policy 'short' sets {bound} to 1000" in finding.problem
    assert "deletes the oldest failed message" in finding.meaning
    assert '"overflow": "reject-publish"' in finding.remedy
    assert f'"{bound}": 1000' in finding.remedy


def test_a_failed_queue_that_refuses_what_is_too_much_is_fine() -> None:
    queue = replace(
        healthy().queues[FAILED], policy={"max-length": 1000, "overflow": "reject-publish"}
    )
    assert diagnose(with_queues(queue), [QUESTION]) == []


def test_a_main_queue_whose_own_argument_drops_messages_has_to_be_made_again() -> None:
    queue = QueueFacts(Q, {"x-queue-type": "quorum", "x-max-length": 5, "x-overflow": "drop-head"})
    found = diagnose(with_queues(replace(queue, policy={"delivery-limit": 10**9})), [QUESTION])
    finding = next(one for one in found if one.kind == "drop-head")
    assert "handled" in finding.meaning
    assert "can't be changed" in finding.remedy


def test_a_retry_queue_whose_delay_no_policy_sets_is_found() -> None:
    finding = only(changed(RETRY, message_ttl=None))
    assert (finding.kind, finding.where) == ("no-delay", RETRY)
    assert "waits in it forever" in finding.meaning
    assert finding.remedy == (
        "rabbitmqctl set_policy -p / redrive-retry '^ucenter@user@retry$' "
        """'{"message-ttl": 30000}' --apply-to queues"""
    )


def test_a_retry_queue_that_deletes_what_has_waited_is_found() -> None:
    finding = only(changed(RETRY, dead_letter_exchange=None, dead_letter_routing_key=None))
    assert (finding.kind, finding.where) == ("dead-letter-target", RETRY)
    assert finding.meaning == "A message is deleted when its delay is over."
    assert '{"dead-letter-exchange": "", "dead-letter-routing-key": "ucenter@user"}' in (
        finding.remedy
    )


def test_a_retry_queue_that_a_policy_makes_one_is_fine() -> None:
    facts = with_queues(
        QueueFacts(
            RETRY,
            {"x-queue-type": "quorum"},
            {"message-ttl": 5000, "dead-letter-exchange": "", "dead-letter-routing-key": Q},
            "retries",
        )
    )
    assert found(facts) == []


def test_without_the_management_api_a_policy_may_make_a_retry_queue() -> None:
    assert found(replace(changed(RETRY, message_ttl=None), complete=False)) == []


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ((), []),
        (("",), []),
        (("vip",), []),
        (("vip", "eu || us"), ["'eu || us', 'vip'"]),
        (("", "vip"), ["none, 'vip'"]),
    ],
)
def test_subscribers_of_one_queue_that_ask_for_different_tags_are_found(
    tags: tuple[str, ...], expected: list[str]
) -> None:
    queue = replace(healthy().queues[Q], consumers=Consumers(3, 0, tags=frozenset(tags)))
    findings = diagnose(with_queues(queue), [QUESTION])
    assert [(one.kind, one.problem) for one in findings] == [
        ("different-tags", f"its subscribers ask for different tags or filters: {asked}")
        for asked in expected
    ]


MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("version", "size", "expected"),
    [
        (NEW, None, 0),
        (NEW, 16 * MEBIBYTE, 0),
        (NEW, 20 * MEBIBYTE, 1),
        (OLD, 20 * MEBIBYTE, 0),
        (OLD, 129 * MEBIBYTE, 1),
    ],
)
def test_messages_that_the_broker_would_not_take_again_are_found(
    version: BrokerVersion, size: int | None, expected: int
) -> None:
    facts = healthy(version)
    queue = replace(facts.queues[FAILED], message_size=size)
    found = diagnose(with_queues(queue, version=version), [QUESTION])
    assert [(one.kind, one.where) for one in found] == [("message-size", FAILED)] * expected


def test_an_upgrade_after_which_messages_are_too_large_is_found_before_it() -> None:
    queue = replace(healthy(OLD).queues[FAILED], message_size=20 * MEBIBYTE)
    (finding,) = diagnose_upgrade(with_queues(queue, version=OLD), NEW, [QUESTION])
    assert finding.kind == "message-size"
    assert "20 MiB on average, and RabbitMQ 4.0.5 accepts at most 16 MiB" in finding.problem
    assert "max_message_size = 41943040" in finding.remedy


@pytest.mark.parametrize(("members", "nodes", "expected"), [(1, 3, 1), (3, 3, 0), (1, 1, 0)])
def test_a_quorum_queue_with_one_copy_in_a_cluster_is_found(
    members: int, nodes: int, expected: int
) -> None:
    facts = with_queues(replace(healthy().queues[Q], members=members))
    found = diagnose(replace(facts, nodes=nodes), [QUESTION])
    assert [one.kind for one in found] == ["one-member"] * expected
    assert all("rabbitmq-queues grow NODE all" in one.remedy for one in found)


@pytest.mark.parametrize(("version", "expected"), [(OLD, 0), (NEW, 1)])
def test_a_policy_that_mirrors_is_found_where_nothing_is_mirrored(
    version: BrokerVersion, expected: int
) -> None:
    queue = QueueFacts(
        FAILED, {"x-queue-type": "classic"}, {"ha-mode": "all"}, policy_name="mirror"
    )
    found = diagnose(with_queues(queue, version=version), [QUESTION])
    assert [one.kind for one in found] == ["mirroring-policy"] * expected


@pytest.mark.parametrize(("version", "expected"), [("4.2.1", 0), ("4.3.0", 1)])
def test_an_exchange_of_the_plugin_is_found_where_the_plugin_can_not_run(
    version: str, expected: int
) -> None:
    facts = healthy(BrokerVersion.parse(version))
    facts = replace(
        facts,
        exchanges={**facts.exchanges, "later": "x-delayed-message"},
        bindings=(facts.bindings or frozenset()) | {Binding("later", "master", "#", "exchange")},
    )
    found = [one for one in diagnose(facts, [QUESTION]) if one.kind == "delayed-message-plugin"]
    assert len(found) == expected
    assert all("which delays messages to master" in one.problem for one in found)


def test_a_node_with_an_alarm_is_found() -> None:
    facts = replace(healthy(), alarms={"rabbit@two": "memory and disk space"})
    (finding,) = diagnose(facts, [QUESTION])
    assert (finding.kind, finding.where) == ("alarm", "rabbit@two")
    assert "memory and disk space" in finding.problem


# --- before an upgrade ----------------------------------------------------------------------------


def test_what_will_hurt_after_an_upgrade_is_what_does_not_yet() -> None:
    unbounded = QueueFacts(FAILED, {"x-queue-type": "quorum"})
    gone = QueueFacts(Q, {**(healthy().queues[Q].arguments or {}), "x-dead-letter-exchange": "no"})
    facts = with_queues(unbounded, gone, version=OLD)
    (now,) = diagnose(facts, [QUESTION])
    assert now.kind == "dead-letter-target"
    (later,) = diagnose_upgrade(facts, BrokerVersion.named("4.0"), [QUESTION])
    assert (later.kind, later.where) == ("delivery-limit", FAILED)
    assert "(4.0)" in later.problem
    assert diagnose_upgrade(facts, OLD, [QUESTION]) == []


def held_back(
    version: BrokerVersion = HOLDS_BACK, arguments: Mapping[str, object] = MappingProxyType({})
) -> Facts:
    """A broker on which it holds the subscription's failed messages back by itself."""
    topology = replace(SUBSCRIPTION, retry_via="broker").topology()
    queues = {
        queue.name: QueueFacts(queue.name, dict(queue.arguments)) for queue in topology.queues
    }
    main = {**(queues[Q].arguments or {}), **arguments}
    return replace(
        healthy(version),
        exchanges={exchange.name: exchange.type for exchange in topology.exchanges},
        queues={**queues, Q: QueueFacts(Q, main)},
        bindings=frozenset(topology.bindings),
    )


def told_of(facts: Facts, *, holding_back: bool) -> Facts:
    """The same, where the broker says whether the main queue holds anything back."""
    main = replace(facts.queues[Q], holding_back=holding_back)
    return replace(facts, queues={**facts.queues, Q: main})


@pytest.mark.parametrize("facts", [held_back(), told_of(held_back(), holding_back=True)])
def test_a_subscription_that_the_broker_holds_messages_back_for_needs_no_retry_queue(
    facts: Facts,
) -> None:
    assert found(facts) == []


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (held_back(NEW), "RabbitMQ 4.0.5 can't"),
        (held_back(arguments={"x-delayed-retry-type": "returned"}), "is returned, not failed"),
        (held_back(arguments={"x-delayed-retry-min": 0}), "its delay is 0"),
        (told_of(held_back(), holding_back=False), "a RabbitMQ before 4.3"),
    ],
)
def test_a_queue_that_does_not_hold_back_what_it_should_is_found(
    facts: Facts, problem: str
) -> None:
    (finding,) = [
        finding for finding in diagnose(facts, [QUESTION]) if finding.kind == "not-held-back"
    ]
    assert problem in finding.problem


@pytest.mark.parametrize(
    ("facts", "gains"),
    [
        (healthy(NEW), []),
        (healthy(HOLDS_BACK), [Q]),
        (held_back(), []),
        (changed(Q, HOLDS_BACK, queue_type="classic"), []),
        (changed(Q, HOLDS_BACK, single_active_consumer=True), []),
    ],
)
def test_a_subscription_that_needs_its_retry_queue_no_longer_would_gain(
    facts: Facts, gains: list[str]
) -> None:
    assert would_gain(facts, [QUESTION]) == gains


def test_the_command_that_declares_it_again_says_that_the_broker_holds_back() -> None:
    facts = held_back()
    without = replace(
        facts, queues={name: queue for name, queue in facts.queues.items() if name != FAILED}
    )
    (finding,) = [
        finding for finding in diagnose(without, [QUESTION]) if finding.kind == "not-there"
    ]
    assert "--retry-delay 30000ms --retry-via broker" in finding.remedy


def test_a_consumer_of_another_library_is_found_where_the_broker_holds_messages_back() -> None:
    facts = held_back()
    main = replace(facts.queues[Q], consumers=Consumers(3, foreign=2))
    (finding,) = diagnose(replace(facts, queues={**facts.queues, Q: main}), [QUESTION])
    assert (finding.kind, finding.where) == ("foreign-consumer", Q)
    assert "comes back at once" in finding.meaning
