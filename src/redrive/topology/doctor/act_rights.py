"""What each act on failed messages needs of the broker's rights, and the command that grants it."""

import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import assert_never

from redrive.topology.doctor.permissions import (
    DEFAULT_EXCHANGE,
    VERBS,
    Right,
    Verb,
    granted_pattern,
    least_rights,
    rights_to_watch,
)
from redrive.topology.model import Subscription
from redrive.topology.names import JOURNAL, ExchangeFamily, failed_queue, look_lock


class OperatorAct(StrEnum):
    """What people do with failed messages. An edit is a requeue of other bodies."""

    LOOK = "look"
    REQUEUE = "requeue"
    EDIT = "edit"
    DISCARD = "discard"
    DECLARE = "declare"


def rights_needed(
    act: OperatorAct, queue: str, family: ExchangeFamily, *, literal: bool
) -> list[Right]:
    """The rights without which an act on a queue fails."""
    source = queue if literal else failed_queue(queue)
    look = Right("read", "queue", source)
    match act:
        case OperatorAct.LOOK | OperatorAct.DISCARD:
            return [look]
        case OperatorAct.REQUEUE | OperatorAct.EDIT:
            # What comes back to a dead-letter queue is seen there, and needs no right besides.
            # RabbitMQ 4.3 tells whether the main queue is there only to whom has a right on it.
            # Source: measured on 4.3.6, as for the role operator.
            needed = [look, Right("write", "exchange", DEFAULT_EXCHANGE)]
            if not literal:
                needed += [Right("write", "queue", queue), *rights_to_watch(family, queue)]
            return needed
        case OperatorAct.DECLARE:
            if literal:
                return []
            return list(least_rights("declarer", Subscription(queue, exchanges=family)))
        case _:
            assert_never(act)


def rights_wanted(
    act: OperatorAct, queue: str, family: ExchangeFamily, *, literal: bool
) -> list[Right]:
    """The rights with which an act on a queue also does what it can do without: it looks alone,
    knows the queue's delivery limit, follows what fails, and stands in the team's journal."""
    needed = rights_needed(act, queue, family, literal=literal)
    if act is OperatorAct.DECLARE:
        return needed
    source = queue if literal else failed_queue(queue)
    more = [
        Right("configure", "queue", source),
        Right("configure", "queue", look_lock(queue)),
    ]
    if not literal:
        # What fails is seen as it happens. A history has it, too, of all queues: who may read that
        # is not asked for it.
        more += rights_to_watch(family, queue)
    if act is not OperatorAct.LOOK:
        more += [
            Right("configure", "queue", JOURNAL),
            Right("read", "queue", JOURNAL),
            Right("write", "exchange", DEFAULT_EXCHANGE),
        ]
    if act in (OperatorAct.REQUEUE, OperatorAct.EDIT) and not literal:
        more += least_rights("operator", Subscription(queue, exchanges=family))
    return list(dict.fromkeys([*needed, *more]))


def rights_to_remark() -> list[Right]:
    """The rights without which a user says nothing of causes: whoever may not write into the team's
    journal does not speak for the team, though the local file of the journal would take it."""
    return [Right("write", "exchange", DEFAULT_EXCHANGE)]


def grant_more_command(
    user: str, virtual_host: str, rights: Iterable[Right], standing: Mapping[Verb, str] | None
) -> str:
    """The command that gives a user further rights in a virtual host. It sets all rights there
    anew, so what the user has is in it."""
    wanted = list(rights)
    patterns = [
        _joined("" if standing is None else standing[verb], granted_pattern(wanted, verb))
        for verb in VERBS
    ]
    # A name that begins with a dash would be taken for an option.
    named = ["--", user] if user.startswith("-") else [user]
    return shlex.join(["rabbitmqctl", "set_permissions", "-p", virtual_host, *named, *patterns])


def _joined(standing: str, more: str) -> str:
    """A regular expression that means what either means; `^$` means nothing but the empty name."""
    if more == "^$" or standing == ".*":
        return standing or more
    return more if standing in ("", "^$") else f"{standing}|{more}"
