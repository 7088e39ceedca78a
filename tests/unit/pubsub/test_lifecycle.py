"""How long a link goes on trying, and how long it waits between."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
    RedriveError,
    TopologyMismatch,
)
from redrive.pubsub.lifecycle import (
    FIRST_DELAY,
    LONGEST_DELAY,
    BrokerAccess,
    ReconnectPolicy,
    reconnect_delay,
)

GONE = BrokerUnavailable("rabbit:5672", "connection refused")


def test_the_wait_doubles_up_to_its_cap() -> None:
    delays = [reconnect_delay(attempt, 0) for attempt in range(9)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 10**9), st.floats(0, 1))
def test_no_wait_is_longer_than_the_cap_or_shorter_than_half_of_the_first(
    attempt: int, chance: float
) -> None:
    assert FIRST_DELAY / 2 <= reconnect_delay(attempt, chance) <= LONGEST_DELAY


def test_chance_takes_off_up_to_half() -> None:
    assert [reconnect_delay(1, chance) for chance in (0, 0.5, 1)] == [1, 0.75, 0.5]


class Trying:
    """A link's persistence, and its clock."""

    def __init__(self, hosts: str = "rabbit", patience: float = 30) -> None:
        self.now = 1000.0
        self.persistence = ReconnectPolicy(
            BrokerAccess(f"amqp://{hosts}/", "test"),
            timedelta(seconds=patience),
            lambda: self.now,
        )
        self.persistence.began()

    def tries_again(self, error: RedriveError = GONE) -> bool:
        """Whether it tries again after this."""
        return self.persistence.failed(error) is not None


def test_a_broker_that_does_not_answer_is_waited_for_as_long_as_patience_lasts() -> None:
    trying = Trying(patience=30)
    trying.now += 29.9
    assert trying.tries_again()
    trying.now += 0.1
    assert not trying.tries_again()


def test_without_patience_each_host_is_tried_once() -> None:
    trying = Trying("one,two,three", patience=0)
    assert [trying.tries_again() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "error",
    [
        PermissionDenied("the password is wrong", ""),
        ConfigurationError("a file is missing"),
        TopologyMismatch("queue", "orders", "x-queue-type", "quorum", "classic"),
    ],
)
def test_what_waiting_can_not_help_is_final_at_first_and_waited_out_later(
    error: RedriveError,
) -> None:
    trying = Trying()
    assert not trying.tries_again(error)
    trying.persistence.connected()
    assert trying.tries_again(error)


def test_once_it_was_up_a_broker_is_waited_for_for_ever() -> None:
    trying = Trying(patience=0)
    trying.persistence.connected()
    trying.now += 10**9
    assert all(trying.tries_again() for _ in range(100))


def test_a_connection_begins_the_waits_again() -> None:
    trying = Trying()
    trying.persistence.connected()
    for _ in range(10):
        trying.persistence.failed(GONE)
    trying.persistence.connected()
    delay = trying.persistence.failed(GONE)
    assert delay is not None
    assert delay <= FIRST_DELAY


def test_hosts_are_taken_in_turn() -> None:
    access = BrokerAccess("amqp://one,two:1/", "test")
    hosts = []
    for _ in range(3):
        hosts.append(str(access.endpoint))
        access.next_host()
    assert set(hosts[:2]) == {"one:5672", "two:1"}
    assert hosts[2] == hosts[0]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_host_is_any_of_them(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda count: first % count)
    access = BrokerAccess("amqp://one,two,three/", "test")
    assert access.endpoint.host == ("one", "two", "three")[first]


def test_credentials_are_asked_for_at_each_login_and_name_the_user() -> None:
    users = iter([("first", "1"), ("second", "2")])
    access = BrokerAccess("amqp://guest:guest@rabbit/", "test", lambda: next(users))
    assert "@" not in access.url.address
    assert [access.login()[:2], access.login()[:2]] == [("first", "1"), ("second", "2")]
    assert access.url.address == "amqp://second@rabbit:5672/%2F"


def test_credentials_that_can_not_be_had_are_worth_another_try() -> None:
    def credentials() -> tuple[str, str]:
        raise OSError("the vault is sealed")

    with pytest.raises(BrokerUnavailable, match="the vault is sealed"):
        BrokerAccess("amqp://rabbit/", "test", credentials).login()
