"""A parked key is handled again once the last of its parked messages is, whoever handles them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.parked_keys import MOST_ENTRIES, ParkedKeys, ParkedPlace


def test_what_is_behind_a_message_that_was_given_up_is_not_handled() -> None:
    keys = ParkedKeys("run")
    assert keys.admits("a", 0)
    assert keys.give_up("a", 1000) == ParkedPlace("a", 1000)
    assert not keys.admits("a", 0)
    assert keys.admits("b", 0)
    assert keys.admits(None, 0)
    assert len(keys) == 1


def test_places_grow_however_the_clock_goes() -> None:
    keys = ParkedKeys("run")
    numbers = [keys.give_up("a", 1000).number]
    numbers += [keys.fall_behind("a", now).number for now in (1000, 5, 4000, 4000)]
    assert numbers == sorted(set(numbers))


def test_what_was_requeued_is_handled_and_goes_first_and_the_last_one_ends_it() -> None:
    keys = ParkedKeys("run")
    head, behind = keys.give_up("a", 1000), keys.fall_behind("a", 1000)
    for place in (head, behind):
        assert keys.admits("a", place.number)
        assert keys.goes_first("a", place.number)
    assert not keys.ends_with("a", head.number)
    assert keys.ends_with("a", behind.number)
    keys.free("a")
    assert keys.admits("a", 0)
    assert not keys.goes_first("a", behind.number)


def test_behind_one_that_was_given_up_again_everything_else_is_parked_again() -> None:
    keys = ParkedKeys("run")
    head, behind = keys.give_up("a", 1000), keys.fall_behind("a", 1000)
    assert keys.admits("a", head.number)
    keys.resume("a")
    assert keys.is_resuming("a")
    keys.give_up("a", 2000)
    assert not keys.admits("a", behind.number)
    assert not keys.is_resuming("a")


def test_what_is_new_waits_for_requeued_ones_only_while_they_come() -> None:
    keys = ParkedKeys("run")
    keys.resume("a")
    assert not keys.is_resuming("a")
    keys.give_up("a", 1)
    keys.resume("a")
    keys.wait_no_longer("a")
    assert not keys.is_resuming("a")


def known(log: list[bytes], run: str) -> ParkedKeys:
    """What a worker that takes over knows."""
    keys = ParkedKeys(run)
    log.append(keys.fence())
    *before, last = [keys.read(entry) for entry in log]
    assert (any(before), last) == (False, True)
    return keys


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["give up", "behind", "free", "takes over"]), st.sampled_from("ab")
        )
    )
)
def test_who_takes_over_knows_what_the_one_before_it_knew(acts: list[tuple[str, str]]) -> None:
    log: list[bytes] = []
    keys = known(log, "0")
    for number, (act, key) in enumerate(acts, 1):
        if act == "takes over":
            before, keys = keys, known(log, str(number))
            assert keys._parked == before._parked
            continue
        if act == "give up":
            keys.give_up(key, number)
        elif act == "behind":
            keys.fall_behind(key, number)
        elif not keys.admits(key, 0):
            keys.free(key)
        log.append(keys.entry_of(key))


def test_a_worker_that_was_replaced_says_nothing_any_more() -> None:
    log: list[bytes] = []
    old = known(log, "old")
    known(log, "new")
    old.give_up("a", 1)
    log.append(old.entry_of("a"))
    assert known(log, "newest").admits("a", 0)


def test_the_log_is_summed_up_so_that_its_oldest_entries_are_not_needed() -> None:
    keys = ParkedKeys("run")
    keys.give_up("a", 1)
    keys.give_up("b", 1)
    entries = [json.loads(keys.entry_of("a")) for _ in range(MOST_ENTRIES)]
    assert [set(entry) for entry in entries[-2:]] == [{"run", "keys"}, {"run", "all"}]
    assert set(entries[-1]["all"]) == {"a", "b"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"run": "run", "keys": {"a": "x"}}',
        b'{"run": "run", "keys": {"a": [1]}}',
        b'{"run": "run", "all": 7}',
        b'{"run": "other", "keys": {"a": [1, 1]}}',
        b'{"fence": true}',
    ],
    ids=lambda body: repr(body)[:30],
)
def test_an_entry_that_can_not_be_read_or_is_nobodys_does_not_count(body: bytes) -> None:
    keys = ParkedKeys("run")
    assert keys.read(keys.fence())
    assert not keys.read(body)
    assert len(keys) == 0
