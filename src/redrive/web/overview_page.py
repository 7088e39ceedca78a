"""The overview: what is failing in all queues."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import RedriveError
from redrive.failures.cause import Cause
from redrive.failures.cause_remark import CauseState
from redrive.failures.cause_remarks import CauseStatus
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.job_record import State
from redrive.failures.look import Look
from redrive.failures.overview import Overview, SharedGroup
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import all_groups_command
from redrive.web.context import ConsoleContext, LookStatus
from redrive.web.histogram import hours_of
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.queue_states import QueueState

_MOST_CAUSES = 100
_LATE = timedelta(seconds=30)
"""How long a look takes precedence over a management API that reports an empty queue: the API
counts each queue every five seconds, and less often under load."""
_NOW = timedelta(minutes=5)
"""Messages that failed within this time count as failing now."""
_ORDER = (CauseState.FAILING_AGAIN, CauseState.NEW, CauseState.KNOWN, CauseState.FIXED)


@dataclass(slots=True)
class _Found:
    """What is known about all queues.

    Args:
        overview: their causes.
        standings: how current the data is, by queue name.
        places: the place of each queue, by queue name.
        hours: failures in each of the last 24 hours, by queue name.
        recent: failures in the last minutes, by queue name, where a look is recent enough.
    """

    overview: Overview = field(default_factory=Overview)
    standings: dict[str, LookStatus] = field(default_factory=dict)
    places: dict[str, QueuePlace] = field(default_factory=dict)
    hours: dict[str, list[int]] = field(default_factory=dict)
    recent: dict[str, int] = field(default_factory=dict)


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the causes across all queues, and the queues."""
    problem = ""
    lines: list[QueueState] = []
    try:
        lines = context.queue_states.lines()
    except RedriveError as error:
        problem = str(error)
    now = datetime.now(UTC)
    context.ask_rights(line.place for line in lines)
    found = _found(context, lines, now)
    said = {
        id(one): context.journal_cache.book.standing_of(one.group)
        for one in found.overview.latest_first
    }
    every = _in_order(found.overview.latest_first, said)
    states = Counter(said[id(one)].state for one in every)
    word = request.text("word")
    causes = [one for one in every if _has(one, found, word.casefold())]
    unseen = [line for line in lines if line.failed and found.standings[line.queue].look is None]
    return context.page(
        "overview",
        request,
        "Overview",
        {
            "controls": context.queue_states.controls(),
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
            "health": context.health.known,
            "jobs": [
                job
                for job in context.journal_cache.known.jobs
                if job.state is State.RUNNING and context.may_see(job)
            ][:10],
            "is_quiet": not problem and all(line.failed == 0 for line in lines) and not said,
            "command": all_groups_command(),
        },
    )


def look(context: ConsoleContext, request: PageRequest) -> Response:
    """Start a look at every queue that has messages and that the user may read; the others are
    skipped."""
    lines = [line for line in context.queue_states.lines() if line.failed]
    context.ask_rights(line.place for line in lines)
    for line in lines:
        if context.may(OperatorAct.LOOK, line.place):
            context.looks.look_again(line.place)
    return RedirectResponse(request.link("/"), 303)


def _in_order(causes: Iterable[SharedGroup], said: dict[int, CauseStatus]) -> list[SharedGroup]:
    """Return the causes that are not muted: those failing again first, then new ones, and the
    latest first within a state."""
    shown = [one for one in causes if said[id(one)].state in _ORDER]
    return sorted(shown, key=lambda one: _ORDER.index(said[id(one)].state))


def _has(shared: SharedGroup, found: _Found, word: str) -> bool:
    """Return whether the visible texts of a cause, its queues included, contain a word."""
    key = shared.group.key
    texts = [found.places[queue].name for queue in shared.queues]
    texts += [key.what, key.frame] if isinstance(key, Cause) else []
    return not word or any(word in text.casefold() for text in texts)


def _rate(shared: SharedGroup, now: datetime) -> float:
    """Return a cause's recent failures per minute."""
    since = (now - _NOW).timestamp()
    return shared.group.failed_since(since) / (_NOW / timedelta(minutes=1))


def _found(context: ConsoleContext, lines: list[QueueState], now: datetime) -> _Found:
    found = _Found()
    with OpenFilter(Filter()) as all_:
        for line in lines:
            found.places[line.queue] = line.place
            look = _causes(context, line, found, all_, now)
            found.standings[line.queue] = LookStatus.on(context, line.place, look, line)
    return found


def _causes(
    context: ConsoleContext, line: QueueState, found: _Found, all_: OpenFilter, now: datetime
) -> Look | None:
    """Add a queue's known causes to the overview; return the look that they come from."""
    book = context.journal_cache.book
    try:
        groups, look = context.looks.ask(line.place, lambda look: book.groups_of(look, all_))
    except RedriveError:  # no look is kept, or the queue was deleted meanwhile
        return None
    if line.failed == 0 and (look.as_of is None or now - look.as_of > _LATE):
        return None  # it has been emptied since
    found.overview.take(line.queue, groups)
    every = groups.largest_first
    found.hours[line.queue] = hours_of(every, now)
    if look.as_of is not None and now - look.as_of < _NOW:
        since = (now - _NOW).timestamp()
        found.recent[line.queue] = sum(group.failed_since(since) for group in every)
    return look
