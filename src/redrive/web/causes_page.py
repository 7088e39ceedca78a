"""The page of a queue: the causes of its failed messages."""

from collections import Counter
from collections.abc import Iterable

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.failures.jobs.cause_remark import CauseState
from redrive.failures.jobs.cause_remarks import CauseRemarks, CauseStatus
from redrive.failures.message.columns import COLUMNS
from redrive.failures.message.groups import Groups
from redrive.failures.store.filter import Filter
from redrive.failures.store.kept_messages import CauseHistory
from redrive.failures.store.look import Look, NothingKept
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import groups_command
from redrive.web.context import ConsoleContext, local_path
from redrive.web.filter_bar import chips_of, offer_of, where_of
from redrive.web.look_questions import CausesOf, TripsOf
from redrive.web.page_request import PageRequest, QueuePlace

_MOST = 200
_MOST_HOSTS = 3


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the causes of the queue's messages that match the filter."""
    place, where = request.place, where_of(request)
    filter_, book = Filter(where or None), context.journal_cache.book
    groups, look = _groups(context, place, filter_, book)
    every = [] if groups is None else groups.largest_first
    standings = {id(group): book.standing_of(group) for group in every}
    wanted = request.text("state")
    shown = [group for group in every if _is_shown(standings[id(group)], wanted)]
    return context.page(
        "causes",
        request,
        f"{0 if groups is None else groups.total:,} failed in {place.name}",
        {
            "place": place,
            "control": context.queue_states.control_of(place),
            "may_pause": not place.literal and context.permissions.may(OperatorAct.PAUSE, place),
            "standing": context.queue_states.state(place, look),
            "where": where,
            "chips": chips_of(where),
            "offer": offer_of(where, every),
            "groups": [(group, standings[id(group)]) for group in shown[:_MOST]],
            "trips": _trips(context, place, filter_) if shown else {},
            "most_hosts": _MOST_HOSTS,
            "more": max(0, len(shown) - _MOST),
            "muted": sum(one.state is CauseState.MUTED for one in standings.values()),
            "state": wanted,
            "states": _states_of(standings.values()),
            "causes": len(every),
            "total": 0 if groups is None else groups.total,
            "columns": COLUMNS,
            "command": groups_command(place, filter_),
        },
    )


def look(context: ConsoleContext, request: PageRequest) -> Response:
    """Start a look at the queue, and return to the page that requested it."""
    context.looks.look_again(request.place)
    back = local_path(request.text("back"))
    return RedirectResponse(f"{request.root}{back}", 303)


def look_progress(context: ConsoleContext, request: PageRequest) -> Response:
    """Return the progress of the look at a queue, for the page's script."""
    under_way = context.looks.look_under_way(request.place)
    if under_way is None:
        return JSONResponse({"ended": True})
    progress = under_way.progress
    return JSONResponse(
        {
            "ended": under_way.has_ended,
            "values": {
                "looked_at": f"{progress.looked_at:,}",
                "total": f"{progress.total:,}",
                "stage": progress.stage.value,
            },
        }
    )


def _groups(
    context: ConsoleContext, place: QueuePlace, filter_: Filter, book: CauseRemarks
) -> tuple[Groups, Look] | tuple[None, None]:
    try:
        return context.looks.answer(place, CausesOf(filter_, book))
    except NothingKept:
        return None, None


def _is_shown(standing: CauseStatus, wanted: str) -> bool:
    """Return whether a cause is shown; muted ones only on request."""
    return standing.state == wanted if wanted else standing.state is not CauseState.MUTED


def _states_of(standings: Iterable[CauseStatus]) -> list[tuple[str, int]]:
    """Return the states that occur, with the number of causes in each."""
    counts = Counter(one.state for one in standings)
    return [(state.value, counts[state]) for state in CauseState if counts[state]]


def _trips(context: ConsoleContext, place: QueuePlace, filter_: Filter) -> dict[str, CauseHistory]:
    """Return the history of each cause's messages, by group id."""
    trips, _ = context.looks.answer(place, TripsOf(filter_))
    return trips
