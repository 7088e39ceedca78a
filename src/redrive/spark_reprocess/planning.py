"""The plan: what a run has drained, grouped by cause, and what of it would be sent."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redrive.redaction import in_one_line, redact
from redrive.spark_reprocess.archive import Run
from redrive.spark_reprocess.failing import explained
from redrive.spark_reprocess.keeping import STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PICKED = "picked"
STAYS = "stays"
_MOST_GROUPS = 200
_BUCKETS = 48


@dataclass(frozen=True, slots=True)
class Group:
    """Messages of one cause.

    Args:
        id: the group's id.
        queue: the main queue.
        error_type: the exception's class; None where a peer did not say.
        error_message: one of its texts.
        count: how many messages.
        picked: how many of them would be sent.
        size: their bodies, in bytes.
        first: when the first failed; None where nobody said.
        last: when the last failed.
    """

    id: str
    queue: str
    error_type: str | None
    error_message: str | None
    count: int
    picked: int
    size: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is there, and what would be sent.

    Args:
        run: the run's id.
        where: the expression that picks; None for all.
        transform: the name of the function that changes bodies; None for none.
        count: messages that it is about.
        picked: how many of them would be sent.
        too_often: how many of those that are meant stay, because they were sent back too often.
        size: the bodies of all, in bytes.
        picked_size: the bodies of those that would be sent.
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
    picked: int
    size: int
    picked_size: int
    largest: int
    median: int
    states: dict[str, int]
    groups: list[Group]
    times: list[tuple[datetime, int]]
    stretch_seconds: int
    too_often: int = 0

    def to_dict(self) -> dict[str, object]:
        """For programs: times as ISO 8601."""
        values = asdict(self)
        for group in values["groups"]:
            group["first"], group["last"] = _iso(group["first"]), _iso(group["last"])
        values["times"] = [{"from": _iso(moment), "count": count} for moment, count in self.times]
        return values


def plan(
    run: Run,
    everything: "DataFrame",
    messages: "DataFrame",
    condition: str,
    *,
    where: str | None,
    transform: str | None,
    too_often: str = "false",
) -> Plan:
    """Looks at a run's messages.

    Args:
        run: the run.
        everything: all of its messages, with their states.
        messages: those that it is about, such as what can still be sent.
        condition: Spark SQL that is true of what would be sent.
        where: the expression that it was made of.
        transform: the name of the function that changes bodies.
        too_often: Spark SQL that is true of what is meant and stays, because it was sent back too often.
    """
    from pyspark.sql import functions as F

    # Without the bodies, once: it is looked at from four sides.
    picked = F.coalesce(F.expr(condition), F.lit(False)).alias(PICKED)
    stays = F.coalesce(F.expr(too_often), F.lit(False)).alias(STAYS)
    marked = messages.select("group_id", "queue", "error_type", "error_message", "size", "failed_at", picked, stays).persist()
    with explained(), _released(marked):
        states = {row[STATE]: row["count"] for row in everything.groupBy(STATE).count().collect()}
        whole = marked.agg(
            F.count(F.lit(1)).alias("count"),
            F.count_if(PICKED).alias("picked"),
            F.count_if(STAYS).alias("too_often"),
            F.sum("size").alias("size"),
            F.sum(F.when(F.col(PICKED), F.col("size"))).alias("picked_size"),
            F.max("size").alias("largest"),
            F.median("size").alias("median"),
            F.min(F.unix_seconds("failed_at")).alias("first"),
            F.max(F.unix_seconds("failed_at")).alias("last"),
        ).collect()[0]
        groups = (
            marked.groupBy("group_id", "queue")
            .agg(
                F.first("error_type").alias("error_type"),
                F.first("error_message").alias("error_message"),
                F.count(F.lit(1)).alias("count"),
                F.count_if(PICKED).alias("picked"),
                F.sum("size").alias("size"),
                F.min(F.unix_seconds("failed_at")).alias("first"),
                F.max(F.unix_seconds("failed_at")).alias("last"),
            )
            .orderBy(F.desc("count"), "group_id", "queue")
            .limit(_MOST_GROUPS)
            .collect()
        )
        stretch = _stretch(whole["first"], whole["last"])
        start = F.floor(F.unix_seconds("failed_at") / stretch) * stretch
        times = marked.where("failed_at is not null").groupBy(start.alias("start")).count().orderBy("start").collect()
    return Plan(
        run=run.id,
        where=where,
        transform=transform,
        count=whole["count"],
        picked=whole["picked"],
        size=whole["size"] or 0,
        picked_size=whole["picked_size"] or 0,
        largest=whole["largest"] or 0,
        median=int(whole["median"] or 0),
        states=states,
        groups=[
            Group(
                row["group_id"],
                row["queue"],
                row["error_type"],
                None if row["error_message"] is None else redact(in_one_line(row["error_message"])),
                row["count"],
                row["picked"],
                row["size"],
                _moment(row["first"]),
                _moment(row["last"]),
            )
            for row in groups
        ],
        times=[(found, row["count"]) for row in times if (found := _moment(row["start"])) is not None],
        stretch_seconds=stretch,
        too_often=whole["too_often"],
    )


@contextlib.contextmanager
def _released(frame: "DataFrame") -> Iterator[None]:
    try:
        yield
    finally:
        frame.unpersist()


def _stretch(first: int | None, last: int | None) -> int:
    """Seconds, so that there are at most so many stretches, and people can read where they begin."""
    span = 0 if first is None or last is None else last - first
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
