"""The verdict on what a job has sent, without a broker."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import FailedMessage
from redrive.amqp.field_table import FieldValue, Table
from redrive.amqp.properties import Properties
from redrive.failures.queue.canary import (
    Canary,
    CanaryStep,
    Guards,
    Unknown,
    longest_watch,
    time_of_retries,
    verdict_on_share,
    watched,
)
from redrive.topology.headers import Delivery
from redrive.topology.outcome_events import OutcomeTotals

TWO_MINUTES = timedelta(minutes=2)
_counts = st.integers(0, 50)


def canary(
    sent: int = 20,
    doubtful: int = 0,
    unknown: Unknown = Unknown.STOP,
    watch: timedelta = TWO_MINUTES,
) -> Canary:
    return Canary(sent, doubtful, watch, unknown)


def failed(headers: dict[str, FieldValue]) -> FailedMessage:
    return FailedMessage(
        Delivery(
            "shop@orders",
            "master.failed",
            "shop@orders",
            Properties(headers=Table.of(headers)),
            b"",
        )
    )


@given(
    st.builds(
        Guards,
        st.integers(0, 1000),
        st.none() | st.timedeltas(timedelta(0), timedelta(hours=1)),
        st.none() | st.floats(0, 1),
        st.sampled_from(Unknown),
    )
)
def test_guards_are_read_as_they_were_stored(guards: Guards) -> None:
    assert Guards.from_json(json.loads(json.dumps(guards.as_json()))) == guards
    assert guards.are_up == (guards.canary > 0 or guards.stop_at is not None)


def test_a_canary_goes_on_once_each_message_has_succeeded() -> None:
    assert canary().verdict(OutcomeTotals(succeeded=19), time_is_up=False).act is CanaryStep.WAIT
    verdict = canary().verdict(OutcomeTotals(succeeded=20), time_is_up=False)
    assert verdict == (CanaryStep.GO_ON, "All 20 succeeded; going on")


@pytest.mark.parametrize("time_is_up", [False, True])
@pytest.mark.parametrize("unknown", Unknown)
@given(sent=_counts, doubtful=_counts, succeeded=_counts, failing=st.integers(1, 50))
def test_one_message_that_fails_stops_whatever_else_is_known(
    time_is_up: bool, unknown: Unknown, sent: int, doubtful: int, succeeded: int, failing: int
) -> None:
    standing = OutcomeTotals(succeeded, failing)
    assert (
        canary(sent, doubtful, unknown).verdict(standing, time_is_up=time_is_up).act
        is CanaryStep.STOP
    )


@given(sent=st.integers(1, 50), doubtful=_counts, succeeded=_counts, time_is_up=st.booleans())
def test_a_canary_never_goes_on_by_default_without_the_success_of_all(
    sent: int, doubtful: int, succeeded: int, time_is_up: bool
) -> None:
    verdict = canary(sent, doubtful).verdict(OutcomeTotals(succeeded), time_is_up=time_is_up)
    assert (verdict.act is CanaryStep.GO_ON) == (succeeded >= sent + doubtful)
    assert (verdict.act is CanaryStep.WAIT) <= (not time_is_up)


def test_what_an_earlier_run_has_sent_is_not_taken_for_the_success_of_a_new_canary() -> None:
    assert (
        canary(20, doubtful=20).verdict(OutcomeTotals(succeeded=20), time_is_up=True).act
        is CanaryStep.STOP
    )
    assert (
        canary(20, doubtful=20).verdict(OutcomeTotals(succeeded=40), time_is_up=False).act
        is CanaryStep.GO_ON
    )


def test_what_is_unknown_at_the_end_of_the_watch_stops_and_is_counted() -> None:
    verdict = canary().verdict(OutcomeTotals(succeeded=15), time_is_up=True)
    assert verdict == (
        CanaryStep.STOP,
        "5 of 20 are unknown after 2m (15 succeeded, none is failing)",
    )


def test_going_on_without_knowing_has_to_be_asked_for() -> None:
    verdict = canary(unknown=Unknown.GO_ON).verdict(OutcomeTotals(succeeded=15), time_is_up=True)
    assert verdict.act is CanaryStep.GO_ON
    assert (
        verdict.reason
        == "5 of 20 are unknown after 2m (15 succeeded, none is failing); going on all the same, "
        "as asked for"
    )


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (OutcomeTotals(failing=3), "3 of the first 20 are failing and retrying"),
        (OutcomeTotals(failing=1), "1 of the first 20 is failing and retrying"),
        (OutcomeTotals(failing=2, failed_again=2), "2 of the first 20 failed again"),
        (
            OutcomeTotals(failing=3, failed_again=1),
            "3 of the first 20 are failing (2 retrying, 1 failed again)",
        ),
    ],
)
def test_a_stop_says_how_many_fail_and_how(standing: OutcomeTotals, words: str) -> None:
    assert canary().verdict(standing, time_is_up=False).reason == words


def test_the_words_at_the_beginning_say_what_is_waited_for() -> None:
    assert canary().in_words == "20 sent; waiting until each has succeeded, at most 2m."
    assert canary(1).in_words == "1 sent; waiting until it has succeeded, at most 2m."
    assert (
        canary(20, 3).in_words
        == "20 sent, and 3 sent earlier are unknown; waiting until each has succeeded, at most 2m."
    )


def test_a_share_counts_retries_as_failing() -> None:
    assert verdict_on_share(100, OutcomeTotals(failing=5), 0.05).act is CanaryStep.GO_ON
    verdict = verdict_on_share(100, OutcomeTotals(succeeded=80, failing=6), 0.05)
    assert verdict == (
        CanaryStep.STOP,
        "6 of 100 are failing and retrying, which is more than 5.0%",
    )


def test_a_share_says_nothing_of_a_few_messages() -> None:
    assert verdict_on_share(19, OutcomeTotals(failing=19), 0.05).act is CanaryStep.GO_ON
    assert verdict_on_share(20, OutcomeTotals(failing=19), 0.05).act is CanaryStep.STOP


def test_never_more_fail_than_were_sent_though_the_count_of_what_was_sent_is_late() -> None:
    verdict = verdict_on_share(22, OutcomeTotals(succeeded=2, failing=24, failed_again=24), 0.05)
    assert verdict.reason == "24 of 26 failed again, which is more than 5.0%"


def test_a_watch_ends_with_the_verdict() -> None:
    looks = iter([OutcomeTotals(), OutcomeTotals(succeeded=1), OutcomeTotals(succeeded=20)])
    told: list[OutcomeTotals] = []
    assert (
        watched(canary(), lambda: next(looks), lambda: False, told.append).act is CanaryStep.GO_ON
    )
    assert told == [OutcomeTotals(), OutcomeTotals(succeeded=1), OutcomeTotals(succeeded=20)]


def test_a_watch_that_is_over_looks_once_more() -> None:
    assert (
        watched(canary(watch=timedelta(0)), lambda: OutcomeTotals(succeeded=20), lambda: False).act
        is CanaryStep.GO_ON
    )
    assert (
        watched(canary(watch=timedelta(0)), lambda: OutcomeTotals(succeeded=19), lambda: False).act
        is CanaryStep.STOP
    )


def test_a_watch_that_is_cancelled_decides_nothing() -> None:
    assert (
        watched(canary(), lambda: OutcomeTotals(succeeded=20), lambda: True).act is CanaryStep.WAIT
    )


def test_a_watch_lasts_as_long_as_the_retries_that_nobody_tells_of() -> None:
    assert longest_watch(None) == TWO_MINUTES
    assert longest_watch(timedelta(seconds=30), retries=3) == timedelta(minutes=2, seconds=30)
    assert longest_watch(timedelta(milliseconds=200), retries=3) == TWO_MINUTES
    assert longest_watch(None, retries=3, took=timedelta(minutes=7)) == timedelta(
        minutes=7, seconds=30
    )


@pytest.mark.parametrize("delay", [timedelta(days=1), timedelta.max])
def test_a_watch_is_never_longer_than_an_hour(delay: timedelta) -> None:
    assert longest_watch(delay, retries=10**9) == timedelta(hours=1)
    assert longest_watch(None, took=timedelta(days=9)) == timedelta(hours=1)


def test_what_the_retries_of_a_message_took_stands_in_its_headers() -> None:
    at = datetime(2026, 11, 21, 15, 0, tzinfo=UTC)
    times: dict[str, FieldValue] = {
        "redrive-first-failed-at": at.isoformat(),
        "redrive-failed-at": (at + timedelta(seconds=91)).isoformat(),
    }
    assert time_of_retries(failed(times)) == timedelta(seconds=91)
    assert time_of_retries(failed({**times, "redrive-count": 1})) == timedelta(0)
    assert time_of_retries(failed({})) == timedelta(0)
    turned = {
        "redrive-first-failed-at": times["redrive-failed-at"],
        "redrive-failed-at": times["redrive-first-failed-at"],
    }
    assert time_of_retries(failed(turned)) == timedelta(0)
