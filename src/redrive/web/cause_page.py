"""The page of a cause: why its messages are grouped, their common values, and the messages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from starlette.responses import Response

from redrive.errors import RedriveError
from redrive.failures.jobs.cause_remark import CauseState
from redrive.failures.jobs.cause_remarks import CauseRemarks, CauseStatus
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.message.cause_example import own_code, parts_of_message, trace_of
from redrive.failures.message.columns import COLUMNS
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.groups import Group
from redrive.failures.message.readable_values import body_of
from redrive.failures.store.facet import Facet, FacetValue, offered
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import Look, NothingFound
from redrive.failures.wording import causes_of
from redrive.number_text import moment_in_words
from redrive.web.chart import over_time
from redrive.web.command_lines import command, list_command, say_command
from redrive.web.context import ConsoleContext
from redrive.web.filter_bar import chips_of, offer_of, where_of, with_term
from redrive.web.html import cut
from redrive.web.look_questions import CausesOf, FacetOf, MessagesOf
from redrive.web.message_page import kind_of
from redrive.web.page_request import PageRequest, QueuePlace


def jobs_of(records: Iterable[JobRecord], group_ids: set[str]) -> Iterator[JobRecord]:
    """Yield the jobs whose plan or order names one of these groups."""
    return (record for record in records if _groups_in(record) & group_ids)


def _groups_in(record: JobRecord) -> set[str]:
    """Return the group ids that a job's plan or order names in full."""
    found: set[str] = set()
    causes = record.plan.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, Mapping):
            found.add(str(cause.get("group_id")))
    selection = record.order.get("selection")
    groups = selection.get("groups") if isinstance(selection, Mapping) else None
    found.update(map(str, groups if isinstance(groups, list) else ()))
    return found


_A_PAGE = 50
_MOST_PAGES = 200
_MOST_JOBS = 10
_MOST_QUEUES = 20
_MOST, _DEEPEST, _LONGEST_SHAPE = 20, 3, 500
"""How much of a body's shape is shown: fields of an object, levels, characters."""
_ALWAYS = ("host", "routing_key")


@dataclass(frozen=True, slots=True)
class ShownFacet:
    """A facet as a page shows it.

    Args:
        name: the column, header or path that is counted.
        values: the most frequent values, each with the current filter narrowed to it.
        more: how many more values there are.
        problem: why it can't be counted; empty otherwise.
    """

    name: str
    values: list[tuple[FacetValue, str]]
    more: int = 0
    problem: str = ""


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show a cause and a page of its messages."""
    place, where = request.place, where_of(request)
    filter_, book = context.filter_of(request), context.journal_cache.book
    number = request.number("page", 1, least=1, most=_MOST_PAGES)
    group, matching, look = _group(context, place, filter_, book)
    messages, _ = context.looks.answer(place, MessagesOf(filter_, (number - 1) * _A_PAGE, _A_PAGE))
    facets = _facets(context, request, filter_, where)
    cause = group.key if isinstance(group.key, Cause) else Cause("", "", "")
    example = _example(context, place, group)
    parts = trace_of(example.traceback or "", cause_of(example))
    here = {**place.asks, "group": request.text("group"), "by": request.text("by")}

    def between(begin: datetime, end: datetime) -> str:
        span = f"failed_at >= {_time(begin)} AND failed_at < {_time(end)}"
        return request.link("/cause", {**here, "where": with_term(where, f"({span})")})

    return context.page(
        "cause",
        request,
        f"{matching:,} × {cause.what}",
        {
            "place": place,
            "here": here,
            "standing": context.queue_states.state(place, look),
            "group": group,
            "cause": cause,
            "said": book.standing_of(group),
            "remarks": book.about(cause.group_id),
            "example": example,
            "words": parts_of_message(example.error_message or ""),
            "parts": parts,
            "code": own_code(parts),
            "shape": "" if context.settings.hide_bodies else shape_of(example),
            "chart": over_time(group, between),
            "facets": facets,
            "offered": [name for name in offered(example) if not _reads_body(context, name)],
            "messages": messages,
            "number": number,
            "pages": min(_MOST_PAGES, -(-matching // _A_PAGE)),
            "matching": matching,
            "where": where,
            "chips": chips_of(where),
            "offer": offer_of(where, [group]),
            "jobs": _jobs(context, book, cause),
            "elsewhere": _elsewhere(context, request, cause),
            "others": _others(context, place, cause) if context.settings.may_note else [],
            "trackers": [
                (tracker.host, tracker.address(cause, place.name))
                for tracker in context.settings.trackers
            ],
            "columns": COLUMNS,
            "say": _say_command(cause, book.standing_of(group)),
            "merge": command("causes", "merge", cause.group_id, "GROUP"),
            "undo": command("causes", "undo", "REMARK"),
            "command": list_command(place, Filter(where or None, groups=request.filter.groups)),
        },
        summary=f"{place.name}, {cause.frame}, last {moment_in_words(group.last)}",
    )


def shape_of(message: FailedMessage) -> str:
    """Return which fields a JSON body has, with their types; empty for any other body."""
    value, encoding = body_of(message) if message.has_body else (None, "")
    return cut(_shape(value, 0), _LONGEST_SHAPE) if encoding == "json" else ""


def _shape(value: object, depth: int) -> str:
    if isinstance(value, Mapping) and depth < _DEEPEST:
        fields = [f"{name}: {_shape(one, depth + 1)}" for name, one in islice(value.items(), _MOST)]
        return f"{{{', '.join(fields)}{', …' if len(value) > _MOST else ''}}}"
    if isinstance(value, list) and value and depth < _DEEPEST:
        return f"[{_shape(value[0], depth + 1)}{', …' if len(value) > 1 else ''}]"
    kind = kind_of(value)
    return "true, false or null" if kind == "word" else kind


def _say_command(cause: Cause, said: CauseStatus) -> str:
    """Return the command that sets a cause's state and note, filled in with the current ones."""
    state = CauseState.FIXED if said.fixed_in else said.state
    return say_command(cause.group_id, state.value, said.fixed_in, said.note)


def _group(
    context: ConsoleContext, place: QueuePlace, filter_: Filter, book: CauseRemarks
) -> tuple[Group, int, Look]:
    """Return the requested group, the number of messages that match the filter, and the look."""
    groups, look = context.looks.answer(place, CausesOf(filter_, book))
    largest = groups.largest_first
    if not largest:
        what = told_of(context, filter_.groups[0]) if filter_.groups else ""
        raise NothingFound(
            f"{place.name!r} has no more messages with the cause {cut(what, 200)}\n"
            "They may be requeued, discarded or expired: see the journal."
            if what
            else f"{place.name!r} has no messages with this cause, and nothing is known of it\n"
            "Check the link, or choose a cause on the page of the queue."
        )
    return largest[0], groups.total, look


def told_of(context: ConsoleContext, group_id: str) -> str:
    """Return what the journal says about a cause; empty if it does not know it."""
    for remark in context.journal_cache.book.remarks:
        if remark.group == group_id and remark.words:
            return remark.words
    jobs = filter(context.permissions.may_see, context.journal_cache.known.jobs)
    found = (one.what for job in jobs for one in causes_of(job) if one.group_id == group_id)
    return next(found, "")


def _example(context: ConsoleContext, place: QueuePlace, group: Group) -> FailedMessage:
    message, _ = context.looks.ask(place, lambda look: look.named(group.first_id))
    return message


def _facets(
    context: ConsoleContext, request: PageRequest, filter_: Filter, where: str
) -> list[ShownFacet]:
    """Count messages by two fixed columns, and by the one that the request names."""
    names = dict.fromkeys([*([request.text("by")] if request.text("by") else []), *_ALWAYS])
    return [_facet(context, request, name, filter_, where) for name in names]


def _facet(
    context: ConsoleContext, request: PageRequest, name: str, filter_: Filter, where: str
) -> ShownFacet:
    try:
        if _reads_body(context, name):
            return ShownFacet(name, [], problem="This console hides bodies.")
        facet = Facet.named(name)
        (values, more), _ = context.looks.answer(request.place, FacetOf(filter_, facet))
    except RedriveError as error:
        return ShownFacet(name, [], problem=str(error))
    return ShownFacet(
        name, [(value, with_term(where, facet.term(value.text))) for value in values], more
    )


def _reads_body(context: ConsoleContext, name: str) -> bool:
    """Return whether a facet shows bodies, which this console hides."""
    return context.settings.hide_bodies and (name.startswith("$") or name == "body_text")


def _elsewhere(
    context: ConsoleContext, request: PageRequest, cause: Cause
) -> list[tuple[QueuePlace, int, str]]:
    """Return the other queues known to have messages of the same cause, with their number and the
    address of the cause there."""
    found: list[tuple[QueuePlace, int, str]] = []
    try:
        lines = [
            line
            for line in context.queue_states.counts()
            if line.failed and line.place != request.place
        ]
    except RedriveError:
        return []
    book = context.journal_cache.book
    for line in lines[:_MOST_QUEUES]:
        try:
            count, _ = context.looks.ask(
                line.place, lambda look: book.count_of(look, cause.group_id)
            )
        except RedriveError:  # no look at that queue is kept
            continue
        if count:
            asks = {**line.place.asks, "group": cause.group_id}
            found.append((line.place, count, request.link("/cause", asks)))
    return sorted(found, key=lambda one: -one[1])


def _others(context: ConsoleContext, place: QueuePlace, cause: Cause) -> list[Cause]:
    """Return the queue's other causes, which this one can be merged into."""
    groups, _ = context.looks.answer(place, CausesOf(Filter(), context.journal_cache.book))
    own = context.journal_cache.book.members(cause.group_id)
    keys = (group.key for group in groups.largest_first[:_A_PAGE])
    return [key for key in keys if isinstance(key, Cause) and key.group_id not in own]


def _jobs(context: ConsoleContext, book: CauseRemarks, cause: Cause) -> list[JobRecord]:
    """Return the cause's jobs that this user may see."""
    found = jobs_of(context.journal_cache.known.jobs, book.members(cause.group_id))
    return list(islice(filter(context.permissions.may_see, found), _MOST_JOBS))


def _time(moment: datetime) -> str:
    return f"TIMESTAMPTZ '{moment.astimezone(UTC).isoformat()}'"
