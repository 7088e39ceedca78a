"""The page of a queue: what its messages have failed for."""

from starlette.responses import JSONResponse, RedirectResponse, Response

from redrive.failures.columns import COLUMNS
from redrive.failures.filter import Filter, OpenFilter
from redrive.failures.groups import Groups
from redrive.failures.look import Look, NothingKept
from redrive.web.asked import Asked, QueuePlace
from redrive.web.command_words import groups_command
from redrive.web.desk import Desk, Freshness, local_path

_MOST = 200


def show(desk: Desk, asked: Asked) -> Response:
    """The causes of a queue, of those of its messages that a filter means."""
    place = asked.place
    filter_ = Filter(asked.text("where") or None)
    groups, look = _groups(desk, place, filter_)
    shown = [] if groups is None else groups.largest_first
    return desk.page(
        "causes",
        asked,
        place.name,
        {
            "place": place,
            "standing": Freshness.of(desk, place, look),
            "where": asked.text("where"),
            "groups": shown[:_MOST],
            "more": max(0, len(shown) - _MOST),
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
    desk: Desk, place: QueuePlace, filter_: Filter
) -> tuple[Groups, Look] | tuple[None, None]:
    with OpenFilter(filter_) as open_filter:
        try:
            return desk.recollection.ask(place, lambda look: look.groups(filter_=open_filter))
        except NothingKept:
            return None, None
