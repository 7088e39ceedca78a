"""Where a queue dead-letters to, through exchanges of all kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.binding_pattern import matches
from redrive.topology.dead_letter_routes import DeadLettering, Routes, dead_letterings
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.model import Binding


def queue(
    name: str, exchange: str | None = None, key: str | None = None, policy: str | None = None
) -> QueueFacts:
    """A queue that dead-letters, by argument or by a policy of this name."""
    settings = {"dead-letter-exchange": exchange, "dead-letter-routing-key": key}
    given_ = {name: value for name, value in settings.items() if value is not None}
    if policy is not None:
        return QueueFacts(name, {}, given_, policy)
    return QueueFacts(name, {f"x-{name}": value for name, value in given_.items()})


def routes(
    queues: list[QueueFacts],
    exchanges: dict[str, str] | None = None,
    bindings: list[Binding] | None = None,
    alternates: dict[str, str] | None = None,
) -> Routes:
    return Routes(
        {one.name: one for one in queues}, exchanges or {}, tuple(bindings or ()), alternates or {}
    )


def targets(found: Routes, source: str = "orders") -> dict[str, bool]:
    """Where a queue dead-letters to, and whether all of its messages go there."""
    return {one.target: one.certain for one in dead_letterings(found) if one.source == source}


def test_the_default_exchange_gives_to_the_queue_of_the_key() -> None:
    assert dead_letterings(routes([queue("orders", "", "dead"), queue("dead")])) == [
        DeadLettering("orders", "dead", "", "dead", policy=None, certain=True)
    ]


def test_what_a_policy_sets_counts_and_is_named() -> None:
    found = routes([queue("orders", "", "dead", policy="dlx"), queue("dead")])
    assert [one.policy for one in dead_letterings(found)] == ["dlx"]


def test_an_argument_names_the_exchange_and_a_policy_the_key() -> None:
    orders = QueueFacts(
        "orders",
        {"x-dead-letter-exchange": ""},
        {"dead-letter-exchange": "other", "dead-letter-routing-key": "dead"},
        "dlx",
    )
    assert dead_letterings(routes([orders, queue("dead")])) == [
        DeadLettering("orders", "dead", "", "dead", policy=None, certain=True)
    ]


def test_an_exchange_that_is_not_there_leads_nowhere() -> None:
    found = routes([queue("orders", "gone"), queue("dead")], {}, [Binding("gone", "dead", "#")])
    assert targets(found) == {}


def test_a_queue_that_is_not_there_gets_nothing() -> None:
    assert targets(routes([queue("orders", "", "gone")])) == {}


@pytest.mark.parametrize("value", [7, ["dlx"], True, {"dlx": 1}])
def test_an_exchange_that_is_no_text_leads_nowhere(value: object) -> None:
    assert targets(routes([QueueFacts("orders", {"x-dead-letter-exchange": value})])) == {}


@pytest.mark.parametrize(
    ("kind", "bound", "certain"),
    [
        ("fanout", "", True),
        ("direct", "orders.dead", True),
        ("direct", "orders.*", None),
        ("topic", "orders.*", True),
        ("topic", "#", True),
        ("topic", "payments.*", None),
        ("headers", "", True),
        ("x-consistent-hash", "1", False),
    ],
)
def test_a_known_key_is_matched_as_the_kind_of_exchange_does(
    kind: str, bound: str, certain: bool | None
) -> None:
    found = routes(
        [queue("orders", "dlx", "orders.dead"), queue("dead")],
        {"dlx": kind},
        [Binding("dlx", "dead", bound)],
    )
    assert targets(found).get("dead") is certain


@pytest.mark.parametrize(
    ("kind", "bound", "certain"),
    [
        ("fanout", "", True),
        ("topic", "#", True),
        ("topic", "#.#", True),
        ("topic", "order.*", False),
        ("topic", "order.created", False),
        ("topic", "payment.*", None),
        ("direct", "order.created", False),
        ("direct", "orders", False),  # its own name, through the default exchange
        ("direct", "payment.created", None),
    ],
)
def test_where_messages_keep_their_keys_some_may_match(
    kind: str, bound: str, certain: bool | None
) -> None:
    found = routes(
        [queue("orders", "dlx"), queue("dead")],
        {"dlx": kind, "events": "topic"},
        [Binding("events", "orders", "order.*"), Binding("dlx", "dead", bound)],
    )
    assert targets(found).get("dead") is certain


@pytest.mark.parametrize("kind", ["fanout", "headers", "x-delayed-message"])
def test_through_an_exchange_that_ignores_keys_a_message_may_have_any(kind: str) -> None:
    found = routes(
        [queue("orders", "dlx"), queue("dead")],
        {"dlx": "direct", "events": kind},
        [Binding("events", "orders", ""), Binding("dlx", "dead", "anything")],
    )
    assert targets(found) == {"dead": False}


def test_a_key_of_a_direct_exchange_is_no_pattern() -> None:
    found = routes(
        [queue("orders", "dlx"), queue("dead")],
        {"dlx": "topic", "events": "direct"},
        [Binding("events", "orders", "a.*"), Binding("dlx", "dead", "a.b")],
    )
    assert targets(found) == {}


@pytest.mark.parametrize(
    ("arguments", "certain"),
    [
        ({}, True),
        ({"x-match": "all"}, True),
        ({"x-match": "all-with-x"}, True),
        ({"x-match": "any"}, False),
        ({"x-match": "any-with-x", "x-death": "1"}, False),
        ({"tenant": "acme"}, False),
    ],
)
def test_a_headers_exchange_depends_on_the_headers_it_looks_for(
    arguments: dict[str, str | bool], certain: bool
) -> None:
    found = routes(
        [queue("orders", "dlx"), queue("dead")],
        {"dlx": "headers"},
        [Binding("dlx", "dead", "", arguments=tuple(arguments.items()))],
    )
    assert targets(found) == {"dead": certain}


def test_bindings_between_exchanges_are_followed_and_may_be_a_circle() -> None:
    found = routes(
        [queue("orders", "one"), queue("dead")],
        {"one": "fanout", "two": "topic"},
        [
            Binding("one", "two", "", to="exchange"),
            Binding("two", "one", "#", to="exchange"),
            Binding("two", "dead", "#"),
        ],
    )
    assert targets(found) == {"dead": True}


def test_of_two_ways_the_certain_one_counts() -> None:
    found = routes(
        [queue("orders", "one"), queue("dead")],
        {"one": "topic", "two": "fanout"},
        [
            Binding("one", "two", "#", to="exchange"),
            Binding("one", "two", "orders", to="exchange"),
            Binding("one", "dead", "orders"),
            Binding("two", "dead", ""),
        ],
    )
    assert targets(found) == {"dead": True}


def test_what_no_binding_takes_goes_to_the_alternate_exchange() -> None:
    exchanges, alternates = {"dlx": "direct", "alternate": "fanout"}, {"dlx": "alternate"}
    bound = Binding("alternate", "lost", "")
    queues = [queue("orders", "dlx", "orders"), queue("dead"), queue("lost")]
    taken = Binding("dlx", "dead", "orders")
    assert targets(routes(queues, exchanges, [bound], alternates)) == {"lost": True}
    assert targets(routes(queues, exchanges, [bound, taken], alternates)) == {"dead": True}
    own_keys = [queue("orders", "dlx"), queue("dead"), queue("lost")]
    some = routes(own_keys, exchanges, [bound, taken], alternates)
    assert targets(some) == {"dead": False, "lost": False}


def test_thousands_of_queues_that_share_an_exchange_are_each_followed() -> None:
    many = range(3000)
    found = routes(
        [queue(f"q{n}", "dlx", f"k{n}") for n in many] + [queue(f"d{n}") for n in many],
        {"dlx": "direct"},
        [Binding("dlx", f"d{n}", f"k{n}") for n in many],
    )
    assert {(one.source, one.target) for one in dead_letterings(found)} == {
        (f"q{n}", f"d{n}") for n in many
    }


# --- against a broker that routes message by message ----------------------------------------------

_WORDS = ("a", "b", "*", "#")
_KEYS = st.lists(st.sampled_from(("a", "b")), min_size=1, max_size=2).map(".".join)
_PATTERNS = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).map(".".join)
_EXCHANGES = ("e0", "e1", "e2")
_QUEUES = ("q0", "q1", "q2")
_BINDINGS = st.builds(
    lambda source, target, pattern: Binding(
        source, target, pattern, "exchange" if target in _EXCHANGES else "queue"
    ),
    st.sampled_from(_EXCHANGES),
    st.sampled_from(_EXCHANGES + _QUEUES),
    _PATTERNS,
)
_WORLDS = st.builds(
    routes,
    st.tuples(
        *(
            st.builds(
                queue, st.just(name), st.sampled_from(_EXCHANGES), st.one_of(st.none(), _KEYS)
            )
            for name in _QUEUES
        )
    ).map(list),
    st.fixed_dictionaries(
        dict.fromkeys(_EXCHANGES, st.sampled_from(("topic", "direct", "fanout")))
    ),
    st.lists(_BINDINGS, max_size=8),
    st.dictionaries(st.sampled_from(_EXCHANGES), st.sampled_from(_EXCHANGES), max_size=2),
)


def routed(world: Routes, exchange: str, key: str) -> set[str]:
    """The queues that get a message, as a broker finds them."""
    seen, waiting, found = set(), [exchange], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        kind = world.exchanges[name]
        taken = [
            binding
            for binding in world.bindings
            if binding.source == name
            and (
                kind == "fanout"
                or (kind == "direct" and binding.routing_key == key)
                or (kind == "topic" and matches(binding.routing_key, key))
            )
        ]
        found |= {one.destination for one in taken if one.to == "queue"}
        waiting += [one.destination for one in taken if one.to == "exchange"]
        if not taken and name in world.alternates:
            waiting.append(world.alternates[name])
    return found


@given(_WORLDS, st.sampled_from(_EXCHANGES), _KEYS)
def test_each_message_goes_where_it_may_and_all_go_where_it_is_certain(
    world: Routes, exchange: str, key: str
) -> None:
    for source in routed(world, exchange, key):
        facts = world.queues[source]
        dead_exchange = str(facts.argument("x-dead-letter-exchange"))
        dead_key = facts.argument("x-dead-letter-routing-key") or key
        gone_to = routed(world, dead_exchange, str(dead_key))
        may = targets(world, source)
        assert gone_to <= set(may)
        assert {target for target, certain in may.items() if certain} <= gone_to
