from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliveries import SUBSCRIPTION
from redrive.errors import TopologyMismatch
from redrive.topology.diff import (
    Difference,
    Differs,
    Missing,
    Observed,
    Retired,
    Stale,
    compare,
    merged,
    sentence_of,
    stale_bindings,
)
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology
from redrive.topology.tags import TagFilter

TOPOLOGY = SUBSCRIPTION.topology()


def as_asked_for(topology: Topology) -> Observed:
    """What a broker shows where everything is as the topology says."""
    return Observed(
        exchanges={
            exchange.name: exchange.type for exchange in (*topology.exchanges, *topology.pointers)
        },
        queues={queue.name: dict(queue.arguments) for queue in topology.queues},
        bindings=frozenset(topology.bindings),
    )


THERE = as_asked_for(TOPOLOGY)


def with_arguments(name: str, arguments: Mapping[str, object]) -> Observed:
    return replace(THERE, queues={**THERE.queues, name: arguments})


def test_a_broker_that_is_as_asked_for_differs_in_nothing() -> None:
    assert compare(TOPOLOGY, THERE) == []


def test_an_empty_broker_lacks_everything() -> None:
    assert compare(TOPOLOGY, Observed({}, {}, frozenset())) == [
        Missing(what) for what in TOPOLOGY.objects
    ]


@given(st.sets(st.sampled_from(TOPOLOGY.objects)))
def test_what_was_taken_away_is_missing(taken: set[Exchange | Queue | Binding]) -> None:
    left = Topology(
        tuple(exchange for exchange in TOPOLOGY.exchanges if exchange not in taken),
        tuple(queue for queue in TOPOLOGY.queues if queue not in taken),
        tuple(binding for binding in TOPOLOGY.bindings if binding not in taken),
    )
    assert compare(TOPOLOGY, as_asked_for(left)) == [
        Missing(what) for what in TOPOLOGY.objects if what in taken
    ]


def the_difference(observed: Observed) -> tuple[object, ...]:
    (difference,) = compare(TOPOLOGY, observed)
    assert isinstance(difference, Differs)
    return difference.mismatch.args


def test_an_exchange_of_another_type_differs() -> None:
    observed = replace(THERE, exchanges={**THERE.exchanges, "master": "direct"})
    assert the_difference(observed) == ("exchange", "master", "type", "topic", "direct")


def test_an_argument_of_another_value_differs() -> None:
    observed = with_arguments(
        "ucenter@user@retry", {**THERE.queues["ucenter@user@retry"], "x-message-ttl": 1000}
    )
    assert the_difference(observed) == (
        "queue",
        "ucenter@user@retry",
        "x-message-ttl",
        "30000",
        "1000",
    )


def test_an_argument_that_is_not_there_differs_from_the_one_asked_for() -> None:
    observed = with_arguments("ucenter@user@failed", {"x-queue-type": "quorum"})
    assert the_difference(observed) == (
        "queue",
        "ucenter@user@failed",
        "x-delivery-limit",
        "1000000000",
        "none",
    )


def test_an_argument_that_was_not_asked_for_differs() -> None:
    observed = with_arguments(
        "ucenter@user@failed", {**THERE.queues["ucenter@user@failed"], "x-max-length": 10}
    )
    assert the_difference(observed) == (
        "queue",
        "ucenter@user@failed",
        "x-max-length",
        "none",
        "10",
    )


def test_every_argument_that_differs_is_told_in_order() -> None:
    differences = compare(
        TOPOLOGY,
        with_arguments("ucenter@user@failed", {"x-queue-type": "classic", "x-max-length": 10}),
    )
    arguments = [
        difference.mismatch.argument
        for difference in differences
        if isinstance(difference, Differs)
    ]
    assert arguments == ["x-delivery-limit", "x-max-length", "x-queue-type"]


def test_a_binding_that_is_not_asked_for_is_stale() -> None:
    old = Binding("master", "ucenter@user", "account.*")
    assert compare(TOPOLOGY, replace(THERE, bindings=THERE.bindings | {old})) == [Stale(old)]


@pytest.mark.parametrize(
    "binding",
    [
        Binding("", "ucenter@user", "ucenter@user"),
        Binding("amq.topic", "ucenter@user", "user.*"),
        Binding("master", "another", "user.*"),
    ],
    ids=["default exchange", "another exchange", "another queue"],
)
def test_a_binding_of_somebody_else_is_not_stale(binding: Binding) -> None:
    assert stale_bindings(TOPOLOGY, [*TOPOLOGY.bindings, binding]) == []


VIP, EU = (Subscription("ucenter@user", ["user.*"], tags=TagFilter(tag)) for tag in ("vip", "eu"))
PLAIN = Subscription("ucenter@user", ["user.*"])


def test_a_subscription_with_tags_that_is_as_asked_for_differs_in_nothing() -> None:
    assert compare(VIP.topology(), as_asked_for(VIP.topology())) == []


def test_where_tags_were_taken_back_the_filter_and_its_pointer_are_retired() -> None:
    assert [
        what
        for what in compare(PLAIN.topology(), as_asked_for(VIP.topology()))
        if isinstance(what, Retired)
    ] == [
        Retired(Exchange(VIP.filter_exchange, "headers")),
        Retired(Exchange("ucenter@user@tags", "fanout")),
    ]


def test_where_tags_changed_the_old_filter_is_retired_and_the_new_one_missing() -> None:
    found = compare(EU.topology(), as_asked_for(VIP.topology()))
    assert Missing(Exchange(EU.filter_exchange, "headers")) in found
    assert [what for what in found if not isinstance(what, Missing)] == [
        Retired(Exchange(VIP.filter_exchange, "headers"))
    ]


def test_where_tags_are_new_the_ways_around_them_are_retired_and_not_stale() -> None:
    found = compare(VIP.topology(), as_asked_for(PLAIN.topology()))
    assert [what for what in found if not isinstance(what, Missing)] == [
        Retired(binding) for binding in VIP.topology().unwanted
    ]


def test_a_pointer_that_is_gone_is_missing() -> None:
    there = as_asked_for(VIP.topology())
    exchanges = {
        name: kind for name, kind in there.exchanges.items() if name != "ucenter@user@tags"
    }
    (missing,) = compare(VIP.topology(), replace(there, exchanges=exchanges))
    assert isinstance(missing, Missing)
    assert missing.what == VIP.topology().pointers[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("another@tags.0123abcd", "headers"),
        ("ucenter@user@tags.0123abcd", "topic"),
        ("ucenter@user@tags.mine", "headers"),
    ],
    ids=["another queue", "another type", "another name"],
)
def test_an_exchange_that_is_no_filter_of_the_queue_is_not_retired(name: str, kind: str) -> None:
    there = as_asked_for(PLAIN.topology())
    assert (
        compare(PLAIN.topology(), replace(there, exchanges={**there.exchanges, name: kind})) == []
    )


def test_stale_bindings_are_told_in_order() -> None:
    old = [Binding("master", "ucenter@user", key) for key in ("c", "a", "b")]
    assert [binding.routing_key for binding in stale_bindings(TOPOLOGY, old)] == ["a", "b", "c"]


def test_objects_of_others_are_no_difference() -> None:
    observed = Observed(
        {**THERE.exchanges, "shop": "fanout"},
        {**THERE.queues, "another": {"x-queue-type": "classic"}},
        THERE.bindings | {Binding("shop", "another", "#")},
    )
    assert compare(TOPOLOGY, observed) == []


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (Missing(Exchange("master")), "missing: topic exchange master"),
        (Missing(TOPOLOGY.queues[0]), "missing: quorum queue ucenter@user"),
        (Missing(Binding("master", "q", "user.*")), "missing: binding master → q with user.*"),
        (
            Retired(Exchange("q@tags.0123abcd", "headers")),
            "retired: headers exchange q@tags.0123abcd",
        ),
        (Stale(Binding("master", "q", "user.*")), "stale: binding master → q with user.*"),
        (
            Differs(TopologyMismatch("queue", "q@retry", "x-message-ttl", "1000", "30000")),
            "differs: queue q@retry has x-message-ttl=30000, expected x-message-ttl=1000",
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_difference_is_told_in_words(difference: Difference, sentence: str) -> None:
    assert str(difference) == sentence


def test_a_queue_is_told_with_its_type() -> None:
    assert sentence_of(Queue("q", {"x-queue-type": "quorum"})) == "quorum queue q"


def test_what_only_amqp_can_tell_is_added_to_what_is_listed() -> None:
    def differs(queue: str, argument: str) -> Differs:
        return Differs(TopologyMismatch("queue", queue, argument, wanted="1", found="2"))

    listed = [differs("a", "x-one"), differs("a", "x-two")]
    pointer = Retired(Exchange("a@tags", "fanout", {"alternate-exchange": "a@tags.0123abcd"}))
    over_amqp: list[Difference] = [
        differs("a", "x-one"),
        differs("b", "durable"),
        Missing(Queue("c")),
        pointer,
    ]
    assert merged(over_amqp, listed) == [*listed, over_amqp[1], pointer]
    assert merged(over_amqp, [*listed, pointer]) == [*listed, pointer, over_amqp[1]]


def test_a_binding_of_a_headers_exchange_is_told_by_what_it_looks_for() -> None:
    binding = Binding("q@tags", "q", "", arguments=(("x-match", "all"), ("redrive-tag-vip", True)))
    assert sentence_of(binding) == "binding q@tags → q with redrive-tag-vip=True, x-match=all"
