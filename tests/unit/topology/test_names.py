from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.topology.model import Subscription
from redrive.topology.names import (
    ExchangeFamily,
    check_queue_name,
    check_routing_key,
    family_of,
    job_lock,
    ladder_of_level,
    look_lock,
)


def test_the_exchanges_of_a_family_are_called_after_its_main_one() -> None:
    family = ExchangeFamily()
    assert (family.main, family.retry, family.failed) == ("master", "master.retry", "master.failed")


def test_the_suffixes_of_a_family_can_be_those_of_a_peer() -> None:
    family = ExchangeFamily("master", "@retry", "@failed")
    assert (family.retry, family.failed) == ("master@retry", "master@failed")


def test_a_family_is_read_back_as_it_was_written_down() -> None:
    family = ExchangeFamily("shop", ".r", "@f", "1m")
    assert ExchangeFamily.from_json(family.as_json()) == family


@pytest.mark.parametrize("damage", [{"main": 1}, {"tick_ms": 2**40}, {"retry_suffix": None}])
def test_a_family_that_was_damaged_since_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="the stored exchange family is invalid"):
        ExchangeFamily.from_json({**ExchangeFamily("shop").as_json(), **damage})


def test_the_queues_of_a_subscription_are_called_after_its_main_one() -> None:
    subscription = Subscription("ucenter@user")
    assert (subscription.retry_queue, subscription.failed_queue) == (
        "ucenter@user@retry",
        "ucenter@user@failed",
    )


def test_a_job_has_a_lock_of_its_own() -> None:
    assert job_lock("3f2a") == "redrive.job.3f2a.lock"


def test_a_look_has_a_lock_named_after_its_queue_if_amqp_has_room_for_that_name() -> None:
    longest = "q" * 242
    assert look_lock(longest) == f"redrive.look.{longest}"
    one, other = look_lock(f"{longest}1"), look_lock(f"{longest}2")
    assert one != other
    assert len(one) < 255


def test_the_name_of_an_exchange_stands_for_the_family_with_the_usual_suffixes() -> None:
    assert family_of("shop") == ExchangeFamily("shop", ".retry", ".failed")


def test_a_family_stands_for_itself() -> None:
    family = ExchangeFamily("shop", "@retry", "@failed")
    assert family_of(family) is family


@pytest.mark.parametrize("suffixes", [("", ".failed"), (".retry", ""), (".x", ".x"), ("", "")])
def test_a_family_with_the_same_name_twice_is_refused(suffixes: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="have the same name"):
        ExchangeFamily("master", *suffixes)


@pytest.mark.parametrize("name", ["", "amq.topic", "a\nb", "\0", "\ud800", "x" * 247])
def test_a_name_that_no_exchange_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="exchange name"):
        ExchangeFamily(name)


@pytest.mark.parametrize("name", [None, 1, b"master"], ids=repr)
def test_an_exchange_name_that_is_no_text_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="exchange name"):
        ExchangeFamily(name)


def test_an_exchange_name_may_be_as_long_as_its_suffixes_allow() -> None:
    assert len(ExchangeFamily("x" * 246).unrouted) == 255


@pytest.mark.parametrize(
    "name", ["", "amq.gen-1", "a\tb", "\ud800", "x@retry", "x@failed", None, 1], ids=repr
)
def test_a_name_that_no_subscription_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="queue name"):
        check_queue_name(name)


def test_a_name_of_248_bytes_leaves_room_for_the_suffix() -> None:
    check_queue_name("ü" * 124)
    assert len(Subscription("ü" * 124).failed_queue.encode()) == 255


def test_a_name_of_249_bytes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is 249 bytes; at most 248 fit"):
        check_queue_name("ü" * 124 + "x")


@pytest.mark.parametrize("name", ["#", "*", "orders.#", "*.user", "a.#.b"])
def test_a_queue_name_that_would_match_others_as_a_binding_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="queue name"):
        check_queue_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "ucenter@user",
        "ucenter@user#1",
        "a.b",
        "grün",
        "with space",
        "retry",
        "x@retry2",
        "c#",
        "2*3",
    ],
)
def test_any_other_name_may_be_a_subscription(name: str) -> None:
    check_queue_name(name)


@given(st.text(max_size=300))
def test_checking_a_queue_name_raises_nothing_but_its_own_error(name: str) -> None:
    with suppress(ConfigurationError):
        check_queue_name(name)
        assert 0 < len(name.encode()) <= 248


def test_a_routing_key_of_255_bytes_fits() -> None:
    check_routing_key("x" * 255)


def test_an_empty_routing_key_is_one() -> None:
    check_routing_key("")


@pytest.mark.parametrize("key", ["ü" * 128, "\ud800", None, b"user.create", 1], ids=repr)
def test_a_routing_key_that_amqp_cannot_carry_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match="routing key"):
        check_routing_key(key)


def test_a_level_names_the_ladder_that_it_is_of() -> None:
    assert ladder_of_level("master.delay.0") == "master"
    assert ladder_of_level("a.delay.b.delay-250ms.27") == "a.delay.b"


@pytest.mark.parametrize("name", ["master", "master.delay", "master.delay.x", "master.delay.1\n"])
def test_what_is_no_level_names_none(name: str) -> None:
    assert ladder_of_level(name) is None
