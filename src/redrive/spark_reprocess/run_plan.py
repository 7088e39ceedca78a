"""The plan of a run: the drained messages grouped by cause, and those that would be sent.

The plan of a requeue on one machine (`failures.plan`) reads each message once. This one is made
from counts (`tally`), which tasks made where the messages are. Causes and matches follow the rules
of `failures` (`group_id` and the filter's result are columns); it only adds up. It also finds the
time range to show, from counted intervals instead of the sorted times in `failures.groups`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.failures.message.groups import FAR
from redrive.failures.message.route import Verdict
from redrive.failures.store.stored_message import DEAD_LETTER_QUEUE
from redrive.redaction import in_one_line, redact
from redrive.spark_reprocess.archived_messages import KEPT, OPEN, STATE, STATES
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.selection import FATE, REASON, VERDICT, WAY, Fate, Selection
from redrive.spark_reprocess.tally import CELL, EXAMPLE, PART, SIZE, TIME, WIDTH, WIDTHS
from redrive.topology.headers import moment

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_GROUPS = 200
_MOST_WAYS = 100
_BY_EXCHANGE = "exchange "
"""The prefix of a way, as text, that leads to an exchange and not to a queue. A queue whose name
starts like this is missing from `RunPlan.queues`, but still gets its messages."""
_BUCKETS = 48


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Messages of one cause in one queue, as counted by Spark.

    Args:
        id: the id of the cause, `Cause.group_id`.
        queue: the queue that they failed in.
        error_type: the exception's class; None if a peer did not record it.
        error_message: the error message of one of them.
        count: the number of messages.
        chosen: how many of them would be sent.
        size: the total size of their bodies, in bytes.
        first: when the first failed; None if unknown.
        last: when the last failed; None if unknown.
    """

    id: str
    queue: str
    error_type: str | None
    error_message: str | None
    count: int
    chosen: int
    size: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The messages of a run, and those that would be sent.

    Args:
        run: the run's id.
        where: the filter expression; None for all messages.
        transform: what changes bodies, a function's name or a patch; None for no change.
        count: the number of messages that the plan covers.
        chosen: how many of them would be sent.
        too_often: selected messages that stay because they were requeued too often.
        earlier: messages left out of `times`, because they failed much earlier than most.
        later: the same for messages that failed much later.
        no_way_back: selected messages that stay because nothing says which queue they failed in.
        contradicted: the same, because the broker's topology contradicts what they say.
        unchecked: the same, because the broker could not confirm what they say.
        left: the messages of the last three counts by the way they would go, with the reason why
            they stay.
        without_way_back: some of these messages: the id, the dead-letter queue, and the cause.
        ways: the number of messages to be sent by each way, as text; the most frequent ways only.
        size: the total size of all bodies, in bytes.
        chosen_size: the total size of the bodies to be sent, in bytes.
        largest: the size of the largest body, in bytes.
        median: the median body size, in bytes.
        rest: messages in the archive only that would not be sent, because they were not chosen or
            were requeued too often.
        states: the number of messages of the run in each state.
        groups: the causes, most frequent first.
        times: a histogram of failure times: the start of each interval, and its message count.
        stretch_seconds: the length of an interval, in seconds.
    """

    run: str
    where: str | None
    transform: str | None
    count: int
    chosen: int
    size: int
    chosen_size: int
    largest: int
    median: int
    states: dict[str, int]
    groups: list[RunGroup]
    times: list[tuple[datetime, int]]
    stretch_seconds: int
    too_often: int = 0
    earlier: int = 0
    later: int = 0
    no_way_back: int = 0
    contradicted: int = 0
    unchecked: int = 0
    left: list[dict[str, object]] = field(default_factory=list)
    without_way_back: list[dict[str, str | None]] = field(default_factory=list)
    ways: dict[str, int] = field(default_factory=dict)
    rest: int = 0

    @property
    def queues(self) -> list[str]:
        """The queues that messages would be sent to, busiest first; without those that an exchange
        routes to."""
        return [way for way in self.ways if not way.startswith(_BY_EXCHANGE)]

    @property
    def done_before(self) -> int:
        """Number of messages of the run that were already sent, restored or discarded."""
        return sum(count for state, count in self.states.items() if state not in OPEN)

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON values, with ISO 8601 times."""
        values = asdict(self)
        for group in values["groups"]:
            group["first"], group["last"] = _iso(group["first"]), _iso(group["last"])
        values["times"] = [{"from": _iso(when), "count": count} for when, count in self.times]
        return values


def plan_of(run: str, counts: "pa.Table", choice: Selection, *, whole: bool = False) -> RunPlan:
    """Return the plan that the counts of a run's messages amount to: of all of them if `whole`,
    else only of those that are still open."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in counts.to_pylist():
        parts.setdefault(row[PART], []).append(row)
    cells = parts.get(CELL, [])
    about = [cell for cell in cells if whole or cell[STATE] in OPEN]
    chosen = [cell for cell in about if cell[FATE] == Fate.CHOSEN]
    # Restored messages are back where they came from, and need no way.
    left = [cell for cell in cells if cell[FATE] == Fate.NO_WAY and cell[STATE] in OPEN]
    sizes = _counts_at(parts.get(SIZE, []), whole=whole)
    times = _counts_at(parts.get(TIME, []), whole=whole)
    width = max((row[WIDTH] for row in parts.get(TIME, [])), default=1)
    shown = _times(times, width)
    ways: Counter[str] = Counter()
    for cell in chosen:
        ways[cell[WAY]] += cell["count"] if cell[WAY] else 0
    states: Counter[str] = Counter()
    for cell in cells:
        states[cell[STATE]] += cell["count"]
    verdicts: Counter[str] = Counter()
    stay: Counter[tuple[str | None, str | None, str | None]] = Counter()
    for cell in left:
        verdicts[cell[VERDICT] or Verdict.UNKNOWN.value] += cell["count"]
        stay[cell[WAY], cell[VERDICT], cell[REASON]] += cell["count"]
    return RunPlan(
        run=run,
        where=choice.where,
        transform=choice.changed_by,
        count=_total(about),
        chosen=_total(chosen),
        size=_total(about, "size"),
        chosen_size=_total(chosen, "size"),
        largest=max((cell["largest"] for cell in about), default=0),
        median=_nearest(sizes, 0.5),
        states={state: states[state] for state in STATES if states[state]},
        groups=_groups(about),
        times=shown.counts,
        stretch_seconds=shown.stretch,
        earlier=shown.earlier,
        later=shown.later,
        too_often=_total(cell for cell in about if cell[FATE] == Fate.TOO_OFTEN),
        no_way_back=verdicts[Verdict.UNKNOWN.value],
        contradicted=verdicts[Verdict.CONTRADICTED.value],
        unchecked=verdicts[Verdict.UNCHECKED.value],
        left=[
            {"way": way, "verdict": verdict, "reason": reason, "count": count}
            for (way, verdict, reason), count in stay.most_common(_MOST_WAYS)
        ],
        without_way_back=[
            {
                "id": row[ID],
                "queue": row[DEAD_LETTER_QUEUE],
                "error_type": row["error_type"],
                "error_message": _shown(row["error_message"]),
            }
            for row in parts.get(EXAMPLE, [])
            if row[STATE] in OPEN
        ],
        rest=_total(
            cell
            for cell in cells
            if cell[STATE] == KEPT and cell[FATE] in (Fate.LEFT, Fate.TOO_OFTEN)
        ),
        ways={way: count for way, count in ways.most_common(_MOST_WAYS) if count},
    )


def _total(cells: Iterable[Mapping[str, Any]], what: str = "count") -> int:
    return sum(cell[what] for cell in cells)


def _counts_at(rows: Iterable[Mapping[str, Any]], *, whole: bool) -> dict[int, int]:
    """Return the number of messages by interval, in order."""
    found: Counter[int] = Counter()
    for row in rows:
        if whole or row[STATE] in OPEN:
            found[row["at"]] += row["count"]
    return dict(sorted(found.items()))


def _groups(cells: Iterable[Mapping[str, Any]]) -> list[RunGroup]:
    """Return the causes, most frequent first."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault((cell["group_id"], cell["queue"]), []).append(cell)
    groups = [
        RunGroup(
            id_,
            queue,
            next((one["error_type"] for one in some if one["error_type"] is not None), None),
            _shown(next((one["error_message"] for one in some if one["error_message"]), None)),
            _total(some),
            _total(one for one in some if one[FATE] == Fate.CHOSEN),
            _total(some, "size"),
            moment(min((one["first"] for one in some if one["first"] is not None), default=None)),
            moment(max((one["last"] for one in some if one["last"] is not None), default=None)),
        )
        for (id_, queue), some in found.items()
    ]
    return sorted(groups, key=lambda one: (-one.count, one.id, one.queue))[:_MOST_GROUPS]


def _nearest(counts: Mapping[int, int], share: float) -> int:
    """Return the value at a percentile of counted values, which are in order; 0 for none."""
    wanted, passed = share * sum(counts.values()), 0
    for value, count in counts.items():
        passed += count
        if passed >= wanted:
            return value
    return 0


class _Times(NamedTuple):
    counts: list[tuple[datetime, int]]
    stretch: int
    earlier: int
    later: int


def _times(counts: Mapping[int, int], width: int) -> _Times:
    """Return the histogram of failure times that were counted by intervals of this width."""
    begin, end = _most_of(counts)
    # A multiple of the width, since counts can't be divided.
    stretch = -(-_stretch(begin, end) // width) * width
    shown: Counter[int] = Counter()
    for at, count in counts.items():
        if begin <= at <= end:
            shown[at // stretch * stretch] += count
    return _Times(
        [(when, count) for at, count in shown.items() if (when := moment(at)) is not None],
        stretch,
        sum(count for at, count in counts.items() if at < begin),
        sum(count for at, count in counts.items() if at > end),
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else redact(in_one_line(text))


def _most_of(counts: Mapping[int, int]) -> tuple[int, int]:
    """Return the time range of most messages. This is the full range, unless at most one in ten
    failed so long before or after the rest that the rest would shrink to a line."""
    if not counts:
        return 0, 0
    first, late = next(iter(counts)), _nearest(counts, 0.95)
    early, last = _nearest(counts, 0.05), next(reversed(counts))
    span = late - early
    begin, end = max(first, early - span), min(last, late + span)
    return (begin, end) if (end - begin) * FAR <= last - first else (first, last)


def _stretch(first: int, last: int) -> int:
    """Return an interval length in seconds that gives at most about `_BUCKETS` intervals, which
    start at round times."""
    span = last - first
    for seconds in WIDTHS:
        if span / seconds <= _BUCKETS:
            return seconds
    return 86_400 * (span // (86_400 * _BUCKETS) + 1)


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat().replace("+00:00", "Z")
