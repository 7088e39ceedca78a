"""What each role needs at the least."""

from typing import get_args

import pytest

from redrive.topology.model import Subscription
from redrive.topology.permissions import Right, Role, grant_command, lacking, least_rights

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
    rights = [Right("read", "queue", "a.b"), Right("write", "exchange", "master"), Right("write", "queue", "a.b")]
    assert grant_command("app", "my vhost", rights) == r"rabbitmqctl set_permissions -p 'my vhost' app '^$' '^(a\.b|master)$' '^(a\.b)$'"


def test_a_finding_says_the_role_the_rights_and_the_command_for_all_roles_that_were_asked_for() -> None:
    missing: dict[Role, list[Right]] = {"publisher": [], "subscriber": [Right("read", "queue", "ucenter@user")]}
    (finding,) = lacking("app", "/", SUBSCRIPTION, missing)
    assert finding.problem == "the user 'app' can't be a subscriber of it, and may not: read queue ucenter@user"
    assert "'^(master|master\\.failed|master\\.retry)$'" in finding.remedy
    assert "all that publisher and subscriber need;" in finding.remedy


@pytest.mark.parametrize("role", ROLES)
def test_who_has_all_rights_lacks_none(role: Role) -> None:
    assert list(lacking("app", "/", SUBSCRIPTION, {role: []})) == []
