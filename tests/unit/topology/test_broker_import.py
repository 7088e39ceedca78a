from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive.pubsub.admin import topology_file
from redrive.topology.backoff import Linear
from redrive.topology.broker_import import file_of, recover
from redrive.topology.diff import Observed
from redrive.topology.file_schema import union_of
from redrive.topology.model import Binding, QueueType, RetryVia, Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import TextFilter

USER = Subscription("ucenter@user", ["user.*"])


def on_broker(*subscriptions: Subscription) -> Observed:
    """What a broker shows that these were declared on."""
    topology = union_of(subscription.topology() for subscription in subscriptions)
    return Observed(
        {exchange.name: exchange.type for exchange in (*topology.exchanges, *topology.pointers)},
        {queue.name: dict(queue.arguments) for queue in topology.queues},
        frozenset(topology.bindings),
    )


def without_queue(observed: Observed, name: str) -> Observed:
    return replace(
        observed,
        queues={queue: arguments for queue, arguments in observed.queues.items() if queue != name},
        bindings=frozenset(binding for binding in observed.bindings if binding.destination != name),
    )


def with_arguments(observed: Observed, name: str, **arguments: object) -> Observed:
    changed = {key.replace("_", "-"): value for key, value in arguments.items()}
    kept = {
        key: value
        for key, value in {**observed.queues[name], **changed}.items()
        if value is not None
    }
    return replace(observed, queues={**observed.queues, name: kept})


words = st.text("abcdefghijklmnopqrstuvwxyz0123456789_@'\"é{}[]:,", min_size=1, max_size=12)
kinds: st.SearchStrategy[tuple[QueueType, RetryVia]] = st.sampled_from(
    [("quorum", "dead-letter"), ("classic", "dead-letter"), ("classic", "republish")]
)
subscriptions = st.builds(
    lambda queue, keys, own, exchange, suffixes, delay, kinds, tags, failed, where: Subscription(
        f"{queue}.q",
        sorted({*keys, f"{queue}.q"} if own else {*keys}),
        ExchangeFamily(f"x.{exchange}", *suffixes),
        RetryPolicy(delay=timedelta(milliseconds=delay)),
        kinds[0],
        kinds[1],
        tags,
        failed_queues=failed,
        where=where,
    ),
    words,
    st.lists(words | st.just("#") | st.just("*.paid"), max_size=4),
    st.booleans(),
    words,
    st.sampled_from([(".retry", ".failed"), ("@retry", "@failed")]),
    st.integers(1, 2**32 - 1),
    kinds,
    st.none() | st.sampled_from(["vip", "vip || eu", "a && (b || c)"]).map(TagFilter),
    st.sampled_from([(), ("invalid", "true"), ("5",)]),
    st.none()
    | st.sampled_from(
        ["headers.country = 'DE' and headers->>'it''s' = '\"'", "headers.n = '5'"]
    ).map(TextFilter),
)


@settings(max_examples=60)
@given(st.lists(subscriptions, max_size=4, unique_by=(lambda subscription: subscription.queue)))
@example([replace(USER, retry=RetryPolicy(delay=timedelta(milliseconds=2**32 - 1)))])
def test_what_was_declared_is_recovered_and_its_file_says_the_same(
    declared: list[Subscription],
) -> None:
    recovered = recover(on_broker(*declared))
    assert recovered.notes == ()
    assert topology_file.parse(file_of(recovered), "team.yaml").built() == recovered.subscriptions
    assert on_broker(*recovered.subscriptions) == on_broker(*declared)


def test_a_delay_ladder_is_noted_for_the_broker_does_not_know_whose_it_is() -> None:
    observed = on_broker(USER)
    recovered = recover(
        replace(observed, queues={**observed.queues, "master.delay.0": {"x-queue-type": "quorum"}})
    )
    (note,) = recovered.notes
    assert note.startswith(
        "master has a delay ladder; the broker does not know which subscription's backoff"
    )


def test_the_tick_of_a_delay_ladder_is_noted_where_it_is_not_the_usual_one() -> None:
    observed = on_broker(USER)
    levels: dict[str, dict[str, object]] = {
        "master.delay-50ms.0": {},
        "master.delay-50ms.1": {},
        "master.delay.x": {},
    }
    recovered = recover(replace(observed, queues={**observed.queues, **levels}))
    (note,) = recovered.notes
    assert note.startswith("master has a delay ladder with ticks of 50ms")
    assert note.endswith("set backoff and the exchange's tick there")


def test_a_queue_without_a_retry_and_a_failed_queue_is_none_of_ours() -> None:
    found = recover(Observed({}, {"plain": {"x-queue-type": "classic"}}, frozenset()))
    assert (found.subscriptions, found.notes) == ((), ())


def test_what_is_not_quite_as_the_file_says_is_noted() -> None:
    observed = with_arguments(on_broker(USER), "ucenter@user", x_delivery_limit=20)
    recovered = recover(observed)
    assert [subscription.queue for subscription in recovered.subscriptions] == ["ucenter@user"]
    (note,) = recovered.notes
    assert note.startswith("ucenter@user: differs: queue ucenter@user has x-delivery-limit=20")
    assert f"# {note}" in file_of(recovered)


FILTERS = ("ucenter@user@tags.00000000", "ucenter@user@tags.11111111")
SEVERAL = [
    Binding(filter_, "ucenter@user", "", arguments=(("redrive-tag-vip", True),))
    for filter_ in FILTERS
]


def bound_to(observed: Observed, *bindings: Binding) -> Observed:
    return replace(observed, bindings=observed.bindings | set(bindings))


def only(observed: Observed) -> Subscription:
    (subscription,) = recover(observed).subscriptions
    return subscription


TAGGED = Subscription("ucenter@user", ["user.*"], tags=TagFilter("vip || eu"))


def both(one: Observed, other: Observed) -> Observed:
    return Observed(
        {**one.exchanges, **other.exchanges},
        {**one.queues, **other.queues},
        one.bindings | other.bindings,
    )


def test_tags_that_were_taken_back_are_not_in_force_though_their_filter_is_there() -> None:
    observed = both(on_broker(TAGGED), on_broker(USER))
    recovered = recover(observed)
    assert recovered.subscriptions == (USER,)
    assert recovered.notes == (
        f"ucenter@user: retired: headers exchange {TAGGED.filter_exchange}",
        "ucenter@user: retired: fanout exchange ucenter@user@tags",
    )


def test_a_filter_that_nothing_comes_to_is_not_in_force_beside_one_that_is() -> None:
    assert only(bound_to(on_broker(TAGGED), SEVERAL[0])) == only(on_broker(TAGGED))


def test_a_pointer_that_is_missing_is_noted() -> None:
    observed = on_broker(TAGGED)
    recovered = recover(
        replace(
            observed,
            exchanges={name: kind for name, kind in observed.exchanges.items() if kind != "fanout"},
        )
    )
    assert recovered.notes == ("ucenter@user: missing: fanout exchange ucenter@user@tags",)


@pytest.mark.parametrize(
    ("observed", "note"),
    [
        (
            bound_to(on_broker(Subscription("ucenter@user")), *SEVERAL),
            ("it has several tag filters: ucenter@user@tags.00000000, ucenter@user@tags.11111111"),
        ),
        (
            bound_to(on_broker(TAGGED), Binding("master", "ucenter@user", "account.*")),
            (
                f"it gets some messages through the tag filter {TAGGED.filter_exchange} and "
                "others around it: account.*"
            ),
        ),
        (without_queue(on_broker(USER), "ucenter@user@retry"), "it has no retry queue"),
        (
            with_arguments(on_broker(USER), "ucenter@user@retry", x_message_ttl=None),
            "ucenter@user@retry has no x-message-ttl",
        ),
        (
            with_arguments(on_broker(USER), "ucenter@user@retry", x_message_ttl=-1),
            "ucenter@user@retry has the x-message-ttl -1",
        ),
        (
            with_arguments(on_broker(USER), "ucenter@user", x_queue_type="stream"),
            "it is a queue of type stream",
        ),
        (
            without_queue(on_broker(USER), "ucenter@user@failed"),
            "its retry queue or its failed queue is not bound to one exchange",
        ),
        (
            replace(
                on_broker(USER),
                bindings=frozenset(
                    binding
                    for binding in on_broker(USER).bindings
                    if binding.destination != "ucenter@user"
                ),
            ),
            "no exchange it is bound to belongs with master.retry and master.failed",
        ),
        (
            replace(
                on_broker(USER),
                bindings=on_broker(USER).bindings
                | {Binding("another.failed", "ucenter@user@failed", "ucenter@user")},
            ),
            "its retry queue or its failed queue is not bound to one exchange",
        ),
        (
            with_arguments(on_broker(USER), "ucenter@user@retry", x_message_ttl=0),
            "the retry delay is 0:00:00",
        ),
    ],
)
def test_what_cant_be_written_down_is_left_out_and_noted(observed: Observed, note: str) -> None:
    recovered = recover(observed)
    assert recovered.subscriptions == ()
    assert recovered.notes == (f"ucenter@user is left out: {note}",)
    assert "subscriptions: {}" in file_of(recovered)


@pytest.mark.parametrize("backoff", [None, Linear("10s", "1m")])
def test_a_subscription_whose_messages_the_broker_holds_back_is_recovered(
    backoff: Linear | None,
) -> None:
    held_back = replace(
        USER,
        retry=RetryPolicy(delay="10s", backoff=backoff),
        retry_via="broker",
        tags=TagFilter("vip"),
        max_failed=10,
        failed_queues=("invalid",),
        where=TextFilter("headers->>'country' = 'DE'"),
    )
    recovered = recover(on_broker(held_back))
    assert (recovered.subscriptions, recovered.notes) == ((held_back,), ())
    assert topology_file.parse(file_of(recovered), "f.yaml").built() == (held_back,)


@pytest.mark.parametrize(
    ("least", "most", "found"),
    [
        (0, 0, "holds messages back from 0 to 0 ms"),
        ("1", 2, "holds messages back from 1 to 2 ms"),
        (1, 2**33, "for up to 8589934592 ms"),
    ],
)
def test_a_queue_that_holds_messages_back_as_none_of_ours_does_is_left_out(
    least: object, most: object, found: str
) -> None:
    strange = with_arguments(
        on_broker(replace(USER, retry_via="broker")),
        USER.queue,
        x_delayed_retry_min=least,
        x_delayed_retry_max=most,
    )
    recovered = recover(strange)
    assert recovered.subscriptions == ()
    assert found in recovered.notes[0]


def test_a_queue_that_holds_messages_back_and_has_no_failed_exchange_is_left_out() -> None:
    observed = on_broker(replace(USER, retry_via="broker"))
    unbound = replace(observed, bindings=frozenset())
    assert "belongs to no exchange that it is bound to" in recover(unbound).notes[0]


def test_a_filter_whose_bindings_ask_for_different_headers_is_left_out() -> None:
    where = Subscription("q", ["a"], where=TextFilter("headers.country = 'DE'"))
    observed = on_broker(where)
    other = Binding(where.filter_exchange, "q", "", arguments=(("country", "AT"),))
    recovered = recover(bound_to(observed, *observed.bindings, other))
    assert recovered.subscriptions == ()
    assert "matches no message" in recovered.notes[0]
