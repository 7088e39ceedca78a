"""The page that shows users who they are, what they may do, and how to get more rights."""

from dataclasses import dataclass

from starlette.responses import Response

from redrive.errors import RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.url import BrokerURL
from redrive.topology.doctor.act_rights import (
    OperatorAct,
    grant_more_command,
    rights_needed,
    rights_wanted,
)
from redrive.topology.doctor.permissions import VERBS, Right, Verb
from redrive.web.command_lines import command
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest, QueuePlace

_MOST_QUEUES = 200


@dataclass(frozen=True, slots=True)
class QueueRights:
    """A user's rights on a queue.

    Args:
        place: the queue.
        missing: the missing rights, by act.
        command: the command that grants what is missing; empty if nothing is.
    """

    place: QueuePlace
    missing: dict[OperatorAct, list[Right]]
    command: str


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the user's rights by queue, and the commands that grant more."""
    problem = ""
    places: list[QueuePlace] = []
    try:
        places = [line.place for line in context.queue_states.counts()]
    except RedriveError as error:
        problem = str(error)
    if request.values.get("queue"):
        places = [request.place]
    lines: list[QueueRights] = []
    standing = _standing(context)
    try:
        lines = _lines(context, places[:_MOST_QUEUES], standing)
    except RedriveError as error:
        problem = str(error)
    return context.page(
        "me",
        request,
        "Me",
        {
            "user": context.permissions.rights.user,
            "operator": context.settings.operator,
            "acts": list(OperatorAct),
            "lines": lines,
            "more": max(0, len(places) - _MOST_QUEUES),
            "problem": problem,
            "standing": standing,
            "command": command("doctor", "--role", "operator"),
            "virtual_host": BrokerURL.parse(context.settings.url).virtual_host,
        },
    )


def _lines(
    context: ConsoleContext, places: list[QueuePlace], standing: dict[Verb, str] | None
) -> list[QueueRights]:
    family = context.settings.family
    wanted = {
        place: list(
            dict.fromkeys(
                right
                for act in OperatorAct
                for right in (
                    *rights_needed(act, place.name, family, literal=place.literal),
                    *rights_wanted(act, place.name, family, literal=place.literal),
                )
            )
        )
        for place in places
    }
    every = list(dict.fromkeys(right for rights in wanted.values() for right in rights))
    has = dict(zip(every, context.permissions.rights.has(every), strict=True))
    had = [right for right in every if has[right]] if standing is None else []
    found = []
    for place in places:
        missing = {
            act: [
                right
                for right in rights_needed(act, place.name, family, literal=place.literal)
                if not has[right]
            ]
            for act in OperatorAct
        }
        lacks = [right for right in wanted[place] if not has[right]]
        command = ""
        if any(missing.values()):
            url = BrokerURL.parse(context.settings.url)
            command = grant_more_command(url.username, url.virtual_host, [*had, *lacks], standing)
        found.append(QueueRights(place, missing, command))
    return found


def _standing(context: ConsoleContext) -> dict[Verb, str] | None:
    """Return the regular expressions of the user's permissions; None if the management API does not
    show them, as it does only for administrators."""
    url = BrokerURL.parse(context.settings.url)
    try:
        with ManagementAPI(url, context.settings.management_url) as management:
            listed = management.listed("vhosts/{vhost}/permissions")
    except RedriveError:
        return None
    own = next((one for one in listed if one.get("user") == url.username), None)
    return None if own is None else {verb: str(own.get(verb, "")) for verb in VERBS}
