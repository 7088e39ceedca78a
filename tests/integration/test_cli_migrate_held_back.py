"""`redrive topology migrate` to the broker's own delayed retry and back, on a live subscription:
nothing is lost, a killed run goes on, and an older broker is told apart."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cli_support import redrive
from effort import nightly
from live_shop import EACH, HELD_BACK, HELD_BACK_FILE, NEW, OLD, Shop
from redrive import RetryPolicy
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.blocking.connection import Connector
from redrive.pubsub.blocking.declarer import declare, declaring
from redrive.topology.diff import compare
from redrive.topology.model import Subscription

pytestmark = pytest.mark.versions("delayed retries, new in 4.3")

FROM = {
    "dead-letter": (OLD["another delay"], HELD_BACK),
    "classic": (OLD["quorum for classic"], HELD_BACK),
    "republish": (OLD["the default kind for the interop kind"], HELD_BACK),
    "broker": (replace(HELD_BACK, retry=RetryPolicy(3, timedelta(seconds=5))), NEW),
}


def holds_back(url: str) -> bool:
    """Whether this broker holds failed messages back by itself."""
    with declaring(Connector(url, "test")) as declarer:
        return declarer.version.holds_failed_messages_back


def shop_of(url: str, management_url: str, folder: Path, ends: str) -> Shop:
    """A live subscription that is to be migrated."""
    old, new = FROM[ends]
    return Shop(url, management_url, folder / "team.yaml", old, new=new)


def assert_it_is_refused(url: str, management_url: str, folder: Path, old: Subscription) -> None:
    """A broker that can't hold messages back is left as it is."""
    file = folder / "team.yaml"
    file.write_text(HELD_BACK_FILE)
    declare(Connector(url, "test"), old)
    done = redrive(
        "topology", "migrate", str(file), "--yes", "--management-url", management_url, url=url
    )
    assert done.code == 2
    assert "needs RabbitMQ 4.3 or newer" in done.err
    with ManagementAPI(url, management_url) as management:
        assert compare(old.topology(), management.observe()) == []


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "ends",
    [
        "dead-letter",
        "broker",
        nightly("classic", why="the queue is made anew each time"),
        nightly("republish", why="the queue is made anew each time"),
    ],
)
def test_a_live_subscription_is_migrated_without_a_loss_or_a_duplicate(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, ends: str
) -> None:
    if not holds_back(rabbitmq_url):
        assert_it_is_refused(rabbitmq_url, rabbitmq_management_url, tmp_path, NEW)
        return
    shop = shop_of(rabbitmq_url, rabbitmq_management_url, tmp_path, ends)
    with shop.consuming(shop.old, declares=True):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            done = redrive(
                "topology",
                "migrate",
                str(shop.file),
                "--yes",
                "--management-url",
                shop.management_url,
                url=shop.url,
            )
        assert (done.code, "is migrated" in done.out) == (0, True), done
        # The old consumer goes on asking for its queue, and makes nothing that is gone.
        with shop.consuming(shop.new, declares=True):
            shop.assert_nothing_is_lost()
    again = redrive(
        "topology", "migrate", str(shop.file), "--management-url", shop.management_url, url=shop.url
    )
    assert again.out.startswith("Nothing to migrate")


@pytest.mark.nightly("a unit test has one die at each step; a live one is tried each time")
@pytest.mark.timeout(720)
@pytest.mark.parametrize("ends", ["dead-letter", "broker"])
def test_a_migration_that_is_killed_ten_times_goes_on(
    rabbitmq_url: str, rabbitmq_management_url: str, tmp_path: Path, ends: str
) -> None:
    if not holds_back(rabbitmq_url):
        assert_it_is_refused(rabbitmq_url, rabbitmq_management_url, tmp_path, NEW)
        return
    shop = shop_of(rabbitmq_url, rabbitmq_management_url, tmp_path, ends)
    with shop.consuming(shop.old, declares=True):
        shop.publish(EACH)
        shop.wait_until_half_is_done()
        with shop.publishing():
            for most in range(1, 11):
                assert shop.migrate(most) in {0, -9}
            assert shop.migrate() == 0
        with shop.consuming(shop.new, declares=True):
            shop.assert_nothing_is_lost(most_duplicates=len(shop.published))
