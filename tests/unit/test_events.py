from hypothesis import given
from hypothesis import strategies as st

from redrive.topology import events
from redrive.topology.events import Outcomes
from redrive.topology.names import ExchangeFamily

_counts = st.integers(0, 1000)


@given(st.text(), st.text(), _counts, _counts)
def test_outcomes_are_read_back(job: str, queue: str, handled: int, failed: int) -> None:
    outcomes = Outcomes(job, queue, handled, failed)
    assert Outcomes.decode(outcomes.encode()) == outcomes


@given(st.binary())
def test_anything_may_come_in_place_of_an_event(body: bytes) -> None:
    found = Outcomes.decode(body)
    assert found is None or isinstance(found.job, str)


def test_damaged_events_count_for_nothing() -> None:
    assert Outcomes.decode(b'{"job": "j", "queue": "q", "handled": -1, "failed": true}') == Outcomes("j", "q", 0, 0)
    for body in (b"[]", b"{}", b'{"job": 1, "queue": "q"}', b"[" * 100_000):
        assert Outcomes.decode(body) is None


def test_a_job_whose_id_is_too_long_for_a_routing_key_is_not_told_of() -> None:
    queue = events.queue_of("j")
    assert events.key_of("x" * 251) == "job." + "x" * 251
    assert events.key_of("x" * 252) is None
    assert events.bindings_of(queue, ExchangeFamily(), "x" * 252) == ()
    (binding,) = events.bindings_of(queue, ExchangeFamily("shop"), "j")
    assert (binding.source, binding.destination, binding.routing_key) == ("shop.events", "redrive.job.j", "job.j")


def test_queues_of_events_go_by_themselves() -> None:
    assert events.queue_of("j").arguments["x-expires"] == 7 * 24 * 3600 * 1000
    assert events.watched_queue("w").arguments["x-expires"] == 60_000
