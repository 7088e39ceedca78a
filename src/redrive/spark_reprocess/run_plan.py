"""The plan of a run: the drained messages grouped by cause, and those that would be sent.

The plan of a requeue on one machine (`failures.plan`) reads each message once. This one is counted
by Spark where the messages are, and no message comes to the driver. Causes and matches follow the
rules of `failures` (`group_id` and the filter's result are columns); Spark only adds up. It also
finds the time range to show, from percentiles instead of the sorted times in `failures.groups`.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redrive.failures.groups import FAR
from redrive.failures.route import Verdict
from redrive.failures.stored_message import DEAD_LETTER_QUEUE
from redrive.redaction import in_one_line, redact
from redrive.spark_reprocess.archive import Run
from redrive.spark_reprocess.archived_messages import OPEN, STATE, STATES
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.selection import CHOSEN, NO_WAY, ROUTE, STAYS, WAY, Selection
from redrive.spark_reprocess.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_ABOUT = "about"
_ENDS = [0.0, 0.05, 0.95, 1.0]
"""Percentiles of the failure times: the first, the earliest 5 %, the latest 5 %, and the last."""
_MOST_GROUPS = 200
_OF_ROUTE = ("way", "verdict", "reason")
_MOST_WAYS = 100
_FEW = 20
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
        values["times"] = [{"from": _iso(moment), "count": count} for moment, count in self.times]
        return values


def plan(run: Run, messages: "DataFrame", choice: Selection, *, whole: bool = False) -> RunPlan:
    """Count a run's messages; all of them if `whole`, else only those that are still open."""
    from pyspark.sql import functions as F

    about = F.lit(True) if whole else F.col(STATE).isin(*OPEN)
    # Persisted without the bodies, because several queries read it.
    marked = (
        choice.marked(messages)
        .select(
            ID,
            "group_id",
            "queue",
            DEAD_LETTER_QUEUE,
            WAY,
            ROUTE,
            "error_type",
            "error_message",
            "size",
            "failed_at",
            STATE,
            about.alias(_ABOUT),
            (F.col(CHOSEN) & about).alias(CHOSEN),
            (F.col(STAYS) & about).alias(STAYS),
            # Restored messages are back where they came from, and need no way.
            (F.col(NO_WAY) & F.col(STATE).isin(*OPEN)).alias(NO_WAY),
        )
        .persist()
    )
    size = F.when(F.col(_ABOUT), F.col("size"))
    failed_at = F.when(F.col(_ABOUT), F.unix_seconds("failed_at"))
    with explained(), _released(marked):
        found = marked.agg(
            F.count_if(_ABOUT).alias("count"),
            F.count_if(CHOSEN).alias("chosen"),
            F.count_if(STAYS).alias("too_often"),
            F.count_if(NO_WAY).alias("no_way"),
            F.sum(size).alias("size"),
            F.sum(F.when(F.col(CHOSEN), F.col("size"))).alias("chosen_size"),
            F.max(size).alias("largest"),
            F.median(size).alias("median"),
            F.percentile_approx(failed_at, _ENDS).alias("ends"),
            *(F.count_if(F.col(STATE) == state).alias(f"in_{state}") for state in STATES),
        ).collect()[0]
        marked_about = marked.where(_ABOUT)
        groups = (
            marked_about.groupBy("group_id", "queue")
            .agg(
                F.first("error_type").alias("error_type"),
                F.first("error_message").alias("error_message"),
                F.count(F.lit(1)).alias("count"),
                F.count_if(CHOSEN).alias("chosen"),
                F.sum("size").alias("size"),
                F.min(F.unix_seconds("failed_at")).alias("first"),
                F.max(F.unix_seconds("failed_at")).alias("last"),
            )
            .orderBy(F.desc("count"), "group_id", "queue")
            .limit(_MOST_GROUPS)
            .collect()
        )
        ways = (
            marked.where(CHOSEN)
            .groupBy(WAY)
            .count()
            .orderBy(F.desc("count"), WAY)
            .limit(_MOST_WAYS)
            .collect()
        )
        left = (
            marked.where(NO_WAY)
            .groupBy(*(F.col(f"{ROUTE}.{name}").alias(name) for name in _OF_ROUTE))
            .count()
            .orderBy(F.desc("count"), *_OF_ROUTE)
            .collect()
            if found["no_way"]
            else []
        )
        without_way = (
            marked.where(NO_WAY)
            .select(ID, DEAD_LETTER_QUEUE, "error_type", "error_message")
            .orderBy(ID)
            .limit(_FEW)
            .collect()
            if found["no_way"]
            else []
        )
        begin, end = _most_of(found["ends"])
        stretch = _stretch(begin, end)
        failed = F.unix_seconds("failed_at")
        within = failed.between(begin, end)
        # Messages outside the range have no start, and are split into earlier and later ones.
        start = F.when(within, F.floor(failed / stretch) * stretch)
        times = (
            marked_about.where("failed_at is not null")
            .groupBy(start.alias("start"), (failed < begin).alias("earlier"))
            .count()
            .orderBy("start")
            .collect()
        )
    return RunPlan(
        run=run.id,
        where=choice.where,
        transform=choice.changed_by,
        count=found["count"],
        chosen=found["chosen"],
        size=found["size"] or 0,
        chosen_size=found["chosen_size"] or 0,
        largest=found["largest"] or 0,
        median=int(found["median"] or 0),
        states={state: count for state in STATES if (count := found[f"in_{state}"])},
        groups=[
            RunGroup(
                row["group_id"],
                row["queue"],
                row["error_type"],
                _shown(row["error_message"]),
                row["count"],
                row["chosen"],
                row["size"],
                _moment(row["first"]),
                _moment(row["last"]),
            )
            for row in groups
        ],
        times=[
            (moment, row["count"]) for row in times if (moment := _moment(row["start"])) is not None
        ],
        stretch_seconds=stretch,
        too_often=found["too_often"],
        earlier=sum(row["count"] for row in times if row["start"] is None and row["earlier"]),
        later=sum(row["count"] for row in times if row["start"] is None and not row["earlier"]),
        **_stay(left),
        left=[
            {**{name: row[name] for name in _OF_ROUTE}, "count": row["count"]}
            for row in left[:_MOST_WAYS]
        ],
        without_way_back=[
            {
                "id": row[ID],
                "queue": row[DEAD_LETTER_QUEUE],
                "error_type": row["error_type"],
                "error_message": _shown(row["error_message"]),
            }
            for row in without_way
        ],
        ways={row[WAY]: row["count"] for row in ways},
    )


def _stay(left: "Sequence[Row]") -> dict[str, int]:
    """Count the messages that stay by verdict, under the field names of a plan."""
    counts: Counter[str] = Counter()
    for row in left:
        counts[row["verdict"] or Verdict.UNKNOWN.value] += row["count"]
    return {
        "no_way_back": counts[Verdict.UNKNOWN.value],
        "contradicted": counts[Verdict.CONTRADICTED.value],
        "unchecked": counts[Verdict.UNCHECKED.value],
    }


def _shown(text: str | None) -> str | None:
    return None if text is None else redact(in_one_line(text))


@contextlib.contextmanager
def _released(frame: "DataFrame") -> Iterator[None]:
    try:
        yield
    finally:
        frame.unpersist()


def _most_of(ends: list[int] | None) -> tuple[int, int]:
    """Return the time range of most messages, from the percentiles in `_ENDS`. This is the full
    range, unless at most one in ten failed so long before or after the rest that the rest would
    shrink to a line."""
    if ends is None:
        return 0, 0
    first, early, late, last = ends
    span = late - early
    begin, end = max(first, early - span), min(last, late + span)
    return (begin, end) if (end - begin) * FAR <= last - first else (first, last)


def _stretch(first: int, last: int) -> int:
    """Return an interval length in seconds that gives at most about `_BUCKETS` intervals, which
    start at round times."""
    span = last - first
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400):
        if span / seconds <= _BUCKETS:
            return seconds
    return 86_400 * (span // (86_400 * _BUCKETS) + 1)


def _moment(seconds: int | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
