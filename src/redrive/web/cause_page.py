"""The page of a cause: why its messages are one, and which they are."""

from starlette.responses import Response

from redrive.failures.cause import Cause, parts_of
from redrive.failures.failed_message import FailedMessage
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Group
from redrive.failures.look import FirstFew, Look
from redrive.failures.message_lookup import NothingFound
from redrive.web.asked import Asked, QueuePlace
from redrive.web.command_words import list_command
from redrive.web.desk import Desk, Freshness

_A_PAGE = 50
_MOST_PAGES = 200


def show(desk: Desk, asked: Asked) -> Response:
    """A cause of a queue's messages, and these, page by page."""
    place, filter_ = asked.place, asked.filter
    number = asked.number("page", 1, least=1, most=_MOST_PAGES)
    group, look = _group(desk, place, filter_)
    example = _example(desk, place, group)
    found = _messages(desk, place, filter_, number * _A_PAGE)
    shown = found.messages[(number - 1) * _A_PAGE :]
    return desk.page(
        "cause",
        asked,
        group.key.what if isinstance(group.key, Cause) else "A cause",
        {
            "place": place,
            "standing": Freshness.of(desk, place, look),
            "group": group,
            "cause": group.key,
            "example": example,
            "parts": parts_of(example.traceback or ""),
            "messages": shown,
            "number": number,
            "pages": min(_MOST_PAGES, -(-found.matching // _A_PAGE)),
            "matching": found.matching,
            "where": asked.text("where"),
            "command": list_command(place, filter_),
        },
    )


def _group(desk: Desk, place: QueuePlace, filter_: Filter) -> tuple[Group, Look]:
    """The group that is meant.

    Raises:
        NothingFound: it has no message of those that the filter means.
    """
    with OpenFilter(filter_) as open_filter:
        groups, look = desk.recollection.ask(place, lambda look: look.groups(filter_=open_filter))
    largest = groups.largest_first
    if not largest:
        raise NothingFound(
            f"no message of {place.name!r} is of this cause any more\n"
            "The page of the queue shows those that are there."
        )
    return largest[0], look


def _example(desk: Desk, place: QueuePlace, group: Group) -> FailedMessage:
    message, _ = desk.recollection.ask(place, lambda look: look.named(group.first_id))
    return message


def _messages(desk: Desk, place: QueuePlace, filter_: Filter, most: int) -> FirstFew:
    with OpenFilter(filter_) as open_filter:
        found, _ = desk.recollection.ask(place, lambda look: look.first(most, open_filter))
    return found
