"""A page that was made while a look ended is read again, and no other."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.failures.store.look import Look
from redrive.web.look_cache import RunningLook
from redrive.web.page_request import QueuePlace

HOUR = timedelta(hours=1)


@pytest.fixture
def under_way() -> RunningLook:
    return RunningLook(QueuePlace("shop@orders"))


def look_of(at: datetime) -> Look:
    return Look("shop@orders@failed", as_of=at)


def test_while_it_runs(under_way: RunningLook) -> None:
    assert under_way.is_still_to_be_seen(None)


@pytest.mark.parametrize("shown", [None, look_of(datetime.now(UTC) - HOUR)], ids=["none", "older"])
def test_when_it_has_ended_since(under_way: RunningLook, shown: Look | None) -> None:
    under_way.end()
    assert under_way.is_still_to_be_seen(shown)


def test_not_when_the_page_shows_what_it_has_found(under_way: RunningLook) -> None:
    found = look_of(datetime.now(UTC))
    under_way.end()
    assert not under_way.is_still_to_be_seen(found)


def test_not_when_it_has_found_nothing(under_way: RunningLook) -> None:
    under_way.note_problem("no broker answered")
    under_way.end()
    assert not under_way.is_still_to_be_seen(None)


def test_not_when_it_has_ended_long_ago(under_way: RunningLook) -> None:
    under_way.end()
    under_way.ended_at = datetime.now(UTC) - HOUR
    assert not under_way.is_still_to_be_seen(None)
