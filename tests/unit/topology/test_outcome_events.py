import json

from hypothesis import given
from hypothesis import strategies as st

from redrive.topology import outcome_events
from redrive.topology.names import ExchangeFamily
from redrive.topology.outcome_events import Outcomes, OutcomeTotals

_counts = st.integers(0, 1000)


@given(st.text(), st.text(), st.lists(_counts, min_size=5, max_size=5))
def test_outcomes_are_read_back(job: str, queue: str, counts: list[int]) -> None:
    outcomes = Outcomes(job, queue, *counts)
    assert Outcomes.decode(outcomes.encode()) == outcomes


def test_the_events_of_an_older_subscriber_tell_of_no_retries() -> None:
    old = b'{"job": "j", "queue": "q", "handled": 3, "failed": 2}'
    assert Outcomes.decode(old) == Outcomes(
        "j", "q", 3, 2, retrying=0, handled_after_retry=0, failed_after_retry=0
    )


def test_an_older_watcher_finds_the_counts_that_it_knows_under_their_names() -> None:
    found = json.loads(Outcomes("j", "q", 3, 2, retrying=5).encode())
    assert (found["job"], found["queue"], found["handled"], found["failed"]) == ("j", "q", 3, 2)


def test_what_fails_counts_once_whether_it_is_retried_or_set_aside() -> None:
    standing = OutcomeTotals(succeeded=5, failing=3, failed_again=1) + OutcomeTotals(
        succeeded=1, failing=1
    )
    assert (standing.succeeded, standing.retrying, standing.failed_again, standing.heard_of) == (
        6,
        3,
        1,
        10,
    )


@given(st.binary())
def test_anything_may_come_in_place_of_an_event(body: bytes) -> None:
    found = Outcomes.decode(body)
    assert found is None or isinstance(found.job, str)


def test_damaged_events_count_for_nothing() -> None:
    assert Outcomes.decode(
        b'{"job": "j", "queue": "q", "handled": -1, "failed": true, "retrying": "9"}'
    ) == Outcomes("j", "q", 0, 0)
    for body in (b"[]", b"{}", b'{"job": 1, "queue": "q"}', b"[" * 100_000):
        assert Outcomes.decode(body) is None


def test_a_job_whose_id_is_too_long_for_a_routing_key_is_not_told_of() -> None:
    queue = outcome_events.queue_of("j")
    assert outcome_events.key_of("x" * 251) == "job." + "x" * 251
    assert outcome_events.key_of("x" * 252) is None
    assert outcome_events.bindings_of(queue, ExchangeFamily(), "x" * 252) == ()
    (binding,) = outcome_events.bindings_of(queue, ExchangeFamily("shop"), "j")
    assert (binding.source, binding.destination, binding.routing_key) == (
        "shop.events",
        "redrive.job.j",
        "job.j",
    )


def test_queues_of_events_go_by_themselves() -> None:
    assert outcome_events.queue_of("j").arguments["x-expires"] == 7 * 24 * 3600 * 1000
    assert outcome_events.watched_queue("w").arguments["x-expires"] == 60_000
