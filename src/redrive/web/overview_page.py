"""The page that says what is failing, of all queues."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import RedriveError
from redrive.failures.look import Look
from redrive.failures.overview import Overview
from redrive.web.asked import Asked, QueuePlace
from redrive.web.board import BoardLine
from redrive.web.desk import Desk, Freshness

_MOST_CAUSES = 100
_LATE = timedelta(seconds=30)
"""For how long a look is believed before the management API that counts nothing: it counts each
queue every five seconds, and later under load."""


@dataclass(slots=True)
class _Found:
    """What is known of all queues.

    Args:
        overview: their causes.
        standings: how much is known of which, by the queue's name.
        places: how pages call each queue.
    """

    overview: Overview = field(default_factory=Overview)
    standings: dict[str, Freshness] = field(default_factory=dict)
    places: dict[str, QueuePlace] = field(default_factory=dict)


def show(desk: Desk, asked: Asked) -> Response:
    """The overview: causes over all queues, and the queues."""
    problem = ""
    lines: list[BoardLine] = []
    try:
        lines = desk.board.lines()
    except RedriveError as error:
        problem = str(error)
    found = _found(desk, lines)
    causes = found.overview.latest_first
    unseen = [line for line in lines if line.failed and found.standings[line.queue].look is None]
    return desk.page(
        "overview",
        asked,
        "Overview",
        {
            "lines": lines,
            "problem": problem,
            "found": found,
            "causes": causes[:_MOST_CAUSES],
            "more": max(0, len(causes) - _MOST_CAUSES),
            "unseen": unseen,
            "is_quiet": not problem and all(line.failed == 0 for line in lines) and not causes,
        },
    )


def look(desk: Desk, asked: Asked) -> Response:
    """Looks at all queues that have messages."""
    for line in desk.board.lines():
        if line.failed:
            desk.recollection.look_again(line.place)
    return RedirectResponse(asked.link("/"), 303)


def _found(desk: Desk, lines: list[BoardLine]) -> _Found:
    found = _Found()
    for line in lines:
        found.places[line.queue] = line.place
        look = _causes(desk, line, found.overview)
        found.standings[line.queue] = Freshness.on(desk, line.place, look, line)
    return found


def _causes(desk: Desk, line: BoardLine, overview: Overview) -> Look | None:
    """Takes the causes that are known of a queue; returns the look that told them."""
    try:
        groups, look = desk.recollection.ask(line.place, lambda look: look.groups())
    except RedriveError:  # nothing is kept, or the queue went meanwhile
        return None
    if line.failed == 0 and (look.as_of is None or datetime.now(UTC) - look.as_of > _LATE):
        return None  # it was emptied since
    overview.take(line.queue, groups)
    return look
