"""What the tasks of a drain have seen: whether each failure id is there once."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from redrive.spark_reprocess.drain import Drained


def drained(ids: list[str]) -> Drained:
    hashes = (hashlib.blake2b(id_.encode(), digest_size=8).digest() for id_ in ids)
    return Drained(hashes=bytearray(b"".join(hashes)))


@given(st.lists(st.text(max_size=3)))
def test_each_id_is_there_once_or_it_is_said_that_this_is_not_known(ids: list[str]) -> None:
    assert drained(ids).has_distinct_ids(len(ids)) == (len(set(ids)) == len(ids))


def test_rows_that_no_task_of_this_drain_has_seen_may_repeat_an_id() -> None:
    assert not drained(["a", "b"]).has_distinct_ids(3)
    assert not Drained().has_distinct_ids(2)
