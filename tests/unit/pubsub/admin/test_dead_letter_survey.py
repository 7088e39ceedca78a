"""What is counted of dead-letter queues, whatever answers in place of a management API."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.topology.model import Binding


class _Answers:
    """A virtual host with one queue, `q.dlq`, of which this is told."""

    def __init__(self, **told: object) -> None:
        self._told = {"name": "q.dlq", "type": "classic", **told}

    def listed(self, path: str) -> list[dict[str, Any]]:
        return [self._told] if path.startswith("queues/") else []

    def bindings(self) -> list[Binding]:
        return []


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
