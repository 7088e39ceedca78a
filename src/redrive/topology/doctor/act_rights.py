"""Know which rights on the broker each act on failed messages needs, and the command that grants
them."""

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
    """What operators do with failed messages. An edit is a requeue with changed bodies."""

    LOOK = "look"
    REQUEUE = "requeue"
    EDIT = "edit"
    DISCARD = "discard"
    DECLARE = "declare"
    PAUSE = "pause"


def rights_needed(
    act: OperatorAct, queue: str, family: ExchangeFamily, *, literal: bool
) -> list[Right]:
    """Return the rights without which an act on a queue fails."""
    source = queue if literal else failed_queue(queue)
    look = Right("read", "queue", source)
    match act:
        case OperatorAct.LOOK | OperatorAct.DISCARD:
            return [look]
        case OperatorAct.REQUEUE | OperatorAct.EDIT:
            # A message that comes back to a dead-letter queue is seen there, without any further
            # right. RabbitMQ 4.3 tells whether the main queue exists only to a user with a right on
            # it. Source: measured on 4.3.6, as for the role operator.
            needed = [look, Right("write", "exchange", DEFAULT_EXCHANGE)]
            if not literal:
                needed += [Right("write", "queue", queue), *rights_to_watch(family, queue)]
            return needed
        case OperatorAct.DECLARE:
            if literal:
                return []
            return list(least_rights("declarer", Subscription(queue, exchanges=family)))
        case OperatorAct.PAUSE:
            return [] if literal else [Right("write", "exchange", DEFAULT_EXCHANGE)]
        case _:
            assert_never(act)


def rights_wanted(
    act: OperatorAct, queue: str, family: ExchangeFamily, *, literal: bool
) -> list[Right]:
    """Return the rights that an act can use, including optional ones: to look exclusively, learn
    the queue's delivery limit, follow new failures, and write to the team's journal."""
    needed = rights_needed(act, queue, family, literal=literal)
    if act is OperatorAct.DECLARE:
        return needed
    if act is OperatorAct.PAUSE:
        if literal:
            return []
        stream = family.control
        return [*needed, *(Right(verb, "queue", stream) for verb in ("configure", "read"))]
    source = queue if literal else failed_queue(queue)
    more = [
        Right("configure", "queue", source),
        Right("configure", "queue", look_lock(queue)),
    ]
    if not literal:
        # Failures are seen as they happen. A history contains them too, but of all queues, so no
        # right to read it is requested.
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
    """Return the rights that a user needs to write notes on causes. A user who may not write to the
    team's journal does not speak for the team, even if the journal's local file would accept the
    note."""
    return [Right("write", "exchange", DEFAULT_EXCHANGE)]


def grant_more_command(
    user: str, virtual_host: str, rights: Iterable[Right], standing: Mapping[Verb, str] | None
) -> str:
    """Return the command that grants a user further rights in a virtual host. The command replaces
    all rights there, so it includes the existing ones."""
    wanted = list(rights)
    patterns = [
        _joined("" if standing is None else standing[verb], granted_pattern(wanted, verb))
        for verb in VERBS
    ]
    # A name that begins with a dash would be read as an option.
    named = ["--", user] if user.startswith("-") else [user]
    return shlex.join(["rabbitmqctl", "set_permissions", "-p", virtual_host, *named, *patterns])


def _joined(standing: str, more: str) -> str:
    """Combine two patterns into one that matches what either matches; `^$` only matches the empty
    name."""
    if more == "^$" or standing == ".*":
        return standing or more
    return more if standing in ("", "^$") else f"{standing}|{more}"
