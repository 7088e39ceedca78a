from datetime import timedelta

import pytest

from redrive.topology.backoff import Linear
from redrive.topology.formats import definitions_of, json_of, mermaid_of, tree_of
from redrive.topology.ladder import with_ladder
from redrive.topology.model import Binding, Exchange, Queue, Subscription, Topology
from redrive.topology.policy import RetryPolicy

SUBSCRIPTION = Subscription(
    "shop@orders", ["order.*", '"#"'], retry=RetryPolicy(2, timedelta(minutes=5))
)


def test_each_kind_of_object_as_json() -> None:
    assert json_of(Exchange("master")) == {
        "kind": "exchange",
        "name": "master",
        "type": "topic",
        "arguments": {},
    }
    assert json_of(Queue("q", {"x-queue-type": "quorum"})) == {
        "kind": "queue",
        "name": "q",
        "type": "quorum",
        "arguments": {"x-queue-type": "quorum"},
    }
    assert json_of(Binding("master", "q", "k")) == {
        "kind": "binding",
        "exchange": "master",
        "queue": "q",
        "routing_key": "k",
        "arguments": {},
    }


def test_definitions_hold_every_object() -> None:
    topology = SUBSCRIPTION.topology()
    found = definitions_of(topology)
    assert [len(found[kind]) for kind in ("exchanges", "queues", "bindings")] == [
        4,
        3,
        len(topology.bindings),
    ]
    assert all(item["durable"] for kind in ("exchanges", "queues") for item in found[kind])


def test_definitions_name_the_virtual_host_in_every_object_where_one_is_given() -> None:
    found = definitions_of(SUBSCRIPTION.topology(), "/")
    assert {item["vhost"] for items in found.values() for item in items} == {"/"}
    assert not any(
        "vhost" in item
        for items in definitions_of(SUBSCRIPTION.topology()).values()
        for item in items
    )


def test_a_diagram_shows_bindings_and_the_way_of_dead_letters() -> None:
    lines = mermaid_of(SUBSCRIPTION.topology()).splitlines()
    assert lines[0] == "flowchart LR"
    assert '  e0 -->|"order.*, #34;#35;#34;, shop@orders"| q0' in lines
    assert '  q0 -.->|"rejected"| e1' in lines
    assert '  q1 -.->|"after 300000 ms"| q0' in lines


def test_a_diagram_draws_no_way_to_what_is_not_in_it() -> None:
    queue = Queue("q", {"x-dead-letter-exchange": "elsewhere"})
    assert mermaid_of(Topology((), (queue,), (Binding("other", "q", "k"),))).splitlines()[1:] == [
        '  q0["q"]',
        '  x0{{"other"}}',
        '  x0 -->|"k"| q0',
    ]


def test_the_levels_of_a_delay_ladder_are_drawn() -> None:
    subscription = Subscription("shop@orders", retry=RetryPolicy(backoff=timedelta(seconds=2)))
    lines = mermaid_of(with_ladder(subscription)).splitlines()
    assert len([line for line in lines if "master.delay." in line]) == 4
    assert any('…r.shop@orders"| q' in line for line in lines)
    exchange_to_exchange = json_of(Binding("a", "b", "k", "exchange"))
    assert exchange_to_exchange["to_exchange"] == "b"


def test_a_tree_says_where_failures_go() -> None:
    other = Subscription("shop@audit")
    assert tree_of([SUBSCRIPTION, other]) == [
        "master  (retries: master.retry, failures: master.failed)",
        "├─ shop@orders  quorum, dead-letter",
        '│  ├─ takes order.*, "#"',
        "│  ├─ shop@orders@retry  after 5m, at most 2 times",
        "│  └─ shop@orders@failed  failed messages",
        "└─ shop@audit  quorum, dead-letter",
        "   ├─ takes only requeued messages",
        "   ├─ shop@audit@retry  after 30s, at most 3 times",
        "   └─ shop@audit@failed  failed messages",
    ]


@pytest.mark.parametrize(
    ("backoff", "found"),
    [(None, "for 30s, at most 3 times"), (Linear("10s", "1m"), "for 10s to 1m, at most 3 times")],
)
def test_a_tree_tells_what_the_broker_holds_back(backoff: Linear | None, found: str) -> None:
    held_back = Subscription("shop@orders", retry=RetryPolicy(backoff=backoff), retry_via="broker")
    assert f"shop@orders itself holds failed messages back {found}" in "\n".join(
        tree_of([held_back])
    )
