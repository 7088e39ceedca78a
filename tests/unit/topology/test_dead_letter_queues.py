"""Which queues are dead-letter queues that redrive did not make: topologies as libraries declare
them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.topology.dead_letter_queues import (
    DeadLetterGraph,
    DeadLetterQueue,
    Origin,
    by_name,
    dead_letter_queues,
)
from redrive.topology.dead_letter_routes import Routes
from redrive.topology.doctor.facts import Consumers, QueueFacts
from redrive.topology.ladder import Ladder
from redrive.topology.model import Binding, Subscription
from redrive.topology.names import ExchangeFamily

DLX, KEY, TTL = "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl"


def queue(name: str, consumers: int = 0, **arguments: object) -> QueueFacts:
    """A queue with the arguments `dlx`, `key` and `ttl`."""
    names = {"dlx": DLX, "key": KEY, "ttl": TTL}
    return QueueFacts(
        name,
        {"x-queue-type": "classic", **{names[one]: value for one, value in arguments.items()}},
        consumers=Consumers(consumers),
    )


def found(
    queues: list[QueueFacts],
    exchanges: dict[str, str] | None = None,
    bindings: list[Binding] | None = None,
) -> dict[str, DeadLetterQueue]:
    """The dead-letter queues, by name."""
    world = Routes({one.name: one for one in queues}, exchanges or {}, tuple(bindings or ()))
    return {one.name: one for one in dead_letter_queues(world)}


def origins(one: DeadLetterQueue) -> list[str]:
    return [origin.queue for origin in one.origins]


# --- what libraries declare -----------------------------------------------------------------------


def test_a_plain_dead_letter_queue_is_found_by_the_argument_of_its_origin() -> None:
    one = found(
        [queue("orders", 1, dlx="dlx", key="orders"), queue("graveyard")],
        {"dlx": "direct"},
        [Binding("dlx", "graveyard", "orders")],
    )["graveyard"]
    assert one == DeadLetterQueue(
        "graveyard", "classic", (Origin("orders", "argument", True, "dlx", "orders"),)
    )
    assert one.certain


def test_a_policy_is_named() -> None:
    orders = QueueFacts(
        "orders", {}, {"dead-letter-exchange": "", "dead-letter-routing-key": "graveyard"}, "dlx"
    )
    (origin,) = found([orders, queue("graveyard")])["graveyard"].origins
    assert (origin.known_by, origin.policy) == ("policy", "dlx")


def test_celery_beside_a_dead_letter_exchange() -> None:
    one = found(
        [queue("celery", 1, dlx="celery.dead"), queue("celery.failures")],
        {"celery": "direct", "celery.dead": "direct"},
        [
            Binding("celery", "celery", "celery"),
            Binding("celery.dead", "celery.failures", "celery"),
        ],
    )["celery.failures"]
    assert origins(one) == ["celery"]
    # The key is each task's own: that all have this one can't be known.
    assert not one.certain


def test_dramatiqs_dead_queue_is_one_and_its_delay_queue_is_none() -> None:
    dead = {"dlx": "", "key": "default.XQ"}
    named = found(
        [queue("default", 1, **dead), queue("default.DQ", 1, **dead), queue("default.XQ", ttl=9)]
    )
    assert list(named) == ["default.XQ"]
    assert origins(named["default.XQ"]) == ["default", "default.DQ"]
    assert named["default.XQ"].dialects == ("dramatiq",)


def test_masstransits_error_queue_is_known_by_its_name() -> None:
    named = found(
        [queue("submit-order", 1), queue("submit-order_error"), queue("submit-order_skipped")],
        {"submit-order": "fanout", "submit-order_error": "fanout"},
        [
            Binding("submit-order", "submit-order", ""),
            Binding("submit-order_error", "submit-order_error", ""),
        ],
    )
    assert list(named) == ["submit-order_error", "submit-order_skipped"]
    one = named["submit-order_error"]
    assert one.origins == (Origin("submit-order", "name", certain=False),)
    assert (one.certain, one.shared, one.dialects) == (False, False, ("masstransit",))


def test_springs_retry_queue_that_leads_back_is_none_and_its_parking_lot_is_one() -> None:
    named = found(
        [
            queue("so.g", 1, dlx="DLX", key="so.g"),
            queue("so.g.dlq", dlx="", key="so.g", ttl=5000),
            queue("so.g.parkingLot"),
        ],
        {"DLX": "direct"},
        [Binding("DLX", "so.g.dlq", "so.g")],
    )
    assert list(named) == ["so.g.parkingLot"]
    assert origins(named["so.g.parkingLot"]) == ["so.g"]


def test_rascals_delays_are_none_and_its_dead_letters_are_one() -> None:
    named = found(
        [
            queue("shop:orders", 2, dlx="dead_letters", key="shop.orders.dead"),
            queue("delay:1m", dlx="retry", ttl=60000),
            queue("dead_letters"),
        ],
        {"dead_letters": "topic", "delay": "topic", "retry": "topic"},
        [
            Binding("dead_letters", "dead_letters", "#"),
            Binding("delay", "delay:1m", "delay.1m"),
            Binding("delay", "delay:1m", "shop.#"),
            Binding("retry", "shop:orders", "shop.orders.#"),
        ],
    )
    assert list(named) == ["dead_letters"]
    assert named["dead_letters"].certain


def test_one_dead_letter_queue_of_all() -> None:
    named = found(
        [queue("a", 1, dlx="dlx"), queue("b", 1, dlx="dlx", key="b.dead"), queue("all.dlq")],
        {"dlx": "fanout"},
        [Binding("dlx", "all.dlq", "")],
    )
    assert origins(named["all.dlq"]) == ["a", "b"]


# --- waiting is not failing -----------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["orders.wait", "orders-retry-30s", "later"])
def test_a_queue_with_a_ttl_that_leads_back_is_no_dead_letter_queue(wait: str) -> None:
    assert not found([queue("orders", dlx="", key=wait), queue(wait, dlx="", key="orders", ttl=30)])


def test_a_ladder_of_waits_is_none_either() -> None:
    assert not found(
        [
            queue("orders", dlx="", key="wait.1"),
            queue("wait.1", dlx="", key="wait.2", ttl=1),
            queue("wait.2", dlx="", key="orders", ttl=2),
        ]
    )


def test_a_wait_that_is_published_to_makes_no_dead_letter_queue_of_the_main_queue() -> None:
    assert not found([queue("orders"), queue("orders.wait", dlx="", key="orders", ttl=30)])
    assert not found([queue("orders"), queue("orders.wait", dlx="", key="orders")])
    assert not found([queue("orders", 1), queue("later", dlx="", key="orders", ttl=30)])


def test_a_delay_whose_work_is_published_to_as_well_makes_none() -> None:
    assert not found(
        [queue("orders"), queue("later", dlx="", key="orders", ttl=30)],
        {"events": "topic"},
        [Binding("events", "orders", "order.*")],
    )


def test_an_audit_that_hears_all_is_no_dead_letter_queue_of_a_wait() -> None:
    assert not found(
        [
            queue("orders", 1, dlx="", key="orders.wait"),
            queue("orders.wait", dlx="events", key="orders", ttl=30),
            queue("audit"),
        ],
        {"events": "topic"},
        [Binding("events", "orders", "orders"), Binding("events", "audit", "#")],
    )


def test_where_a_main_queue_has_a_ttl_its_dead_letter_queue_is_found_and_doubtful() -> None:
    plain = [queue("orders", dlx="", key="graveyard", ttl=30), queue("graveyard")]
    assert not found(plain)["graveyard"].certain
    working = [queue("orders", 1, dlx="", key="graveyard", ttl=30), queue("graveyard")]
    assert found(working)["graveyard"].certain
    named = [queue("orders", dlx="", key="orders.dlq", ttl=30), queue("orders.dlq")]
    assert found(named)["orders.dlq"].certain


def test_a_dead_letter_queue_that_ends_in_an_archive_is_one_and_so_is_the_archive() -> None:
    named = found(
        [
            queue("orders", 1, dlx="", key="orders.dlq"),
            queue("orders.dlq", dlx="", key="archive", ttl=9),
            queue("archive"),
        ]
    )
    assert {name: one.certain for name, one in named.items()} == {
        "archive": False,
        "orders.dlq": True,
    }


def test_a_dead_letter_queue_from_which_somebody_rejects_back_is_one_by_its_name() -> None:
    queues = [queue("orders", dlx="", key="orders.dlq"), queue("orders.dlq", dlx="", key="orders")]
    assert list(found(queues)) == ["orders.dlq"]


def test_a_queue_that_dead_letters_to_itself_is_none() -> None:
    assert not found([queue("orders", dlx="", key="orders"), queue("payments", dlx="")])


# --- what is published as well --------------------------------------------------------------------


def test_a_queue_that_is_published_to_as_well_is_no_certain_one() -> None:
    queues = [queue("orders", 1, dlx="dlx"), queue("graveyard")]
    bindings = [Binding("dlx", "graveyard", "#"), Binding("events", "graveyard", "order.lost")]
    one = found(queues, {"dlx": "topic", "events": "topic"}, bindings)["graveyard"]
    assert (one.shared, one.certain) == (True, False)


@pytest.mark.parametrize("consumers", [0, 1])
def test_an_audit_of_an_exchange_that_queues_dead_letter_to_is_none(consumers: int) -> None:
    assert not found(
        [queue("orders", 1, dlx="events", key="orders.failed"), queue("audit", consumers)],
        {"events": "topic"},
        [Binding("events", "orders", "order.*"), Binding("events", "audit", "#")],
    )


@pytest.mark.parametrize("consumers", [0, 1])
@pytest.mark.parametrize("ttl", [None, 60000])
def test_dead_letter_queues_that_lead_to_each_other_by_one_policy_for_all_are_found(
    consumers: int, ttl: int | None
) -> None:
    of_all = {"dead-letter-exchange": "dlx"} | ({"message-ttl": ttl} if ttl else {})
    named = found(
        [
            QueueFacts(name, {}, of_all, "all", consumers=Consumers(count))
            for name, count in (("orders", consumers), ("graveyard", 0), ("rejected", 0))
        ],
        {"dlx": "fanout", "shop": "topic"},
        [
            Binding("shop", "orders", "order.#"),
            Binding("dlx", "graveyard", ""),
            Binding("dlx", "rejected", ""),
        ],
    )
    assert list(named) == ["graveyard", "rejected"]


# --- queues that are called after an event --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "exchange", "kind", "key"),
    [
        ("notifications.payment.failed", "events", "topic", "payment.failed"),
        ("crm.payment_failed", "events", "direct", "payment.failed"),
        ("crm-payment-failed", "events", "topic", "payment.*"),
        ("billing.sync.error", "payment-failed", "fanout", ""),
    ],
)
def test_a_queue_that_takes_events_of_failures_is_none(
    name: str, exchange: str, kind: str, key: str
) -> None:
    assert not found([queue(name)], {exchange: kind}, [Binding(exchange, name, key)])


def test_an_endpoint_of_events_whose_exchange_has_its_name_is_none() -> None:
    assert not found(
        [queue("payment-failed", 1)],
        {"Contracts:PaymentFailed": "fanout", "payment-failed": "fanout"},
        [
            Binding("Contracts:PaymentFailed", "payment-failed", "", to="exchange"),
            Binding("payment-failed", "payment-failed", ""),
        ],
    )


def test_a_queue_that_takes_an_event_of_the_exchange_that_its_namesake_works_for_is_none() -> None:
    bindings = [Binding("events", "payment", "payment"), Binding("events", "payment.failed", "p.f")]
    assert not found([queue("payment", 1), queue("payment.failed")], {"events": "topic"}, bindings)


def test_a_failed_queue_with_an_exchange_of_its_own_is_one() -> None:
    named = found(
        [queue("mails", 1), queue("mails.failed")],
        {"failed": "direct"},
        [Binding("failed", "mails.failed", "mails.failed")],
    )
    assert origins(named["mails.failed"]) == ["mails"]


def test_a_failed_queue_of_an_exchange_for_dead_letters_is_one_though_none_come() -> None:
    named = found(
        [queue("orders", 1, dlx="dlx", key="orders"), queue("mails.failed"), queue("graveyard")],
        {"dlx": "topic"},
        [Binding("dlx", "mails.failed", "mails"), Binding("dlx", "graveyard", "orders")],
    )
    assert list(named) == ["graveyard", "mails.failed"]


def test_a_queue_called_after_an_event_to_which_others_dead_letter_is_one() -> None:
    named = found(
        [queue("orders", 1, dlx="dlx"), queue("orders.failed")],
        {"dlx": "fanout", "events": "topic"},
        [Binding("dlx", "orders.failed", ""), Binding("events", "orders.failed", "order.failed")],
    )
    assert origins(named["orders.failed"]) == ["orders"]


def test_what_leads_from_a_dead_letter_exchange_through_others_is_not_published() -> None:
    world = Routes(
        {one.name: one for one in [queue("orders", 1, dlx="dlx"), queue("graveyard")]},
        {"dlx": "direct", "lost": "fanout", "end": "fanout"},
        (Binding("lost", "end", "", to="exchange"), Binding("end", "graveyard", "")),
        {"dlx": "lost"},
    )
    (one,) = dead_letter_queues(world)
    assert one.certain


# --- what redrive makes ---------------------------------------------------------------------------


def ours(subscription: Subscription) -> tuple[list[QueueFacts], dict[str, str], list[Binding]]:
    topology = Ladder(subscription.exchanges).topology(3) + subscription.topology()
    return (
        [QueueFacts(one.name, one.arguments) for one in topology.queues],
        {one.name: one.type for one in topology.exchanges},
        list(topology.bindings),
    )


@pytest.mark.parametrize("retry_via", ["dead-letter", "republish"])
@pytest.mark.parametrize("main", ["master", "shop.events"])
def test_nothing_that_redrive_makes_is_listed(main: str, retry_via: str) -> None:
    subscription = Subscription(
        "ucenter@user",
        ["user.*"],
        ExchangeFamily(main),
        queue_type="classic" if retry_via == "republish" else "quorum",
        retry_via=retry_via,  # type: ignore[arg-type]
    )
    queues, exchanges, bindings = ours(subscription)
    assert any(one.name == f"{main}.unrouted" for one in queues)
    locks = ["redrive.look.ucenter@user", "ucenter@user@retry@migrating"]
    assert not found([*queues, *map(queue, locks)], exchanges, bindings)


def test_who_hears_redrives_retries_is_not_listed() -> None:
    queues, exchanges, bindings = ours(Subscription("ucenter@user", ["user.*"]))
    heard = [Binding("master.retry", "audit", "#"), Binding("master", "audit", "#")]
    assert not found([*queues, queue("audit")], exchanges, [*bindings, *heard])


def test_a_queue_that_only_sounds_like_a_ladder_is_no_part_of_one() -> None:
    named = found(
        [queue("orders", 1, dlx="", key="orders.deliver"), queue("orders.deliver")],
    )
    assert list(named) == ["orders.deliver"]


def test_a_subscription_of_ours_may_dead_letter_to_a_queue_of_others() -> None:
    named = found(
        [queue("a@b", 1, dlx="", key="graveyard"), queue("a@b@failed"), queue("graveyard")]
    )
    assert origins(named["graveyard"]) == ["a@b"]


# --- by name alone --------------------------------------------------------------------------------


def test_a_name_that_somebody_gives_tells_what_it_does() -> None:
    assert by_name("graveyard") == DeadLetterQueue("graveyard")
    assert by_name("error") == DeadLetterQueue("error", dialects=("nservicebus", "rebus"))
    assert by_name("q.XQ") == DeadLetterQueue(
        "q.XQ", origins=(Origin("q", "name", certain=False),), dialects=("dramatiq",)
    )


def test_a_name_alone_makes_a_doubtful_one_with_no_origin_that_is_not_there() -> None:
    assert found([queue("orders.dlq")])["orders.dlq"] == DeadLetterQueue("orders.dlq", "classic")


def test_an_origin_that_is_known_is_not_named_twice() -> None:
    named = found([queue("orders", 1, dlx="", key="orders.dlq"), queue("orders.dlq")])
    assert origins(named["orders.dlq"]) == ["orders"]


# --- whatever a broker holds ----------------------------------------------------------------------

_TEXT = st.sampled_from(["", "a", "b.dlq", "a.b.#", "*", "a@retry", "x.delay.3", "\x00\u202e", "é"])
_VALUES: st.SearchStrategy[object] = _TEXT | st.sampled_from([-1, 10**30, True, None, 0.5, [], {}])
_FACTS = st.builds(
    lambda name, arguments, policy, consumers: QueueFacts(
        name, arguments, policy, "p", consumers=Consumers(consumers)
    ),
    _TEXT,
    st.none() | st.dictionaries(st.sampled_from([DLX, KEY, TTL, "x-queue-type"]), _VALUES),
    st.dictionaries(
        st.sampled_from(["dead-letter-exchange", "dead-letter-routing-key", "message-ttl"]), _VALUES
    ),
    st.integers(0, 2),
)
_KINDS = st.sampled_from(["topic", "direct", "fanout", "headers", "x-random", ""])
_BINDINGS = st.builds(
    lambda source, destination, key, to, arguments: Binding(
        source, destination, key, to, tuple(arguments.items())
    ),
    _TEXT,
    _TEXT,
    _TEXT,
    st.sampled_from(["queue", "exchange"]),
    st.dictionaries(st.sampled_from(["x-match", "a"]), _VALUES),
)


@given(
    st.lists(_FACTS, max_size=6),
    st.dictionaries(_TEXT, _KINDS),
    st.lists(_BINDINGS, max_size=8),
    st.dictionaries(_TEXT, _TEXT, max_size=3),
)
@example(
    [QueueFacts("q", {DLX: "x", KEY: 5})], {"x": "topic"}, [Binding("x", "q", "#", "queue")], {}
)
def test_no_topology_is_too_strange_and_none_of_ours_is_listed(
    queues: list[QueueFacts],
    exchanges: dict[str, str],
    bindings: list[Binding],
    alternates: dict[str, str],
) -> None:
    world = Routes({one.name: one for one in queues}, exchanges, tuple(bindings), alternates)
    for one in dead_letter_queues(world):
        assert one.name in world.queues
        assert not one.name.endswith(("@retry", "@failed"))
        assert {origin.queue for origin in one.origins} <= set(world.queues)


# --- where messages are worked on, and where they only wait ---------------------------------------

WAITS = DeadLetterGraph(
    Routes(
        {
            one.name: one
            for one in (
                queue("orders", dlx="", key="orders.dlq"),
                queue("orders.dlq"),
                queue("shop.delay", dlx="shop", ttl=300),
                queue("first", dlx="", key="second", ttl=300),
                queue("second", dlx="", key="orders", ttl=300),
                queue("kept", dlx="", ttl=300),
                queue("before", dlx="onward", ttl=300),
                queue("round", dlx="", key="round", ttl=300),
                queue("dropped", ttl=300),
                queue("lost", dlx="gone", ttl=300),
                queue("taken", 1, dlx="shop", ttl=300),
                queue("old", dlx="", key="orders.dlq", ttl=300),
            )
        },
        {"shop": "direct", "delay": "fanout", "onward": "fanout"},
        (
            Binding("shop", "orders", "order.created"),
            Binding("delay", "shop.delay", ""),
            Binding("onward", "kept", ""),
        ),
    )
)


@pytest.mark.parametrize(
    ("name", "works"),
    [
        ("orders", True),
        ("taken", True),
        ("old", True),  # what expires there has failed
        ("orders.dlq", False),
        ("shop.delay", False),
        ("first", False),
        ("kept", False),  # what is sent there alone comes to itself, and is dropped
        ("dropped", False),
        ("lost", False),
        ("gone", False),
    ],
)
def test_messages_are_worked_on_in_queues_that_they_do_not_only_wait_in(
    name: str, works: bool
) -> None:
    assert WAITS.works(name) is works
    assert (name in WAITS.workers) is works


def test_what_nobody_consumes_and_what_leads_nowhere_is_dropped() -> None:
    dropped = {name for name in ("orders", "dropped", "lost", "kept", "gone") if WAITS.drops(name)}
    assert dropped == {"dropped", "lost"}


def test_a_queue_that_keeps_keys_is_a_wait_for_those_that_lead_on() -> None:
    assert not WAITS.is_wait("kept")
    assert WAITS.is_wait("kept", ["orders"])
    assert not WAITS.is_wait("kept", ["orders.dlq"])
    assert not WAITS.is_wait("gone")


@pytest.mark.parametrize(
    ("wait", "keys", "ends"),
    [
        ("shop.delay", ["order.created"], {"orders"}),
        ("shop.delay", ["order.gone"], set()),
        ("shop.delay", [], {"orders"}),
        ("first", [], {"orders"}),
        ("kept", ["orders"], {"orders"}),
        ("before", ["orders"], {"orders"}),
        ("round", [], set()),
        ("dropped", [], set()),
        ("gone", [], set()),
    ],
)
def test_a_wait_is_followed_to_its_end(wait: str, keys: list[str], ends: set[str]) -> None:
    assert WAITS.ends_of_wait(wait, keys) == ends


def test_a_key_reaches_the_queues_that_an_exchange_gives_it_to() -> None:
    assert WAITS.reached_from("shop", "order.created") == {"orders"}
    assert WAITS.reached_from("", "first") == {"first"}
