"""The page of a queue: what its messages have failed for."""

from collections import Counter
from collections.abc import Iterable

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.failures.cause_book import CauseBook, CauseStanding
from redrive.failures.cause_remark import CauseState
from redrive.failures.columns import COLUMNS
from redrive.failures.filter import Filter
from redrive.failures.groups import Groups
from redrive.failures.kept_messages import CauseTrip
from redrive.failures.look import Look, NothingKept
from redrive.web.asked import Asked, QueuePlace
from redrive.web.command_words import groups_command
from redrive.web.desk import Desk, Freshness, local_path
from redrive.web.filter_bar import chips_of, offer_of, where_of
from redrive.web.look_questions import CausesOf, TripsOf

_MOST = 200
_MOST_HOSTS = 3


def show(desk: Desk, asked: Asked) -> Response:
    """The causes of a queue, of those of its messages that a filter means."""
    place, where = asked.place, where_of(asked)
    filter_, book = Filter(where or None), desk.memory.book
    groups, look = _groups(desk, place, filter_, book)
    every = [] if groups is None else groups.largest_first
    standings = {id(group): book.standing_of(group) for group in every}
    wanted = asked.text("state")
    shown = [group for group in every if _is_shown(standings[id(group)], wanted)]
    return desk.page(
        "causes",
        asked,
        place.name,
        {
            "place": place,
            "standing": Freshness.of(desk, place, look),
            "where": where,
            "chips": chips_of(where),
            "offer": offer_of(where, every),
            "groups": [(group, standings[id(group)]) for group in shown[:_MOST]],
            "trips": _trips(desk, place, filter_) if shown else {},
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


def look(desk: Desk, asked: Asked) -> Response:
    """Looks at the queue, and shows the page that this was asked on."""
    desk.recollection.look_again(asked.place)
    back = local_path(asked.text("back"))
    return RedirectResponse(f"{asked.root}{back}", 303)


def look_progress(desk: Desk, asked: Asked) -> Response:
    """How far the look at a queue is, for the script of a page."""
    under_way = desk.recollection.look_under_way(asked.place)
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
    desk: Desk, place: QueuePlace, filter_: Filter, book: CauseBook
) -> tuple[Groups, Look] | tuple[None, None]:
    try:
        return desk.recollection.answer(place, CausesOf(filter_, book))
    except NothingKept:
        return None, None


def _is_shown(standing: CauseStanding, wanted: str) -> bool:
    """Whether a cause is shown: one that is muted only where that is asked for."""
    return standing.state == wanted if wanted else standing.state is not CauseState.MUTED


def _states_of(standings: Iterable[CauseStanding]) -> list[tuple[str, int]]:
    """The states that there are, and how many causes are in each."""
    counts = Counter(one.state for one in standings)
    return [(state.value, counts[state]) for state in CauseState if counts[state]]


def _trips(desk: Desk, place: QueuePlace, filter_: Filter) -> dict[str, CauseTrip]:
    """What the messages of each cause have behind them, by its group id."""
    trips, _ = desk.recollection.answer(place, TripsOf(filter_))
    return trips
