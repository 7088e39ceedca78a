"""The changes since a page was shown, for its script, which polls every second while the page is
visible.

A stream of events would need one of the six connections that a browser opens per host, for each
tab: a seventh tab would stay empty.
"""

import json
from collections import Counter

from starlette.responses import JSONResponse, Response

from redrive.errors import RedriveError
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest, QueuePlace


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Return the current state of a queue, or of all queues; 204 if the page has it already."""
    if request.text("queue"):
        place = request.place
        values = context.answers.answer(place, lambda: _of_queue(context, place))
    else:
        values = context.answers.answer("all", lambda: _of_all(context))
    text = json.dumps(values, sort_keys=True)
    seen = format(hash(text) & 0xFFFFFFFFFFFF, "x")
    if request.text("seen") == seen:
        return Response(status_code=204)
    return JSONResponse({**values, "seen": seen})


def _of_queue(context: ConsoleContext, place: QueuePlace) -> dict[str, object]:
    try:
        counts, look = context.looks.ask(place, context.journal_cache.book.counts_of)
    except RedriveError:  # no look is kept
        counts, look = {}, None
    standing = context.queue_states.state(place, look)
    return {
        "values": {
            "shown": "–" if look is None else f"{look.total:,}",
            "now": standing.now,
            **{f"cause-{group}": f"{count:,}" for group, count in counts.items()},
        }
    }


def _of_all(context: ConsoleContext) -> dict[str, object]:
    counts: Counter[str] = Counter()
    values: dict[str, object] = {}
    for line in context.queue_states.counts():
        try:
            found, look = context.looks.ask(line.place, context.journal_cache.book.counts_of)
        except RedriveError:
            look = None
        else:
            counts.update(found)
        depth = context.queue_states.state(line.place, look, line).depth
        values[f"failed-{line.queue}"] = "–" if depth is None else f"{depth:,}"
    values.update((f"cause-{group}", f"{count:,}") for group, count in counts.items())
    return {"values": values}
