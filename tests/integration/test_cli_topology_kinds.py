"""`redrive topology` with everything that a file can say: what is applied is in sync, and `init` writes it down again."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import BaseModel

from cli_support import Outcome, redrive
from redrive.pubsub import topology_file
from redrive.pubsub.management import Management
from redrive.testing import Broker
from redrive.topology.compare import Observed
from redrive.topology.ladder import ladder_exchanges, with_ladder
from redrive.topology.spec import BackoffSpec, ExchangeSpec, RetrySpec, SubscriptionSpec

KINDS = {
    "as little as can be": "subscriptions: {a@b: {}}",
    "several patterns, its own name among them": 'subscriptions: {a@b: {routing_keys: [user.*, order.#, "#", a@b, "*.paid"]}}',
    "a classic queue": "subscriptions: {a@b: {routing_keys: [user.*], queue_type: classic, retry: {delay: 1500ms, max_retries: 0}}}",
    "shared with Java": """
        subscriptions:
          a@b:
            routing_keys: [user.*]
            exchange: {main: shop, retry_suffix: "@retry", failed_suffix: "@failed"}
            queue_type: classic
            retry_via: republish
            retry: {delay: 49d, max_retries: 7}
    """,
    "a list of delays": "subscriptions: {a@b: {routing_keys: [user.*], retry: {backoff: [1s, 5s, 70s], max_retries: 3, max_age: 1d}}}",
    "one delay, which the retry queue does": "subscriptions: {a@b: {routing_keys: [user.*], retry: {delay: 5s, backoff: [5s]}}}",
    "growing delays of short ticks": """
        subscriptions:
          a@b:
            routing_keys: [user.*]
            exchange: {main: shop, tick: 50ms}
            retry: {backoff: {first: 100ms, factor: 3, cap: 2s, jitter: 0.5}, max_crashes: 2}
    """,
    "in order": "subscriptions: {a@b: {routing_keys: [user.*], ordered: true, retry: {delay: 20m, backoff: [1s, 1m]}}}",
    "in order, of tags, with a full failed queue": (
        "subscriptions: {a@b: {routing_keys: [user.*], ordered: true, tags: vip && (eu || us), max_failed: 3}}"
    ),
    "a classic failed queue that can be full": "subscriptions: {a@b: {routing_keys: [user.*], queue_type: classic, max_failed: 1}}",
    "tags of an exchange with other names": """
        subscriptions:
          a@b: {routing_keys: [user.*, order.paid], exchange: {main: shop, failed_suffix: .dead}, tags: vip || eu && new}
    """,
    "tags without a pattern": "subscriptions: {a@b: {tags: vip}}",
    "tags of a classic queue with delays": """
        subscriptions: {a@b: {routing_keys: [user.*], queue_type: classic, tags: vip, max_failed: 9, retry: {backoff: [3s]}}}
    """,
    "names that leave no room for a delay": f"""
        subscriptions: {{{"q" * 230}: {{routing_keys: [{"k" * 255}, user.*], retry: {{delay: 1h}}}}}}
    """,
    "names that need quotes": """
        subscriptions: {"d'été: \\"a\\", {b}": {routing_keys: ["#", "a: b", "é.*"], exchange: "shop: \\"é\\""}}
    """,
    "several that share an exchange and what they leave out": """
        defaults: {exchange: shop, queue_type: classic, max_failed: 5, retry: {delay: 2m, backoff: [2s]}}
        subscriptions:
          a@b: {routing_keys: [user.*]}
          a@c: {routing_keys: [user.*], queue_type: quorum}
          a@d: {routing_keys: ["#"], exchange: master, retry: {backoff: [9s]}, tags: vip}
    """,
}


class Place(NamedTuple):
    """A virtual host, and the management API beside it."""

    url: str
    management_url: str

    def run(self, command: str, file: Path, *arguments: str) -> Outcome:
        """Runs a command on a file."""
        return redrive("topology", command, str(file), "--management-url", self.management_url, *arguments, url=self.url)

    def observe(self) -> Observed:
        """What is there."""
        with Management(self.url, self.management_url) as management:
            return management.observe()


@pytest.fixture
def here(rabbitmq_url: str, rabbitmq_management_url: str) -> Place:
    return Place(rabbitmq_url, rabbitmq_management_url)


@pytest.fixture
def elsewhere(here: Place, rabbitmq_broker: Broker) -> Iterator[Place]:
    name = f"{here.url.rpartition('/')[2]}-elsewhere"
    yield here._replace(url=rabbitmq_broker.create_virtual_host(name))
    rabbitmq_broker.delete_virtual_host(name)


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text(KINDS[request.param])
    return path


def without_ladders(observed: Observed, file: Path) -> Observed:
    """What is there but for the delay ladders, which are the backoff's, and so each subscriber's own: the broker does not know whose."""
    ladder: set[str] = set()
    for subscription in topology_file.read(file).built():
        family = subscription.exchanges
        ladder |= ladder_exchanges(with_ladder(subscription), family) - {family.deliver}
    return Observed(
        {name: kind for name, kind in observed.exchanges.items() if name not in ladder},
        {name: arguments for name, arguments in observed.queues.items() if name not in ladder},
        frozenset(binding for binding in observed.bindings if binding.source not in ladder and binding.destination not in ladder),
    )


def test_a_plan_after_apply_is_empty_and_what_init_writes_makes_the_same_elsewhere(here: Place, elsewhere: Place, file: Path) -> None:
    assert here.run("apply", file).code == 0
    assert here.run("plan", file).out.startswith("Nothing to do: the broker")
    assert here.run("check", file).code == 0

    written = file.with_name("written.yaml")
    assert here.run("init", written).code == 0
    # The exchanges' arguments, too, which only AMQP compares.
    assert here.run("check", written).out.startswith("Nothing to do: the broker")
    assert elsewhere.run("apply", written).code == 0
    assert elsewhere.run("check", written).code == 0
    assert without_ladders(elsewhere.observe(), file) == without_ladders(here.observe(), file)


@pytest.mark.parametrize("model", [SubscriptionSpec, RetrySpec, ExchangeSpec, BackoffSpec], ids=lambda model: model.__name__)
def test_every_key_of_a_file_is_among_these_kinds(model: type[BaseModel]) -> None:
    text = "".join(KINDS.values())
    assert [key for key in model.model_fields if f"{key}:" not in text] == []
