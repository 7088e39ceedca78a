"""Pauses and rates as entries of a stream that anybody may have written."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.control import Control, control_queue, controls_of
from redrive.topology.names import ExchangeFamily

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
PAUSE = Control("shop@orders", "pause", NOW, "a migration", NOW + timedelta(hours=1), None, "me@pc")


def entry(**changes: object) -> bytes:
    """The entry of a pause with other values."""
    return json.dumps({**json.loads(PAUSE.encode()), **changes}).encode()


def test_an_entry_is_read_as_it_was_written_and_its_user_is_the_brokers() -> None:
    found = Control.decode(PAUSE.encode(), "ops")
    assert found is not None
    assert found.encode() == PAUSE.encode()
    assert found.by == "ops (me@pc)"
    assert str(found) == (
        "paused by ops (me@pc) since 2026-11-28 12:00:00 UTC, until 2026-11-28 13:00:00 UTC: "
        "a migration"
    )
    assert found.as_json()["by"] == "ops"


def test_who_is_vouched_for_by_nobody_is_not_believed() -> None:
    found = Control.decode(entry(user="root", by="root", whoami=""), "")
    assert found is not None
    assert found.by == "a user whom the broker does not vouch for"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 4000,
        b"5",
        b"{}",
        b"x" * 5000,
        entry(format=2),
        entry(format="1"),
        entry(action="destroy"),
        entry(queue=5),
        entry(at="yesterday"),
        entry(at="2026-11-28T12:00:00"),
        entry(until=5),
        entry(until="2026-11-28T12:00:00"),
        entry(rate=0),
        entry(rate=-1),
        entry(rate=True),
        entry(rate="10/s"),
        entry(rate=5).replace(b'"rate": 5', b'"rate": 1e999'),
    ],
)
def test_what_can_not_be_read_is_none(body: bytes) -> None:
    assert Control.decode(body, "ops") is None


@given(st.binary(max_size=300) | st.text().map(str.encode))
def test_no_entry_raises(body: bytes) -> None:
    assert Control.decode(body, "") is None


def test_texts_of_others_are_one_short_line() -> None:
    found = Control.decode(entry(reason="a\n\x1b[2Jb", whoami=5), "")
    assert found is not None
    assert "\n" not in found.reason
    assert "\x1b" not in found.reason
    assert found.whoami == ""


def test_the_last_entry_of_a_queue_counts_and_a_pause_ends_by_itself() -> None:
    resumed = Control("shop@orders", "resume", NOW).encode()
    slower = Control("shop@mail", "pause", NOW, rate=10.0).encode()
    assert controls_of([(PAUSE.encode(), "ops"), (b"{", "")], NOW).keys() == {"shop@orders"}
    assert controls_of([(PAUSE.encode(), "ops")], NOW + timedelta(hours=1)) == {}
    assert controls_of([(PAUSE.encode(), "ops"), (resumed, "")], NOW) == {}
    found = controls_of([(slower, "ops")], NOW)["shop@mail"]
    assert str(found).startswith("held to 10/s by ops since")
    assert str(found).endswith("until resumed")
    assert str(found.by_user("me")).startswith("held to 10/s by me")


def test_its_stream_is_of_the_family() -> None:
    assert control_queue(ExchangeFamily("shop")).name == "shop.control"
