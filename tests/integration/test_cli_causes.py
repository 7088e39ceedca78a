"""`redrive causes`: what is said of causes, and that every command groups and chooses by it."""

import pytest

from cli_support import Outcome, give_up_on, redrive

QUEUE = "ucenter@user"


@pytest.fixture
def incident(rabbitmq_url: str) -> str:
    """A failed queue with three KeyErrors and two ValueErrors."""
    bodies: list[object] = [{"n": n, "country": "DE" if n % 2 else "FR"} for n in range(3)]
    give_up_on(rabbitmq_url, QUEUE, bodies, KeyError("no country 'DE'"))
    give_up_on(rabbitmq_url, QUEUE, [{"n": 7}, {"n": 8}], ValueError("no plan 17"))
    return rabbitmq_url


def done(*arguments: str, url: str) -> Outcome:
    outcome = redrive(*arguments, "--output", "json", url=url)
    assert outcome.code == 0, outcome.err
    return outcome


def groups(url: str, *more: str) -> dict[str, int]:
    """How many messages are in which group."""
    found = done("failed", "groups", QUEUE, *more, url=url).json()
    return {group["group_id"]: group["count"] for group in found["groups"]}


def ids(url: str) -> tuple[str, str]:
    """The groups of the KeyErrors and of the ValueErrors."""
    key, value = groups(url)
    return key, value


@pytest.mark.parametrize("fresh", [(), ("--fresh",)], ids=["index", "fresh"])
def test_merged_causes_are_one_group_until_that_is_taken_back(
    incident: str, fresh: tuple[str, ...]
) -> None:
    key, value = ids(incident)
    remark = done("causes", "merge", value, key, url=incident).json()["id"]
    assert groups(incident, *fresh) == {key: 5}
    listed = done("failed", "list", QUEUE, "--group", value, *fresh, url=incident).json()
    assert listed["matching"] == 5
    done("causes", "undo", remark[:8], url=incident)
    assert groups(incident, *fresh) == {key: 3, value: 2}


def test_what_is_said_is_listed_with_who_has_said_it(incident: str) -> None:
    key, _ = ids(incident)
    said = ("--state", "fixed", "--fixed-in", "2.3.1", "--note", "plans are deployed")
    done("causes", "say", key, *said, url=incident)
    (listed,) = done("causes", "list", url=incident).json()
    assert listed["group"] == key
    assert (listed["state"], listed["fixed_in"], listed["user"]) == ("fixed", "2.3.1", "guest")
    table = redrive("causes", "list", url=incident)
    assert "fixed in 2.3.1: plans are deployed" in table.out


@pytest.mark.parametrize(
    "said",
    [
        ("say", "3f2a"),
        ("say", "0123456789ab", "--state", "failing again"),
        ("merge", "0123456789ab", "0123456789ab"),
        ("undo", "none"),
    ],
)
def test_what_can_not_be_said_is_told_in_two_lines(
    rabbitmq_url: str, said: tuple[str, ...]
) -> None:
    outcome = redrive("causes", *said, url=rabbitmq_url)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) <= 3
