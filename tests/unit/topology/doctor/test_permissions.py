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
    readers_of_others,
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
    assert Right("write", "exchange", "master.retry", key=SUBSCRIPTION.queue) in rights
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
        == "the user 'app' can't be a subscriber of it; missing rights: read queue ucenter@user"
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


@pytest.mark.parametrize(
    ("role", "purpose"),
    [
        ("subscriber", "keep it from writing into others' queues"),
        ("operator", "keep it from reading other queues' failures"),
    ],
)
def test_the_remedy_of_a_subscriber_and_of_an_operator_keeps_them_to_their_queue(
    role: Role, purpose: str
) -> None:
    missing = [Right("read", "queue", "ucenter@user")]
    own = "'^ucenter@user$'"
    commands = "; ".join(
        f"rabbitmqctl set_topic_permissions -p / app {exchange} {own} {own}"
        for exchange in ("master.failed", "master.retry")
    )
    (finding,) = lacking("app", "/", SUBSCRIPTION, {role: missing})
    assert f"To {purpose}: {commands}" in finding.remedy


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


@pytest.mark.parametrize(
    ("access", "found"),
    [
        (Access("app", False, "", read="^master"), ["master.failed and master.retry"]),
        (
            Access("app", False, "", read=".*", topics_read={"master.failed": "^a$"}),
            ["master.retry"],
        ),
        (
            Access(
                "app",
                False,
                "",
                read=".*",
                topics_read={"master.failed": "^a$", "master.retry": "^$"},
            ),
            [],
        ),
        (Access("app", False, ".*", read="^a@failed$"), []),
        (Access("admin", True, ".*", read=".*"), []),
    ],
)
def test_who_may_read_what_fails_in_others_queues_is_found(
    access: Access, found: list[str]
) -> None:
    findings = list(readers_of_others([access], "/", SUBSCRIPTION.exchanges))
    assert [finding.problem for finding in findings] == [
        f"this user may bind queues to {exchanges} with any routing key" for exchanges in found
    ]
    assert all("'^(QUEUE|QUEUE)$' '^(QUEUE|QUEUE)$'" in finding.remedy for finding in findings)


@pytest.mark.parametrize("role", ROLES)
def test_who_has_all_rights_lacks_none(role: Role) -> None:
    assert list(lacking("app", "/", SUBSCRIPTION, {role: []})) == []
