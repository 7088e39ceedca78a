"""Where a failed message is sent back to, for what it says of its way, and what the broker says."""

import json

import pytest

from redrive.failures.message.route import (
    WITHOUT_TOPOLOGY,
    Claims,
    Death,
    Judge,
    Route,
    Verdict,
    WayBack,
    claims_from,
)
from redrive.topology.dead_letter_routes import Routes
from redrive.topology.doctor.facts import QueueFacts
from redrive.topology.model import Binding

CONFIRMED, UNCHECKED = Verdict.CONFIRMED, Verdict.UNCHECKED
CONTRADICTED, UNKNOWN = Verdict.CONTRADICTED, Verdict.UNKNOWN
ORDERS, BILLING = WayBack("", "orders"), WayBack("", "billing")


def queue(name: str, *, dlx: str | None = None, key: str | None = None, ttl: int = 0) -> QueueFacts:
    settings = {
        "x-dead-letter-exchange": dlx,
        "x-dead-letter-routing-key": key,
        "x-message-ttl": ttl or None,
    }
    return QueueFacts(name, {n: value for n, value in settings.items() if value is not None})


SHOP = Routes(
    {
        one.name: one
        for one in (
            queue("orders", dlx="", key="graveyard"),
            queue("billing", dlx="dead", key="billing"),
            queue("stock"),
            queue("graveyard"),
            queue("billing.dlq"),
            queue("orders.parking-lot"),
            queue("lost"),
            queue("shop.delay", ttl=300, dlx="shop"),
            queue("orders.wait", ttl=300, dlx="", key="orders"),
            queue("to.nowhere", ttl=300, dlx="gone"),
            queue("keeps.keys", ttl=300, dlx=""),
            queue("dropped", ttl=300),
            queue("archive"),
        )
    },
    {"shop": "direct", "dead": "direct", "events": "fanout", "delay": "fanout"},
    (
        Binding("shop", "orders", "order.created"),
        Binding("shop", "stock", "order.created.too"),
        Binding("dead", "billing.dlq", "billing"),
        Binding("events", "billing", ""),
        Binding("events", "stock", ""),
        Binding("delay", "shop.delay", ""),
    ),
)
"""`orders` dead-letters to `graveyard`, and `billing` to `billing.dlq`; `stock` to nowhere."""


def judged(place: str, exchange: str = "", key: str | None = None, **said: object) -> Route:
    """The route of a message that lies there, and came by that exchange and key."""
    claims = Claims(place, exchange, place if key is None else key, **said)  # type: ignore[arg-type]
    return Judge(SHOP).route(claims)


def died(name: str, reason: str = "rejected", *keys: str) -> Death:
    return Death(name, reason, keys)


# --- what the broker has brought ------------------------------------------------------------------


def test_what_a_queue_has_dead_lettered_goes_back_to_it() -> None:
    route = judged("graveyard", deaths=(died("orders"),))
    assert route == Route(ORDERS, CONFIRMED, "orders has dead-lettered it to graveyard")


def test_a_death_of_an_earlier_life_does_not_count_where_another_queue_has_brought_it() -> None:
    deaths = (died("billing"), died("orders"))
    assert judged("billing.dlq", "dead", "billing", deaths=deaths)[:2] == (BILLING, CONFIRMED)


def test_of_a_chain_of_dead_letter_queues_the_first_one_counts() -> None:
    chain = Routes(
        {
            one.name: one
            for one in (
                queue("orders", dlx="", key="orders.dlq"),
                queue("orders.dlq", ttl=1000, dlx="", key="old.dlq"),
                queue("old.dlq"),
            )
        },
        {},
    )
    deaths = (died("orders.dlq", "expired"), died("orders"))
    route = Judge(chain).route(Claims("old.dlq", "", "old.dlq", deaths=deaths))
    assert route == Route(ORDERS, CONFIRMED, "orders has dead-lettered it to orders.dlq")


def test_of_what_anybody_may_have_published_a_name_of_another_queue_contradicts_the_death() -> None:
    shared = Routes(
        {
            one.name: one
            for one in (
                queue("orders", dlx="", key="billing.dlq"),
                queue("billing"),
                queue("billing.dlq"),
            )
        },
        {},
    )
    route = Judge(shared).route(Claims("billing.dlq", "", "billing.dlq", deaths=(died("orders"),)))
    assert route.verdict is CONTRADICTED
    assert route.reason.endswith("but this queue is named after billing")


# --- what a framework says ------------------------------------------------------------------------


def test_a_queue_that_a_framework_names_is_believed_where_it_works() -> None:
    assert judged("lost", queue="stock") == Route(
        WayBack("", "stock"), CONFIRMED, "its framework says that it failed in stock"
    )


def test_a_queue_that_a_framework_names_and_that_is_gone_gets_nothing() -> None:
    route = judged("lost", queue="sales")
    assert (route.way, route.verdict) == (WayBack("", "sales"), CONTRADICTED)


def test_a_framework_is_contradicted_by_the_name_of_the_place() -> None:
    assert judged("orders.parking-lot", queue="stock").verdict is CONTRADICTED


def test_a_framework_is_contradicted_where_the_broker_would_have_brought_others() -> None:
    route = judged("billing.dlq", "dead", "billing", queue="stock")
    assert route.verdict is CONTRADICTED


def test_a_wait_that_keeps_keys_gets_nothing_though_a_framework_names_it() -> None:
    assert judged("lost", queue="keeps.keys").verdict is UNKNOWN
    deaths = (died("keeps.keys", "expired", "orders"),)
    assert judged("lost", queue="keeps.keys", deaths=deaths)[:2] == (ORDERS, CONFIRMED)


def test_a_wait_that_a_framework_names_is_followed() -> None:
    assert judged("lost", queue="orders.wait")[:2] == (ORDERS, CONFIRMED)


def test_of_all_that_get_what_was_published_so_the_one_goes_whose_failures_come_here() -> None:
    route = judged("billing.dlq", "dead", "billing", published=WayBack("events", "any"))
    assert route == Route(
        BILLING,
        CONFIRMED,
        "of those whose failures come here, only billing gets what is published to events with any",
    )


def test_what_only_one_queue_gets_goes_back_to_it() -> None:
    route = judged("lost", published=WayBack("shop", "order.created"))
    assert route[:2] == (ORDERS, CONFIRMED)


def test_where_several_get_it_and_nothing_says_which_failed_nobody_gets_a_copy_unasked() -> None:
    route = judged("lost", published=WayBack("events", ""))
    assert (route.way, route.verdict) == (WayBack("events", ""), UNCHECKED)


def test_those_that_get_it_are_contradicted_by_others_whose_failures_come_here() -> None:
    route = judged("billing.dlq", "other", "x", published=WayBack("shop", "order.created"))
    assert route.verdict is CONTRADICTED


def test_an_exchange_that_leads_nowhere_says_nothing() -> None:
    assert judged("lost", published=WayBack("gone", "x")).verdict is UNKNOWN


# --- what has waited ------------------------------------------------------------------------------


def test_what_waited_goes_to_where_its_key_leads_and_not_to_where_it_waited() -> None:
    deaths = (died("shop.delay", "expired", "order.created"),)
    assert judged("orders.parking-lot", deaths=deaths) == Route(
        ORDERS,
        CONFIRMED,
        "it waited in shop.delay, which leads to orders, after which this queue is named",
    )


def test_what_waited_and_lies_in_a_queue_of_no_name_may_be_of_an_earlier_life() -> None:
    deaths = (died("orders.wait", "expired", "orders"),)
    route = judged("lost", deaths=deaths)
    assert (route.way, route.verdict) == (ORDERS, UNCHECKED)


def test_a_wait_that_leads_nowhere_is_told() -> None:
    deaths = (died("shop.delay", "expired", "order.gone"),)
    route = judged("lost", deaths=deaths)
    assert (route.way, route.verdict) == (None, UNKNOWN)
    assert route.reason == "it waited in shop.delay, which leads nowhere from here"


def test_what_expired_in_a_queue_that_works_has_not_waited_there() -> None:
    assert judged("graveyard", deaths=(died("orders", "expired"),))[:2] == (ORDERS, CONFIRMED)


# --- what somebody has published ------------------------------------------------------------------


def test_a_name_alone_is_enough_where_nothing_contradicts_it() -> None:
    assert judged("orders.parking-lot") == Route(
        ORDERS, CONFIRMED, "this queue is named after orders"
    )


def test_a_death_in_a_queue_that_fails_elsewhere_is_older_than_a_name() -> None:
    route = judged("orders.parking-lot", deaths=(died("billing"),))
    assert route == Route(ORDERS, CONFIRMED, "this queue is named after orders")


def test_a_death_elsewhere_and_a_name_that_disagree_are_left() -> None:
    assert judged("orders.parking-lot", deaths=(died("stock"),)).verdict is CONTRADICTED


def test_a_death_that_has_not_led_here_is_not_relied_upon() -> None:
    route = judged("lost", deaths=(died("billing"),))
    assert (route.way, route.verdict) == (BILLING, UNCHECKED)


def test_a_death_is_contradicted_by_queues_whose_failures_come_here() -> None:
    route = judged("billing.dlq", "x", deaths=(died("stock"),))
    assert route.verdict is CONTRADICTED


def test_the_one_queue_that_dead_letters_here_is_not_taken_for_granted() -> None:
    route = judged("graveyard", "x")
    assert (route.way, route.verdict) == (ORDERS, UNCHECKED)


def test_the_only_queue_at_work_is_where_a_death_leads() -> None:
    alone = Routes({"orders": queue("orders"), "lost.dlq": queue("lost.dlq")}, {})
    deaths = (died("orders"),)
    judge = Judge(alone)
    assert judge.route(Claims("lost.dlq", "", "lost.dlq", deaths=deaths)).verdict is CONFIRMED
    assert judge.route(Claims("lost.dlq", "", "lost.dlq")).verdict is UNCHECKED


def test_several_whose_failures_come_here_are_named() -> None:
    both = Routes(
        {one: queue(one, dlx="", key="lost") for one in ("a", "b", "c", "d")}
        | {"lost": queue("lost")},
        {},
    )
    route = Judge(both).route(Claims("lost", "", "lost"))
    assert route == Route(
        None,
        UNKNOWN,
        "a, b, c and 1 more dead-letter here, and nothing says which it was",
    )


def test_a_queue_that_drops_what_waits_there_gets_nothing_unasked() -> None:
    route = judged("lost", queue="dropped")
    assert route.verdict is UNCHECKED
    assert route.reason.endswith("nobody consumes dropped: messages left there are dropped")


def test_nothing_is_sent_from_one_dead_letter_queue_to_another() -> None:
    assert judged("lost", queue="graveyard").verdict is CONTRADICTED


def test_what_says_nothing_stays() -> None:
    assert judged("lost") == Route(None, UNKNOWN, "nothing says which queue it failed in")


# --- what can't be asked --------------------------------------------------------------------------


def test_what_nobody_could_check_is_unchecked_and_says_why() -> None:
    claims = Claims("lost", way=ORDERS)
    assert Judge(None, "no API").route(claims) == Route(ORDERS, UNCHECKED, "no API")


def test_without_the_topology_a_queue_that_is_gone_is_still_found_to_be() -> None:
    route = Judge(None, "no API", lambda _: False).route(Claims("lost", way=ORDERS))
    assert route == Route(ORDERS, CONTRADICTED, "there is no queue orders")


def test_without_the_topology_what_says_nothing_stays() -> None:
    assert WITHOUT_TOPOLOGY.route(Claims("lost")).verdict is UNKNOWN


def test_a_subscriptions_message_goes_to_its_main_queue_unasked() -> None:
    assert WITHOUT_TOPOLOGY.route(Claims("", way=ORDERS)) == Route(ORDERS, CONFIRMED)


@pytest.mark.parametrize("published", [None, WayBack("shop", "\udcff")])
def test_claims_are_the_same_once_they_were_kept(published: WayBack | None) -> None:
    deaths = (died("shop.delay", "expired", "order.created"),)
    claims = Claims("lost", "x", "y", ORDERS, "orders", published, deaths)
    assert claims_from(json.dumps(claims)) == claims


def test_a_judge_takes_the_topology_to_another_process() -> None:
    made, arguments = Judge(SHOP, "problem").__reduce__()
    assert made(*arguments).route(Claims("graveyard", "", "graveyard", deaths=(died("orders"),)))[
        :2
    ] == (ORDERS, CONFIRMED)


@pytest.mark.parametrize(
    ("name", "onward"),
    [
        ("orders", ""),
        ("orders.wait", "messages left there go on to orders"),
        ("dropped", "messages left there are dropped when they expire"),
        (
            "shop.delay",
            "messages left there are dropped when they expire: no queue gets them",
        ),
    ],
)
def test_what_becomes_of_messages_that_are_sent_where_nobody_works_is_told(
    name: str, onward: str
) -> None:
    assert Judge(SHOP).onward(name) == onward
    assert WITHOUT_TOPOLOGY.onward(name) == ""
