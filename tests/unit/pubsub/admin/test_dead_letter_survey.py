"""What is counted of dead-letter queues, whatever answers in place of a management API."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from redrive.errors import BrokerUnavailable
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import routes_over_management
from redrive.topology.delay_policy import Policy
from redrive.topology.model import Binding


class _Answers:
    """A virtual host with one queue, `q.dlq`, of which this is told."""

    address = "http://localhost:15672"

    def __init__(self, **told: object) -> None:
        self._told = {"name": "q.dlq", "type": "classic", "arguments": {}, **told}

    def listed(self, path: str) -> list[dict[str, Any]]:
        return [self._told] if path.startswith("queues/") else []

    def bindings(self) -> list[Binding]:
        return []

    def policies(self, kind: str = "policies") -> tuple[Policy, ...]:
        return ()


def counted(**told: object) -> dead_letter_survey.CountedQueue:
    (one,) = dead_letter_survey.over_management(cast(ManagementAPI, _Answers(**told)))
    return one


def test_messages_that_are_being_dead_lettered_count() -> None:
    one = counted(messages=3, messages_dlx=2, consumers=1)
    assert (one.messages, one.consumers) == (5, 1)


def test_a_queue_that_was_not_counted_yet_has_no_count() -> None:
    one = counted()
    assert (one.messages, one.consumers, one.oldest) == (None, None, None)


def test_the_oldest_is_what_its_publisher_says() -> None:
    assert counted(head_message_timestamp=0).oldest == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [2**63, -(2**62), 10**40, "yesterday", "", [], None])
def test_a_time_that_is_none_is_left_out(value: object) -> None:
    assert counted(head_message_timestamp=value).oldest is None


@pytest.mark.parametrize("value", ["many", [], {}, None, 0.5])
def test_a_count_that_is_none_is_left_out(value: object) -> None:
    one = counted(messages=value, consumers=value, arguments=value, policy=value)
    assert (one.messages, one.consumers) == (None, None)


# --- what policies set, where the API does not say it of the queue --------------------------------

_DEAD = Policy("dead", "^orders$", {"dead-letter-exchange": "", "message-ttl": 900}, 0, "queues")
_SHORT = Policy("short", "^orders$", {"message-ttl": 300, "max-length": 5}, 0, "queues")
_LONG = Policy("long", "^orders$", {"message-ttl": 1000}, 0, "queues")


class _WithoutStatistics(_Answers):
    """A virtual host with the queue `orders`, of which nothing is told but the name of a policy."""

    def __init__(self, *operators: Policy, policy: str | None = "dead") -> None:
        super().__init__(name="orders", policy=policy, arguments={})
        self._operators = operators

    def policies(self, kind: str = "policies") -> tuple[Policy, ...]:
        return (_DEAD,) if kind == "policies" else self._operators


@pytest.mark.parametrize(
    ("answers", "ttl", "exchange"),
    [
        (_WithoutStatistics(), 900, ""),
        (_WithoutStatistics(_SHORT), 300, ""),
        (_WithoutStatistics(_LONG), 900, ""),
        (_WithoutStatistics(_SHORT, policy=None), 300, None),
        (_WithoutStatistics(_SHORT, _LONG), 900, ""),  # which one holds can't be told
        (_WithoutStatistics(policy="gone"), None, None),
    ],
)
def test_without_statistics_policies_are_looked_up(
    answers: _WithoutStatistics, ttl: int | None, exchange: str | None
) -> None:
    routes = routes_over_management(cast(ManagementAPI, answers))
    queue = routes.queues["orders"]
    assert queue.setting("message-ttl") == ttl
    assert queue.setting("dead-letter-exchange") == exchange


def test_what_the_arguments_of_a_queue_are_is_not_made_up() -> None:
    answers = cast(ManagementAPI, _Answers())
    del answers._told["arguments"]  # type: ignore[attr-defined]
    with pytest.raises(BrokerUnavailable, match=r"does not show the arguments of queue 'q\.dlq'"):
        routes_over_management(answers)
