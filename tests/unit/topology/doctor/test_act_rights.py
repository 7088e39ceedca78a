"""What an act needs of the broker's rights, and the command that grants it."""

import re
import shlex

import pytest

from redrive.topology.doctor.act_rights import (
    OperatorAct,
    grant_more_command,
    rights_needed,
    rights_to_remark,
    rights_wanted,
)
from redrive.topology.doctor.permissions import DEFAULT_EXCHANGE, Right, least_rights
from redrive.topology.model import Subscription
from redrive.topology.names import ExchangeFamily

QUEUE = "shop@orders"
FAMILY = ExchangeFamily()
LOOK = Right("read", "queue", "shop@orders@failed")


def test_who_looks_or_discards_reads_the_failed_queue_and_needs_nothing_else() -> None:
    for act in (OperatorAct.LOOK, OperatorAct.DISCARD):
        assert rights_needed(act, QUEUE, FAMILY, literal=False) == [LOOK]
        assert rights_needed(act, "dlq", FAMILY, literal=True) == [Right("read", "queue", "dlq")]


def test_a_requeue_needs_no_more_than_the_role_of_an_operator() -> None:
    least = set(least_rights("operator", Subscription(QUEUE)))
    needed = rights_needed(OperatorAct.REQUEUE, QUEUE, FAMILY, literal=False)
    assert set(needed) < least
    assert Right("write", "exchange", DEFAULT_EXCHANGE) in needed
    assert rights_needed(OperatorAct.EDIT, QUEUE, FAMILY, literal=False) == needed


def test_a_requeue_of_a_dead_letter_queue_watches_by_looking() -> None:
    needed = rights_needed(OperatorAct.REQUEUE, "dlq", FAMILY, literal=True)
    assert {right.name for right in needed} == {"dlq", DEFAULT_EXCHANGE}


def test_nobody_declares_a_dead_letter_queue_of_another() -> None:
    assert rights_needed(OperatorAct.DECLARE, "dlq", FAMILY, literal=True) == []
    declared = rights_needed(OperatorAct.DECLARE, QUEUE, FAMILY, literal=False)
    assert declared == list(least_rights("declarer", Subscription(QUEUE)))


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("act", list(OperatorAct))
def test_what_is_wanted_has_what_is_needed(act: OperatorAct, literal: bool) -> None:
    needed = rights_needed(act, QUEUE, FAMILY, literal=literal)
    wanted = rights_wanted(act, QUEUE, FAMILY, literal=literal)
    assert set(needed) <= set(wanted)
    assert len(wanted) == len(set(wanted))


def test_who_may_requeue_may_also_remark_on_causes() -> None:
    needed = rights_needed(OperatorAct.REQUEUE, QUEUE, FAMILY, literal=False)
    assert rights_to_remark() == [Right("write", "exchange", DEFAULT_EXCHANGE)]
    assert set(rights_to_remark()) <= set(needed)


@pytest.mark.parametrize(
    "queue", ["shop.orders", "a|b", "(x", "$", "o'brien", "a b", "-q", "ü*", "`id`", "\\d"]
)
def test_a_command_grants_exactly_the_queue_that_is_meant(queue: str) -> None:
    right = Right("read", "queue", queue)
    words = shlex.split(grant_more_command("-o'perator", "v host", [right], None))
    assert words[:6] == ["rabbitmqctl", "set_permissions", "-p", "v host", "--", "-o'perator"]
    configure, write, read = words[6:]
    assert (configure, write) == ("^$", "^$")
    assert re.search(read, queue)
    for other in (f"{queue}x", f"x{queue}", queue.replace(".", "x") + "y", ""):
        assert not re.search(read, other)


@pytest.mark.parametrize(
    ("standing", "read"),
    [
        ("^mine$", "^mine$|^(q)$"),
        (".*", ".*"),
        ("", "^(q)$"),
        ("^$", "^(q)$"),
    ],
)
def test_what_a_user_has_stays(standing: str, read: str) -> None:
    had = {"configure": "^c$", "write": "", "read": standing}
    words = shlex.split(
        grant_more_command("u", "/", [Right("read", "queue", "q")], had)  # type: ignore[arg-type]
    )
    assert words[-3:] == ["^c$", "^$", read]
