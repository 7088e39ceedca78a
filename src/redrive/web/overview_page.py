"""The overview: what is failing in all queues."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from starlette.responses import RedirectResponse, Response

from redrive.errors import RedriveError
from redrive.failures.jobs.cause_remark import CauseState
from redrive.failures.jobs.cause_remarks import CauseStatus
from redrive.failures.jobs.job_record import State
from redrive.failures.message.cause import Cause
from redrive.failures.store.filter import Filter, OpenFilter
from redrive.failures.store.look import Look, NothingKept
from redrive.failures.store.overview import Overview, SharedGroup
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.chart import Named, by_hour
from redrive.web.command_lines import command
from redrive.web.context import ConsoleContext
from redrive.web.html import is_recent
from redrive.web.page_request import PageRequest, QueuePlace
from redrive.web.queue_states import QueueCounts, QueueState

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
        outdated: when a queue was looked at whose causes have changed since, by queue name.
        recent: failures in the last minutes, by queue name, where a look is recent enough.
    """

    overview: Overview = field(default_factory=Overview)
    standings: dict[str, QueueState] = field(default_factory=dict)
    places: dict[str, QueuePlace] = field(default_factory=dict)
    outdated: dict[str, datetime] = field(default_factory=dict)
    recent: dict[str, int] = field(default_factory=dict)


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the causes across all queues, and the queues."""
    problem = ""
    lines: list[QueueCounts] = []
    try:
        lines = context.queue_states.counts()
    except RedriveError as error:
        problem = str(error)
    now = datetime.now(UTC)
    context.permissions.ask_rights(line.place for line in lines)
    found = _found(context, lines, now)
    said = {
        id(one): context.journal_cache.book.standing_of(one.group)
        for one in found.overview.latest_first
    }
    every = _in_order(found.overview.latest_first, said)
    states = Counter(said[id(one)].state for one in every if _is_counted(one, said[id(one)]))
    word = request.text("word")
    causes = [one for one in every if _has(one, found, word.casefold())]
    unseen = [line for line in lines if line.failed and found.standings[line.queue].look is None]

    depths = [_depth(one) for one in found.standings.values()]
    failed = sum(depth for depth in depths if depth is not None)
    is_more = None in depths

    def named(shared: SharedGroup) -> Named:
        key = shared.group.key
        asks = {**found.places[shared.queue].asks, "group": getattr(key, "group_id", "")}
        return Named(getattr(key, "what", ""), request.link("/cause", asks), shared.group)

    chart = by_hour(map(named, causes), now)
    return context.page(
        "overview",
        request,
        f"{failed:,} failed, {states[CauseState.NEW]} new causes",
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
            "chart": chart,
            "series": [] if chart is None else [address for _, address in chart.series if address],
            "failed": failed,
            "is_more": is_more,
            "failing": sum(found.recent.values()) / (_NOW / timedelta(minutes=1)),
            "is_rate_known": bool(found.recent),
            "health": context.health.known,
            "jobs": [
                job
                for job in context.journal_cache.known.jobs
                if job.state is State.RUNNING and context.permissions.may_see(job)
            ][:10],
            "asked": context.waiting_for_approval(),
            "listed": context.queue_states.listed_at,
            "is_quiet": not problem and all(line.failed == 0 for line in lines) and not said,
            "command": command("failed", "groups"),
        },
        summary=f"{len(causes):,} causes in {len(lines):,} queues",
    )


def look(context: ConsoleContext, request: PageRequest) -> Response:
    """Start a look at every queue that has messages and that the user may read; the others are
    skipped."""
    lines = [line for line in context.queue_states.counts() if line.failed]
    context.permissions.ask_rights(line.place for line in lines)
    for line in lines:
        if context.permissions.may(OperatorAct.LOOK, line.place):
            context.looks.look_again(line.place)
    return RedirectResponse(request.link("/"), 303)


def _in_order(causes: Iterable[SharedGroup], said: dict[int, CauseStatus]) -> list[SharedGroup]:
    """Return the causes that are not muted: those failing again first, then new ones, and the
    latest first within a state."""
    shown = [one for one in causes if said[id(one)].state in _ORDER]
    return sorted(shown, key=lambda one: _ORDER.index(said[id(one)].state))


def _depth(standing: QueueState) -> int | None:
    """Return how many messages a queue has, as its look says if the broker has not counted them."""
    if standing.depth is None and standing.look is not None:
        return standing.look.total
    return standing.depth


def _is_counted(shared: SharedGroup, said: CauseStatus) -> bool:
    return said.state is not CauseState.NEW or is_recent(shared.group.first)


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


def _found(context: ConsoleContext, lines: list[QueueCounts], now: datetime) -> _Found:
    found = _Found()
    with OpenFilter(Filter()) as all_:
        for line in lines:
            found.places[line.queue] = line.place
            look = _causes(context, line, found, all_, now)
            found.standings[line.queue] = context.queue_states.state(line.place, look, line)
    return found


def _causes(
    context: ConsoleContext, line: QueueCounts, found: _Found, all_: OpenFilter, now: datetime
) -> Look | None:
    """Add a queue's known causes to the overview; return the look that they come from."""
    book = context.journal_cache.book
    try:
        groups, look = context.looks.ask(line.place, lambda look: book.groups_of(look, all_))
    except NothingKept:
        # What the last look found is out of date, but the queue keeps its place on the page.
        known = context.looks.last_seen.get(line.place)
        if known is not None and (line.failed != 0 or now - known[1] < _LATE):
            found.overview.take(line.queue, known[0])
            found.outdated[line.queue] = known[1]
        return None
    except RedriveError:  # the user may not read it, or the queue was deleted meanwhile
        return None
    if line.failed == 0 and (look.as_of is None or now - look.as_of > _LATE):
        return None  # it has been emptied since
    if look.as_of is not None:
        context.looks.last_seen[line.place] = (groups, look.as_of)
    found.overview.take(line.queue, groups)
    every = groups.largest_first
    if look.as_of is not None and now - look.as_of < _NOW:
        since = (now - _NOW).timestamp()
        found.recent[line.queue] = sum(group.failed_since(since) for group in every)
    return look
