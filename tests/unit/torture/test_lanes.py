import pytest

from torture.lanes import (
    ALWAYS,
    LANES,
    LONG_DELAY_MS,
    SHELLS,
    UNTIL_REQUEUED,
    Lane,
    Wish,
    lane_of,
    lanes_of,
    lanes_on,
    number_of,
)

each_lane = pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)


def test_both_shells_have_every_way() -> None:
    ways = [{lane.way for lane in lanes_of(shell, "4.3.6")} for shell in SHELLS]
    all_ways = {"deadletter", "republish", "ladder", "ordered", "broker", "scheduled", "requeue"}
    assert ways == [all_ways] * len(SHELLS)


@pytest.mark.parametrize(
    ("version", "has"),
    [("3.10.8", False), ("4.0.5", False), ("4.3.0", True), ("4.3.6-rc.1", True), ("5.0", True)],
)
def test_messages_are_held_back_where_the_broker_can_do_that(version: str, has: bool) -> None:
    lanes = lanes_on(version)
    assert ("broker" in {lane.way for lane in lanes}) == has
    assert [lane for lane in LANES if lane.way != "broker"] == [
        lane for lane in lanes if lane.way != "broker"
    ]


@each_lane
def test_an_id_tells_its_lane_and_its_number(lane: Lane) -> None:
    assert (lane_of(lane.id_of(17)), number_of(lane.id_of(17))) == (lane.name, 17)


@each_lane
def test_some_messages_of_each_lane_never_succeed(lane: Lane) -> None:
    fails = {lane.wish_of(number).fails for number in range(60)}
    assert ALWAYS in fails
    assert (UNTIL_REQUEUED in fails) == (lane.way == "requeue")


@each_lane
def test_a_wish_depends_on_the_number_alone(lane: Lane) -> None:
    assert lane.wish_of(5) == lane.wish_of(5)


def test_the_last_delay_is_that_of_all_later_retries() -> None:
    lane = Lane("ladder", "async", delays_ms=(1000, 2000))
    assert [lane.retry_delay_ms(retry, Wish()) for retry in (1, 2, 3)] == [1000, 2000, 2000]


def test_a_message_of_the_ladder_may_wait_as_it_says() -> None:
    lane = Lane("ladder", "async", delays_ms=(1000, 2000))
    wishes = [lane.wish_of(number) for number in range(60)]
    assert Wish(1, LONG_DELAY_MS) in wishes
    assert lane.retry_delay_ms(1, Wish(1, LONG_DELAY_MS)) == LONG_DELAY_MS
