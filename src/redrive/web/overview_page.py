"""The page that says what is failing, of all queues."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import RedriveError
from redrive.failures.cause import Cause
from redrive.failures.cause_book import CauseStanding
from redrive.failures.cause_remark import CauseState
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.job_record import State
from redrive.failures.look import Look
from redrive.failures.overview import Overview, SharedGroup
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.asked import Asked, QueuePlace
from redrive.web.board import BoardLine
from redrive.web.command_words import all_groups_command
from redrive.web.desk import Desk, Freshness
from redrive.web.histogram import hours_of

_MOST_CAUSES = 100
_LATE = timedelta(seconds=30)
"""For how long a look is believed before the management API that counts nothing: it counts each
queue every five seconds, and later under load."""
_NOW = timedelta(minutes=5)
"""What failed in these is failing now."""
_ORDER = (CauseState.FAILING_AGAIN, CauseState.NEW, CauseState.KNOWN, CauseState.FIXED)


@dataclass(slots=True)
class _Found:
    """What is known of all queues.

    Args:
        overview: their causes.
        standings: how much is known of which, by the queue's name.
        places: how pages call each queue.
        hours: how many have failed in each of the last 24 hours, by the queue's name.
        recent: how many have failed in the last minutes, where a look is young enough to say it.
    """

    overview: Overview = field(default_factory=Overview)
    standings: dict[str, Freshness] = field(default_factory=dict)
    places: dict[str, QueuePlace] = field(default_factory=dict)
    hours: dict[str, list[int]] = field(default_factory=dict)
    recent: dict[str, int] = field(default_factory=dict)


def show(desk: Desk, asked: Asked) -> Response:
    """The overview: causes over all queues, and the queues."""
    problem = ""
    lines: list[BoardLine] = []
    try:
        lines = desk.board.lines()
    except RedriveError as error:
        problem = str(error)
    now = datetime.now(UTC)
    desk.ask_rights(line.place for line in lines)
    found = _found(desk, lines, now)
    said = {id(one): desk.memory.book.standing_of(one.group) for one in found.overview.latest_first}
    every = _in_order(found.overview.latest_first, said)
    states = Counter(said[id(one)].state for one in every)
    word = asked.text("word")
    causes = [one for one in every if _has(one, found, word.casefold())]
    unseen = [line for line in lines if line.failed and found.standings[line.queue].look is None]
    return desk.page(
        "overview",
        asked,
        "Overview",
        {
            "lines": [line for line in lines if word.casefold() in line.place.name.casefold()],
            "has_queues": bool(lines),
            "word": word,
            "new": states[CauseState.NEW],
            "failing_again": states[CauseState.FAILING_AGAIN],
            "problem": problem,
            "found": found,
            "causes": [(one, said[id(one)], _rate(one, now)) for one in causes[:_MOST_CAUSES]],
            "more": max(0, len(causes) - _MOST_CAUSES),
            "muted": len(said) - len(every),
            "unseen": unseen,
            "failed": sum(one.live.depth or 0 for one in found.standings.values()),
            "failing": sum(found.recent.values()) / (_NOW / timedelta(minutes=1)),
            "is_rate_known": bool(found.recent),
            "health": desk.health.known,
            "jobs": [
                job
                for job in desk.memory.known.jobs
                if job.state is State.RUNNING and desk.may_see(job)
            ][:10],
            "is_quiet": not problem and all(line.failed == 0 for line in lines) and not said,
            "command": all_groups_command(),
        },
    )


def look(desk: Desk, asked: Asked) -> Response:
    """Looks at all queues that have messages and that the user may look at: what one may not must
    not keep the others from being looked at."""
    lines = [line for line in desk.board.lines() if line.failed]
    desk.ask_rights(line.place for line in lines)
    for line in lines:
        if desk.may(OperatorAct.LOOK, line.place):
            desk.recollection.look_again(line.place)
    return RedirectResponse(asked.link("/"), 303)


def _in_order(causes: Iterable[SharedGroup], said: dict[int, CauseStanding]) -> list[SharedGroup]:
    """The causes that are not muted: first those that are failing again, then new ones, and the
    latest first among those of one state."""
    shown = [one for one in causes if said[id(one)].state in _ORDER]
    return sorted(shown, key=lambda one: _ORDER.index(said[id(one)].state))


def _has(shared: SharedGroup, found: _Found, word: str) -> bool:
    """Whether a word stands in what people read of a cause, its queues included."""
    key = shared.group.key
    texts = [found.places[queue].name for queue in shared.queues]
    texts += [key.what, key.frame] if isinstance(key, Cause) else []
    return not word or any(word in text.casefold() for text in texts)


def _rate(shared: SharedGroup, now: datetime) -> float:
    """How many have failed a minute for a cause in the last minutes."""
    since = (now - _NOW).timestamp()
    return shared.group.failed_since(since) / (_NOW / timedelta(minutes=1))


def _found(desk: Desk, lines: list[BoardLine], now: datetime) -> _Found:
    found = _Found()
    with OpenFilter(Filter()) as all_:
        for line in lines:
            found.places[line.queue] = line.place
            look = _causes(desk, line, found, all_, now)
            found.standings[line.queue] = Freshness.on(desk, line.place, look, line)
    return found


def _causes(
    desk: Desk, line: BoardLine, found: _Found, all_: OpenFilter, now: datetime
) -> Look | None:
    """Takes the causes that are known of a queue; returns the look that told them."""
    book = desk.memory.book
    try:
        groups, look = desk.recollection.ask(line.place, lambda look: book.groups_of(look, all_))
    except RedriveError:  # nothing is kept, or the queue went meanwhile
        return None
    if line.failed == 0 and (look.as_of is None or now - look.as_of > _LATE):
        return None  # it was emptied since
    found.overview.take(line.queue, groups)
    every = groups.largest_first
    found.hours[line.queue] = hours_of(every, now)
    if look.as_of is not None and now - look.as_of < _NOW:
        since = (now - _NOW).timestamp()
        found.recent[line.queue] = sum(group.failed_since(since) for group in every)
    return look
