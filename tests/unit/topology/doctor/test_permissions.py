"""What each role needs at the least."""

from typing import get_args

import pytest

from redrive.topology.doctor.facts import Access
from redrive.topology.doctor.permissions import (
    Right,
    Role,
    grant_command,
    lacking,
    least_rights,
    writers_into_others,
)
from redrive.topology.model import Subscription

SUBSCRIPTION = Subscription("ucenter@user", ["user.*"])
ROLES: tuple[Role, ...] = get_args(Role)


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_who_publishes_or_handles_configures_nothing(role: Role) -> None:
    assert not [right for right in least_rights(role, SUBSCRIPTION) if right.verb == "configure"]


def test_a_publisher_writes_to_one_exchange() -> None:
    assert least_rights("publisher", SUBSCRIPTION) == (Right("write", "exchange", "master"),)


def test_who_declares_needs_what_the_broker_asks_of_dead_lettering() -> None:
    rights = least_rights("declarer", SUBSCRIPTION)
    assert Right("write", "exchange", "master.retry") in rights
    assert Right("write", "exchange", "amq.default") in rights


def test_the_command_grants_exactly_the_names() -> None:
    rights = [
        Right("read", "queue", "a.b"),
        Right("write", "exchange", "master"),
        Right("write", "queue", "a.b"),
    ]
    assert (
        grant_command("app", "my vhost", rights)
        == r"rabbitmqctl set_permissions -p 'my vhost' app '^$' '^(a\.b|master)$' '^(a\.b)$'"
    )


def test_a_finding_says_the_role_the_rights_and_the_command_for_all_roles_that_were_asked_for() -> (
    None
):
    missing: dict[Role, list[Right]] = {
        "publisher": [],
        "subscriber": [Right("read", "queue", "ucenter@user")],
    }
    (finding,) = lacking("app", "/", SUBSCRIPTION, missing)
    assert (
        finding.problem
        == "the user 'app' can't be a subscriber of it, and may not: read queue ucenter@user"
    )
    assert "'^(master|master\\.failed|master\\.retry)$'" in finding.remedy
    assert "all that publisher and subscriber need;" in finding.remedy


def test_a_right_on_many_objects_is_granted_by_its_pattern() -> None:
    rights = least_rights("delayer", SUBSCRIPTION)
    assert grant_command("app", "/", rights).endswith(
        r" '^$' '^(master\.delay\.[0-9]+|master\.deliver)$' '^$'"
    )
    assert str(rights[0]) == r"write exchange master\.delay\.[0-9]+"


@pytest.mark.parametrize(
    ("role", "named"),
    [("operator", "can't be an operator"), ("subscriber", "can't be a subscriber")],
)
def test_a_role_is_named_with_its_article(role: Role, named: str) -> None:
    (finding,) = lacking("app", "/", SUBSCRIPTION, {role: [Right("read", "queue", "q")]})
    assert named in finding.problem


def test_a_subscribers_remedy_keeps_it_out_of_others_queues_and_an_operators_does_not() -> None:
    missing = [Right("read", "queue", "ucenter@user")]
    command = "rabbitmqctl set_topic_permissions -p / app master.failed '^ucenter@user$' '^$'"
    (finding,) = lacking("app", "/", SUBSCRIPTION, {"subscriber": missing})
    assert command in finding.remedy
    (finding,) = lacking("app", "/", SUBSCRIPTION, {"subscriber": missing, "operator": []})
    assert command not in finding.remedy


@pytest.mark.parametrize(
    ("access", "found"),
    [
        (Access("app", False, ".*failed$"), ["master.failed"]),
        (Access("app", False, "^master"), ["master.failed and master.retry"]),
        (
            Access("app", False, "^master", {"master.failed": "^a$", "master.retry": ".*"}),
            ["master.retry"],
        ),
        (Access("app", False, "^master", {"master.failed": "^a$", "master.retry": ""}), []),
        (Access("app", False, "^master$"), []),
        (Access("app", False, ""), []),
        (Access("app", False, "(?<broken"), []),
        (Access("admin", True, ".*"), []),
        (Access("operator", False, ".*"), []),
    ],
)
def test_who_may_write_into_others_queues_is_found_unless_that_can_not_be_prevented(
    access: Access, found: list[str]
) -> None:
    findings = list(writers_into_others([access], "/", SUBSCRIPTION.exchanges))
    assert [finding.problem for finding in findings] == [
        f"this user may write to {exchanges} with any routing key" for exchanges in found
    ]


@pytest.mark.parametrize("role", ROLES)
def test_who_has_all_rights_lacks_none(role: Role) -> None:
    assert list(lacking("app", "/", SUBSCRIPTION, {role: []})) == []
