"""`redrive topology` with everything that a file can say: what is applied is in sync, and `init`
writes it down again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from effort import some_of
from redrive.pubsub.admin import topology_file
from redrive.testing import Broker
from redrive.topology.diff import Observed
from redrive.topology.file_schema import BackoffSpec, ExchangeSpec, RetrySpec, SubscriptionSpec
from redrive.topology.ladder import ladder_exchanges, with_ladder
from topology_support import Team

pytestmark = pytest.mark.versions("which kinds of queues there are")

KINDS = {
    "as little as can be": "subscriptions: {a@b: {}}",
    "what goes without saying": "subscriptions: {a@b: {routing_keys: [user.*], delay_by: "
    "argument}}",
    "several patterns, its own name among them": "subscriptions: {a@b: {routing_keys: [user.*, "
    'order.#, "#", a@b, "*.paid"]}}',
    "a classic queue": "subscriptions: {a@b: {routing_keys: [user.*], queue_type: classic, retry: "
    "{delay: 1500ms, max_retries: 0}}}",
    "shared with Java": """
        subscriptions:
          a@b:
            routing_keys: [user.*]
            exchange: {main: shop, retry_suffix: "@retry", failed_suffix: "@failed"}
            queue_type: classic
            retry_via: republish
            retry: {delay: 49d, max_retries: 7}
    """,
    "a list of delays": "subscriptions: {a@b: {routing_keys: [user.*], retry: {backoff: [1s, 5s, "
    "70s], max_retries: 3, max_age: 1d}}}",
    "one delay, which the retry queue does": "subscriptions: {a@b: {routing_keys: [user.*], retry: "
    "{delay: 5s, backoff: [5s]}}}",
    "growing delays of short ticks": """
        subscriptions:
          a@b:
            routing_keys: [user.*]
            exchange: {main: shop, tick: 50ms}
            retry: {backoff: {first: 100ms, factor: 3, cap: 2s, jitter: 0.5}, max_crashes: 2}
    """,
    "a delay that grows by as much each time": "subscriptions: {a@b: {routing_keys: [user.*], "
    "retry: {backoff: {growth: linear, first: 100ms, cap: 1s}}}}",
    "in order": "subscriptions: {a@b: {routing_keys: [user.*], ordered: true, retry: {delay: 20m, "
    "backoff: [1s, 1m]}}}",
    "in order, with what comes behind parked": "subscriptions: {a@b: {routing_keys: [user.*], "
    "ordered: true, when_given_up: park}}",
    "in order, of tags, with a full failed queue": (
        "subscriptions: {a@b: {routing_keys: [user.*], ordered: true, tags: vip && (eu || us), "
        "max_failed: 3}}"
    ),
    "a classic failed queue that can be full": "subscriptions: {a@b: {routing_keys: [user.*], "
    "queue_type: classic, max_failed: 1}}",
    "tags of an exchange with other names": """
        subscriptions:
          a@b:
            routing_keys: [user.*, order.paid]
            exchange: {main: shop, failed_suffix: .dead}
            tags: vip || eu && new
    """,
    "a header with one value, and failed queues for kinds of errors": (
        "subscriptions: {a@b: {routing_keys: [user.*], where: \"headers.country = 'DE'\", "
        "failed_queues: [invalid, http]}}"
    ),
    "tags without a pattern": "subscriptions: {a@b: {tags: vip}}",
    "tags of a classic queue with delays": """
        defaults: {queue_type: classic, max_failed: 9}
        subscriptions: {a@b: {routing_keys: [user.*], tags: vip, retry: {backoff: [3s]}}}
    """,
    "names that leave no room for a delay": f"""
        subscriptions:
          {{{"q" * 230}: {{routing_keys: [{"k" * 255}, user.*], retry: {{delay: 1h}}}}}}
    """,
    "names that need quotes": """
        defaults: {exchange: "shop: \\"é\\""}
        subscriptions: {"d'été: \\"a\\", {b}": {routing_keys: ["#", "a: b", "é.*"]}}
    """,
    "several that share an exchange and what they leave out": """
        defaults:
          {exchange: shop, queue_type: classic, max_failed: 5, retry: {delay: 2m, backoff: [2s]}}
        subscriptions:
          a@b: {routing_keys: [user.*]}
          a@c: {routing_keys: [user.*], queue_type: quorum}
          a@d: {routing_keys: ["#"], exchange: master, retry: {backoff: [9s]}, tags: vip}
    """,
}


@pytest.fixture
def here(
    request: pytest.FixtureRequest, tmp_path: Path, rabbitmq_url: str, rabbitmq_management_url: str
) -> Team:
    file = tmp_path / "team.yaml"
    file.write_text(KINDS[request.param])
    return Team(file, rabbitmq_url, rabbitmq_management_url)


@pytest.fixture
def elsewhere(here: Team, rabbitmq_broker: Broker) -> Iterator[Team]:
    name = f"{here.url.rpartition('/')[2]}-elsewhere"
    yield here._replace(url=rabbitmq_broker.create_virtual_host(name))
    rabbitmq_broker.delete_virtual_host(name)


def without_ladders(here: Team, observed: Observed) -> Observed:
    """What was observed but for the delay ladders: these are the backoff's, and the broker does not
    know whose."""
    ladder: set[str] = set()
    for subscription in topology_file.read(here.file).built():
        family = subscription.exchanges
        ladder |= ladder_exchanges(with_ladder(subscription), family) - {family.deliver}
    return Observed(
        {name: kind for name, kind in observed.exchanges.items() if name not in ladder},
        {name: arguments for name, arguments in observed.queues.items() if name not in ladder},
        frozenset(
            binding
            for binding in observed.bindings
            if binding.source not in ladder and binding.destination not in ladder
        ),
    )


@pytest.mark.parametrize("here", some_of([*KINDS]), indirect=True)
def test_a_plan_after_apply_is_empty_and_what_init_writes_makes_the_same_elsewhere(
    here: Team, elsewhere: Team
) -> None:
    assert here.run("apply").code == 0
    assert here.run("plan").out.startswith("Nothing to do: the broker")
    assert here.run("check").code == 0

    written = here.file.with_name("written.yaml")
    recovered, copy = here._replace(file=written), elsewhere._replace(file=written)
    assert recovered.run("init").code == 0
    # The exchanges' arguments, too, which only AMQP compares.
    assert recovered.run("check").out.startswith("Nothing to do: the broker")
    assert copy.run("apply").code == 0
    assert copy.run("check").code == 0
    assert copy.observe() == without_ladders(here, here.observe())


@pytest.mark.parametrize(
    "model",
    [SubscriptionSpec, RetrySpec, ExchangeSpec, BackoffSpec],
    ids=lambda model: model.__name__,
)
def test_every_key_of_a_file_is_among_these_kinds(model: type[BaseModel]) -> None:
    text = "".join(KINDS.values())
    assert [key for key in model.model_fields if f"{key}:" not in text] == []
