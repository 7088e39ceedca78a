"""Which messages of a run to send, with which edits, and to which queue."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError
from redrive.failures.message.columns import BY_NAME
from redrive.failures.message.direction import Direction
from redrive.failures.message.edit import patching
from redrive.failures.message.route import WITHOUT_TOPOLOGY, Judge
from redrive.failures.store.database import Database
from redrive.failures.store.stored_message import DEAD_LETTER_QUEUE, NEEDED, bytes_of, message_of
from redrive.pubsub.message import Message
from redrive.pubsub.order_key import reader_of
from redrive.redaction import text_of
from redrive.spark_reprocess.row_message import ORDER_KEY, SENT_BY, SENT_BY_TYPE
from redrive.spark_reprocess.transform import Transform, of_each, transform_named
from redrive.topology.rewrite import MOST_REDRIVES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from redrive.failures.message import columns as failures_columns


_SMALLEST = BY_NAME["size"]
"""The column to read if an expression uses none: a task still needs the number of rows."""


def check_filter(expression: str, now: datetime) -> None:
    """Check a filter expression; raise ConfigurationError if it is invalid, saying where."""
    with Database(now) as database:
        database.columns_of(expression)


def is_chosen(expression: str, now: datetime) -> "Column":
    """Return a column that says whether a message matches an expression; it is never null.

    Only columns that the expression uses are sent to the Python processes of the tasks.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    with Database(now) as database:
        columns = database.columns_of(expression)

    def meant(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        with Database(now) as database:
            for rows in batches:
                table = pa.RecordBatch.from_struct_array(rows)
                yield pa.array(database.meant_in(expression, table, columns), pa.bool_())

    asked = [F.col(column.name) for column in columns or (_SMALLEST,)]
    # pyspark infers the function type from the annotations, which its own type stubs don't cover;
    # it warns if the type is passed explicitly.
    chosen: Column = arrow_udf(meant, "boolean")(F.struct(*asked))  # type: ignore[call-overload]
    return chosen


FATE, WAY, VERDICT, REASON = "fate", "way", "verdict", "reason"
"""What becomes of a message; where it goes, as text; how reliable that way is, and why."""
ROUTE = "route"
DECISION, TO = "decision", "decided_to"
"""Columns of messages that a DataFrame decides on: what is done with a message, and which queue it
is sent to."""


class Fate(StrEnum):
    """What becomes of a message when a selection is sent."""

    CHOSEN = "chosen"
    """It is sent."""
    TOO_OFTEN = "too often"
    """It matches, and stays because it was requeued too often."""
    NO_WAY = "no way"
    """It matches, and stays because it has no sure way back."""
    LEFT = "left"
    """It does not match."""


class Decision(StrEnum):
    """What a DataFrame says is done with a message."""

    REQUEUE = "requeue"
    RESTORE = "restore"
    DISCARD = "discard"
    KEEP = "keep"


_ROUTE_TYPE = (
    f"struct<way: string, goes: boolean, verdict: string, reason: string, parts: {SENT_BY_TYPE}>"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of a run to send, how to change them, and where to send them.

    Args:
        where: an expression of the filter language; None for all messages.
        transform: `module:function`, which changes bodies; None for none.
        now: the value of `now()` in the expression.
        force: whether to send messages that have already been requeued too often.
        patch: a JSON patch or merge patch for the bodies, as text; None for none.
        to: send all messages to this queue; None for the queue that each failed in.
        via: whether to publish each message with its first exchange and key.
        discards: whether to mark the messages as unwanted instead of sending them.
        unchecked: whether to send messages whose way back the broker could not confirm.
        order_by: what the order of the messages is kept by, as for a subscriber; None to send them
            in any order.
        decisions: the digest of a DataFrame that says what is done with which message; None if
            there is none, and the filter decides.
        judge: decides where messages of dead-letter queues go; None if there are none, or if the
            broker could not be asked.
    """

    where: str | None = None
    transform: str | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    force: bool = False
    patch: str | None = None
    to: str | None = None
    via: bool = False
    discards: bool = False
    unchecked: bool = False
    order_by: str | None = None
    decisions: str | None = None
    judge: Judge | None = field(default=None, compare=False)

    @property
    def direction(self) -> Direction:
        """Where the messages are sent."""
        return Direction(self.to, self.via, self.unchecked, self.judge or WITHOUT_TOPOLOGY)

    def change(self) -> Transform | None:
        """Return the transform of the bodies; None if they are sent unchanged."""
        if self.patch is None:
            return None if self.transform is None else transform_named(self.transform)
        if self.transform is not None:
            raise ConfigurationError("--patch and --transform exclude each other", "Give one.")
        return of_each(patching(self.patch))

    @property
    def changed_by(self) -> str | None:
        """What changes the bodies, as text; None if they are sent unchanged."""
        return self.transform if self.patch is None else f"the patch {self.patch}"

    def of(self, messages: "DataFrame") -> "DataFrame":
        """Return the messages to send, or to discard."""
        from pyspark.sql import functions as F

        meant = self._meant_of(messages)
        sent = meant if self.discards else meant.where(F.col(WAY).isNotNull())
        return sent.drop(WAY, ROUTE)

    def without_way_of(self, messages: "DataFrame") -> "DataFrame":
        """Return the messages that would be sent if they had a sure way back."""
        from pyspark.sql import functions as F

        return self._meant_of(messages).where(F.col(WAY).isNull()).drop(WAY, ROUTE)

    def with_ways(self, messages: "DataFrame") -> "DataFrame":
        """Add each message's way, which is then used even if its body is changed later."""
        from pyspark.sql import functions as F

        routed = self._routed(messages)
        parts = F.col(f"{ROUTE}.parts")
        if self.decisions is not None:
            given = F.named_struct(
                F.lit("exchange"),
                F.lit(b""),
                F.lit("routing_key"),
                F.col(TO).cast("binary"),
            )
            parts = F.when(F.col(TO).isNotNull(), given).otherwise(parts)
        return routed.withColumn(SENT_BY, parts).drop(WAY, ROUTE)

    def with_order_keys(self, messages: "DataFrame") -> "DataFrame":
        """Add the key that each message is ordered by: the queue that it is sent to, and what
        `order_by` reads from it as it will be sent."""
        from pyspark.sql import functions as F

        if self.order_by is None:
            return messages
        order_by = self.order_by

        def key_of(*values: object) -> str | None:
            given = [bytes(one) if isinstance(one, bytearray) else one for one in values]
            try:
                message = message_of(given)
            except ValueError:  # reported by the task that sends it
                return None
            return reader_of(order_by)(Message(message.delivery))

        made = F.udf(key_of, "string", useArrow=False)(*map(F.col, (*NEEDED, DEAD_LETTER_QUEUE)))
        place = F.col("queue") if self.to is None else F.lit(self.to)
        if self.decisions is not None:
            place = F.coalesce(F.col(TO), place)
        return messages.withColumn(ORDER_KEY, F.concat_ws("\n", place, made))

    def _meant_of(self, messages: "DataFrame") -> "DataFrame":
        """Return the messages that match and were not requeued too often, with their ways."""
        from pyspark.sql import functions as F

        if self.decisions is not None:
            messages = messages.where(F.col(DECISION) == Decision.REQUEUE)
        meant = messages if self.where is None else messages.where(is_chosen(self.where, self.now))
        meant = meant if self.force else meant.where(F.col("redrive_count") < MOST_REDRIVES)
        return self._routed(meant)

    def _routed(self, messages: "DataFrame") -> "DataFrame":
        """Add each message's route, and its way as text, which is null if the message stays."""
        from pyspark.sql import functions as F

        direction = self.direction
        to = F.col(TO) if self.decisions is not None else F.lit(None).cast("string")

        def route_of(*values: object) -> object:
            return _route_of(direction, values)

        if not self.asks:
            # Everything goes to one queue, or all messages are of subscriptions.
            is_ours = F.col(DEAD_LETTER_QUEUE).isNull()
            way = F.lit(self.to) if self.to is not None else F.when(is_ours, F.col("queue"))
            return messages.withColumns(
                {WAY: F.coalesce(to, way), ROUTE: F.lit(None).cast(_ROUTE_TYPE)}
            )
        made = F.udf(route_of, _ROUTE_TYPE, useArrow=False)
        routed = messages.withColumn(ROUTE, made(*map(F.col, (*NEEDED, DEAD_LETTER_QUEUE))))
        return routed.withColumn(
            WAY, F.coalesce(to, F.when(F.col(f"{ROUTE}.goes"), F.col(f"{ROUTE}.way")))
        )

    @property
    def asks(self) -> bool:
        """Whether the way depends on what a message says."""
        return self.to is None and (self.judge is not None or self.via)

    @property
    def key(self) -> str:
        """A digest of this selection; equal for equal selections made at the same time."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that the selection is valid."""
        _ = self.direction
        if self.where is not None:
            check_filter(self.where, self.now)
        self.change()
        if self.order_by is not None:
            reader_of(self.order_by)

    @classmethod
    def from_dict(cls, noted: Mapping[str, str | None]) -> Self:
        """Return the selection that `to_dict` returned."""
        return cls(
            noted["where"],
            noted["transform"],
            datetime.fromisoformat(noted["now"] or ""),
            noted.get("force") is not None,
            noted.get("patch"),
            noted.get("to"),
            noted.get("via") is not None,
            unchecked=noted.get("unchecked") is not None,
            order_by=noted.get("order_by"),
            decisions=noted.get("decisions"),
        )

    def to_dict(self) -> dict[str, str | None]:
        """Return the selection as JSON values, for the archive."""
        # Written only if set, so that selections of older versions keep their key.
        others = {
            "force": "yes" if self.force else None,
            "patch": self.patch,
            "to": self.to,
            "via": "yes" if self.via else None,
            "unchecked": "yes" if self.unchecked else None,
            "order_by": self.order_by,
            "decisions": self.decisions,
        }
        return {
            "where": self.where,
            "transform": self.transform,
            "now": self.now.isoformat(),
            **{name: value for name, value in others.items() if value is not None},
        }


def _route_of(direction: Direction, values: Iterable[object]) -> tuple[object, ...] | None:
    """Return the route of the message with these stored values, in the form of `_ROUTE_TYPE`."""
    # Spark passes bytes as bytearrays.
    given = [bytes(one) if isinstance(one, bytearray) else one for one in values]
    try:
        route = direction.route_of(message_of(given))
    except ValueError:  # reported by the task that sends it
        return None
    way = route.way
    return (
        None if way is None else text_of(str(way)),
        direction.goes(route),
        route.verdict.value,
        route.reason,
        None if way is None else (bytes_of(way.exchange), bytes_of(way.routing_key)),
    )


class RowJudge:
    """Says what becomes of each row of a table; closes its database at the end of the block.

    The rules are those of `Selection.of`, for rows that a task has in hand.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._direction = selection.direction
        self._database = None if selection.where is None else Database(selection.now)
        self._columns: tuple[failures_columns.Column, ...] = ()
        if self._database is not None and selection.where is not None:
            self._columns = self._database.columns_of(selection.where) or (_SMALLEST,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    @property
    def needed(self) -> set[str]:
        """The columns that it reads."""
        return {
            "queue",
            DEAD_LETTER_QUEUE,
            "redrive_count",
            *(column.name for column in self._columns),
            *(NEEDED if self._selection.asks else ()),
            *((DECISION, TO) if self._selection.decisions is not None else ()),
        }

    def of(self, rows: "pa.Table") -> "pa.Table":
        """Return the rows, at least one, with the columns `fate`, `way`, `verdict` and `reason`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def column(name: str) -> "pa.Array":
            return rows[name].combine_chunks()

        selection, nobody = self._selection, pa.repeat(False, rows.num_rows)
        matches = pa.array(self._matching(rows), pa.bool_())
        if selection.decisions is not None:
            decided = pc.equal(column(DECISION), Decision.REQUEUE.value)
            matches = pc.and_(matches, pc.fill_null(decided, False))
        too_often = pc.greater_equal(column("redrive_count"), MOST_REDRIVES)
        too_often = nobody if selection.force else pc.and_(matches, too_often)
        may_go = pc.and_not(matches, too_often)
        way, goes, verdict, reason = self._routes(rows, may_go)
        if selection.decisions is not None:
            way, goes = pc.coalesce(column(TO), way), pc.or_(pc.is_valid(column(TO)), goes)
        if selection.discards:
            goes = may_go
        fate = pc.if_else(
            may_go,
            pc.if_else(goes, Fate.CHOSEN.value, Fate.NO_WAY.value),
            pc.if_else(too_often, Fate.TOO_OFTEN.value, Fate.LEFT.value),
        )
        for name, values in ((FATE, fate), (WAY, way), (VERDICT, verdict), (REASON, reason)):
            rows = rows.append_column(name, values)
        return rows

    def _matching(self, rows: "pa.Table") -> list[bool]:
        if self._database is None or self._selection.where is None:
            return [True] * rows.num_rows
        asked = rows.select([column.name for column in self._columns])
        return self._database.meant_in(self._selection.where, asked, self._columns)

    def _routes(
        self, rows: "pa.Table", may_go: "pa.Array"
    ) -> "tuple[pa.Array, pa.Array, pa.Array, pa.Array]":
        """Return each row's way, whether it may be taken, how reliable it is, and why."""
        import pyarrow as pa
        import pyarrow.compute as pc

        nothing = pa.nulls(rows.num_rows, pa.string())
        if not self._selection.asks:
            to = self._selection.to
            is_ours = pc.is_null(rows[DEAD_LETTER_QUEUE].combine_chunks())
            own = pc.if_else(is_ours, rows["queue"].combine_chunks(), nothing)
            way = own if to is None else pa.repeat(to, rows.num_rows)
            return way, pc.is_valid(way), nothing, nothing
        columns = [rows[name].to_pylist() for name in (*NEEDED, DEAD_LETTER_QUEUE)]
        routes = [
            (_route_of(self._direction, values) if may else None) or _NO_ROUTE
            for values, may in zip(zip(*columns, strict=True), may_go.to_pylist(), strict=True)
        ]
        ways, goes, verdicts, reasons = zip(*(route[:4] for route in routes), strict=True)
        return (
            pa.array(ways, pa.string()),
            pa.array(goes, pa.bool_()),
            pa.array(verdicts, pa.string()),
            pa.array(reasons, pa.string()),
        )


_NO_ROUTE = (None, False, None, None, None)
