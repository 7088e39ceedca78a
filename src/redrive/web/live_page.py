"""What has changed since a page was shown, for its script: it asks every second, while people look.

A stream of events would take one of the six connections that a browser has for a host, for each
tab: a seventh tab would show nothing.
"""

import json
from collections import Counter

from starlette.responses import JSONResponse, Response

from redrive.errors import RedriveError
from redrive.web.asked import Asked, QueuePlace
from redrive.web.desk import Desk, Freshness


def show(desk: Desk, asked: Asked) -> Response:
    """What is known now of a queue, or of all; 204 where that is what the page has seen."""
    if asked.text("queue"):
        place = asked.place
        values = desk.answers.answer(place, lambda: _of_queue(desk, place))
    else:
        values = desk.answers.answer("all", lambda: _of_all(desk))
    text = json.dumps(values, sort_keys=True)
    seen = format(hash(text) & 0xFFFFFFFFFFFF, "x")
    if asked.text("seen") == seen:
        return Response(status_code=204)
    return JSONResponse({**values, "seen": seen})


def _of_queue(desk: Desk, place: QueuePlace) -> dict[str, object]:
    try:
        counts, look = desk.recollection.ask(place, desk.memory.book.counts_of)
    except RedriveError:  # nothing is kept of it
        counts, look = {}, None
    # The management API may take long: it is asked where nothing else tells how many there are.
    line = None if desk.live.knows_depth(place) else desk.board.line(place)
    standing = Freshness.on(desk, place, look, line)
    return {
        "values": {
            "shown": "–" if look is None else f"{look.total:,}",
            "now": standing.now,
            **{f"cause-{group}": f"{count:,}" for group, count in counts.items()},
        }
    }


def _of_all(desk: Desk) -> dict[str, object]:
    counts: Counter[str] = Counter()
    values: dict[str, object] = {}
    for line in desk.board.lines():
        try:
            found, look = desk.recollection.ask(line.place, desk.memory.book.counts_of)
        except RedriveError:
            look = None
        else:
            counts.update(found)
        live = Freshness.on(desk, line.place, look, line).live
        values[f"failed-{line.queue}"] = "?" if live.depth is None else f"{live.depth:,}"
    values.update((f"cause-{group}", f"{count:,}") for group, count in counts.items())
    return {"values": values}
