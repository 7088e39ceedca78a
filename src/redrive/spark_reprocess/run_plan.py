"""The plan of a run: what it has drained, grouped by cause, and what of it would be sent.

The plan of a requeue on one machine (`failures.plan`) reads each message once. This one is counted
where the messages are, by Spark, and no message comes to the driver: what a cause is, and which
messages match, is the rule of `failures` (`group_id` and the filter's answer are columns), and only
the adding up is Spark's. So is the range of time that is shown: percentiles take the place of the
sorted times that `failures.groups` has at hand.
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
"""The first, the last, and where the earliest and the latest of twenty end."""
_MOST_GROUPS = 200
_OF_ROUTE = ("way", "verdict", "reason")
_MOST_WAYS = 100
_FEW = 20
_BY_EXCHANGE = "exchange "
"""How a way begins, in words, that is no queue. Such a queue is not told of, and gets its messages
all the same."""
_BUCKETS = 48


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Messages of one cause in one queue, as Spark has counted them.

    Args:
        id: the id of the cause, `Cause.group_id`.
        queue: the queue that they failed in.
        error_type: the exception's class; None where a peer did not say.
        error_message: one of its texts.
        count: how many messages.
        chosen: how many of them would be sent.
        size: their bodies, in bytes.
        first: when the first failed; None where nobody said.
        last: when the last failed.
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
    """What is there, and what would be sent.

    Args:
        run: the run's id.
        where: the expression that says which; None for all.
        transform: what changes bodies, a function's name or a patch; None for nothing.
        count: messages that it is about.
        chosen: how many of them would be sent.
        too_often: how many of those that are meant stay, because they were requeued too often.
        earlier: how many failed so much earlier than most that `times` leaves them out.
        later: how many failed so much later.
        no_way_back: how many of those that are meant stay, because nothing says which queue they
            failed in.
        contradicted: how many because the broker's topology says otherwise than they do.
        unchecked: how many because the broker could not confirm what they say.
        left: of all these, how many would go which way, and why they stay.
        without_way_back: some of these: the id, the dead-letter queue, and the cause of each.
        ways: how many would go which way, in words; those that most go.
        size: the bodies of all, in bytes.
        chosen_size: the bodies of those that would be sent.
        largest: the largest body.
        median: the size of the middle one.
        states: how many messages of the run are in which state.
        groups: the causes, the most frequent first.
        times: when they failed: the beginning of each stretch of time, and how many in it.
        stretch_seconds: how long a stretch is.
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
        """The queues that they would go to, the one that gets most first; without what an exchange
        chooses."""
        return [way for way in self.ways if not way.startswith(_BY_EXCHANGE)]

    @property
    def done_before(self) -> int:
        """How many messages of the run were sent, restored or discarded before."""
        return sum(count for state, count in self.states.items() if state not in OPEN)

    def to_dict(self) -> dict[str, object]:
        """For programs: times as ISO 8601."""
        values = asdict(self)
        for group in values["groups"]:
            group["first"], group["last"] = _iso(group["first"]), _iso(group["last"])
        values["times"] = [{"from": _iso(moment), "count": count} for moment, count in self.times]
        return values


def plan(run: Run, messages: "DataFrame", choice: Selection, *, whole: bool = False) -> RunPlan:
    """Looks at a run's messages."""
    from pyspark.sql import functions as F

    about = F.lit(True) if whole else F.col(STATE).isin(*OPEN)
    # Without the bodies, once: it is looked at from three sides.
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
            # What was restored since is where it came from.
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
        # What is left out has no start of a stretch, and is told apart by the side that it is on.
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
    """How many stay for which verdict, by the names of a plan's fields."""
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
    """When most of the messages failed, of the ends in `_ENDS`: all, unless at most one in ten
    failed so long before or after the others that these would be a line."""
    if ends is None:
        return 0, 0
    first, early, late, last = ends
    span = late - early
    begin, end = max(first, early - span), min(last, late + span)
    return (begin, end) if (end - begin) * FAR <= last - first else (first, last)


def _stretch(first: int, last: int) -> int:
    """Seconds, so that there are at most so many stretches, and people can read where they
    begin."""
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
