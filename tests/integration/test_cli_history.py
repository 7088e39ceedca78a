"""`redrive topology history` makes a stream that each failure comes into, once."""

import pytest

from cli_support import redrive
from contract.plain import plain_channel
from contract.support import Service, retrying
from redrive.failures.queue.failure_feed import FailureFeed
from redrive.pubsub.blocking.connection import Connector
from redrive.topology.names import ExchangeFamily
from waiting import wait_until

pytestmark = pytest.mark.versions("streams")


def test_a_history_is_made_once_and_has_what_fails(rabbitmq_url: str) -> None:
    service = Service(rabbitmq_url, queue="shop@orders", retry=retrying(0))
    service.declare()
    first = redrive("topology", "history", "--max-age", "30d", url=rabbitmq_url)
    assert first.code == 0, first.err
    assert "Stream master.failed.history: created" in first.out
    again = redrive("topology", "history", "--output", "json", url=rabbitmq_url)
    assert again.json()["state"] == "exists"
    with plain_channel(rabbitmq_url) as channel:
        channel.basic_publish("master.failed", "shop@orders", b"{}")
    feed = FailureFeed(Connector(rabbitmq_url, "test"), ExchangeFamily(), offset=0)
    feed.start()
    try:
        (copy,) = wait_until(lambda: feed.take()[0], "it is in the history")
        assert copy.message.body == b"{}"
    finally:
        feed.close()


def test_a_dry_run_makes_nothing(rabbitmq_url: str) -> None:
    done = redrive("topology", "history", "--dry-run", "--output", "json", url=rabbitmq_url)
    assert done.json()["state"] == "would be created"
    again = redrive("topology", "history", "--dry-run", "--output", "json", url=rabbitmq_url)
    assert again.json()["state"] == "would be created"


def test_an_age_that_is_none_is_refused(rabbitmq_url: str) -> None:
    done = redrive("topology", "history", "--max-age", "soon", url=rabbitmq_url)
    assert done.code != 0
    assert "soon" in done.err
