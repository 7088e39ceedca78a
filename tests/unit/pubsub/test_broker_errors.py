"""What a broker's words mean."""

import pytest

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.pubsub.broker_errors import of_channel, says_missing

DOWN = (
    "NOT_FOUND - home node 'rabbit@one' of durable queue 'shop@orders' in vhost '/' is down or "
    "inaccessible"
)
MISSING = "NOT_FOUND - no queue 'shop@orders' in vhost '/'"


def test_a_queue_whose_node_is_down_is_not_missing() -> None:
    error = of_channel(404, DOWN, "consume queue 'shop@orders'")
    assert type(error) is BrokerUnavailable
    problem, remedy = str(error).splitlines()
    assert problem.startswith("RabbitMQ at rabbit@one can't be used: it has the only copy ")
    assert problem.endswith("and is down: can't consume queue 'shop@orders'.")
    assert remedy == "Start that node. A quorum queue has copies on others."


def test_a_queue_that_is_not_there_is_to_be_declared() -> None:
    error = of_channel(404, MISSING, "consume queue 'shop@orders'")
    assert type(error) is ConfigurationError
    assert "Declare it first" in str(error)


@pytest.mark.parametrize(
    ("code", "text", "expected"), [(404, MISSING, True), (404, DOWN, False), (403, MISSING, False)]
)
def test_only_what_the_broker_does_not_know_is_missing(
    code: int, text: str, expected: bool
) -> None:
    assert says_missing(code, text) is expected
