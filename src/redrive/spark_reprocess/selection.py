"""Which messages of a run to send, with which edits, and to which queue."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

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
    from pyspark.sql import Column, DataFrame

    from redrive.failures.message import columns as failures_columns


_SMALLEST = BY_NAME["size"]
"""The column to read if an expression uses none: a task still needs the number of rows."""
_SENT_BY = pa.struct([("exchange", pa.binary()), ("routing_key", pa.binary())])


FATE, WAY, VERDICT, REASON = "fate", "way", "verdict", "reason"
"""What becomes of a message; where it goes, as text; how reliable that way is, and why."""
_JUDGED = "judged"
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
        """Return the messages to send, or to discard, with the way that each is sent by; that is
        null if it follows from the queue."""
        return self._judged_as(Fate.CHOSEN, messages)

    def without_way_of(self, messages: "DataFrame") -> "DataFrame":
        """Return the messages that would be sent if they had a sure way back."""
        return self._judged_as(Fate.NO_WAY, messages)

    def _judged_as(self, fate: Fate, messages: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        judged = messages.withColumn(_JUDGED, self.judged()).where(f"{_JUDGED}.{FATE} = '{fate}'")
        return judged.withColumn(SENT_BY, F.col(f"{_JUDGED}.{SENT_BY}")).drop(_JUDGED)

    def judged(self) -> "Column":
        """Return a column that says what becomes of a message, and which way it is sent.

        Only columns that are needed for it are sent to the Python processes of the tasks.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf

        def judge(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            with RowJudge(self) as judge:
                for rows in batches:
                    table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])
                    found = judge.of(table).select([FATE, SENT_BY]).combine_chunks()
                    yield pa.StructArray.from_arrays(
                        [column.chunk(0) for column in found.columns], found.column_names
                    )

        # pyspark infers the function type from the annotations, which its own type stubs don't
        # cover; it warns if the type is passed explicitly.
        kind = f"struct<{FATE}: string, {SENT_BY}: {SENT_BY_TYPE}>"
        made: Column = arrow_udf(judge, kind)(F.struct(*self.needed))  # type: ignore[call-overload]
        return made

    @property
    def needed(self) -> list[str]:
        """The columns that tell what becomes of a message."""
        with RowJudge(self) as judge:
            return sorted(judge.needed)

    def chosen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are to be sent, with what each is sent by."""
        with RowJudge(self) as judge:
            for batch in batches:
                if batch.num_rows:
                    rows = judge.of(pa.Table.from_batches([batch]))
                    yield from rows.filter(pc.equal(rows[FATE], Fate.CHOSEN.value)).to_batches()

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
        with RowJudge(self):
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


class RowJudge:
    """Says what becomes of each row of a table; closes its database at the end of the block."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._direction = selection.direction
        self._database = None if selection.where is None else Database(selection.now)
        self._columns: tuple[failures_columns.Column, ...] = ()
        if self._database is not None and selection.where is not None:
            try:
                self._columns = self._database.columns_of(selection.where) or (_SMALLEST,)
            except BaseException:
                self._database.close()
                raise

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

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows, at least one, with what becomes of each and how it is sent."""

        def column(name: str) -> pa.Array:
            return rows[name].combine_chunks()

        selection, nobody = self._selection, pa.repeat(False, rows.num_rows)
        matches = pa.array(self._matching(rows), pa.bool_())
        if selection.decisions is not None:
            decided = pc.equal(column(DECISION), Decision.REQUEUE.value)
            matches = pc.and_(matches, pc.fill_null(decided, False))
        too_often = pc.greater_equal(column("redrive_count"), MOST_REDRIVES)
        too_often = nobody if selection.force else pc.and_(matches, too_often)
        may_go = pc.and_not(matches, too_often)
        way, goes, verdict, reason, sent_by = self._routes(rows, may_go)
        if selection.decisions is not None:
            to = column(TO)
            way, goes = pc.coalesce(to, way), pc.or_(pc.is_valid(to), goes)
            given = [None if one is None else (b"", one.encode()) for one in to.to_pylist()]
            sent_by = pc.coalesce(pa.array(given, _SENT_BY), sent_by)
        if selection.discards:
            goes = may_go
        fate = pc.if_else(
            may_go,
            pc.if_else(goes, Fate.CHOSEN.value, Fate.NO_WAY.value),
            pc.if_else(too_often, Fate.TOO_OFTEN.value, Fate.LEFT.value),
        )
        found = {FATE: fate, WAY: way, VERDICT: verdict, REASON: reason, SENT_BY: sent_by}
        for name, values in found.items():
            rows = rows.append_column(name, values)
        return rows

    def _matching(self, rows: pa.Table) -> list[bool]:
        if self._database is None or self._selection.where is None:
            return [True] * rows.num_rows
        asked = rows.select([column.name for column in self._columns])
        return self._database.meant_in(self._selection.where, asked, self._columns)

    def _routes(self, rows: pa.Table, may_go: pa.Array) -> Sequence[pa.Array]:
        """Return each row's way, whether it may be taken, how reliable it is and why, and what it
        is sent by if that does not follow from the queue."""
        nothing = pa.nulls(rows.num_rows, pa.string())
        if not self._selection.asks:
            to = self._selection.to
            is_ours = pc.is_null(rows[DEAD_LETTER_QUEUE].combine_chunks())
            own = pc.if_else(is_ours, rows["queue"].combine_chunks(), nothing)
            way = own if to is None else pa.repeat(to, rows.num_rows)
            return way, pc.is_valid(way), nothing, nothing, pa.nulls(rows.num_rows, _SENT_BY)
        columns = [rows[name].to_pylist() for name in (*NEEDED, DEAD_LETTER_QUEUE)]
        routes = [
            self._route_of(values) if may else _NO_ROUTE
            for values, may in zip(zip(*columns, strict=True), may_go.to_pylist(), strict=True)
        ]
        kinds = (pa.string(), pa.bool_(), pa.string(), pa.string(), _SENT_BY)
        return [
            pa.array(one, kind) for one, kind in zip(zip(*routes, strict=True), kinds, strict=True)
        ]

    def _route_of(self, values: Sequence[object]) -> tuple[object, ...]:
        try:
            route = self._direction.route_of(message_of(values))
        except ValueError:  # reported by the task that sends it
            return _NO_ROUTE
        way = route.way
        return (
            None if way is None else text_of(str(way)),
            self._direction.goes(route),
            route.verdict.value,
            route.reason,
            None if way is None else (bytes_of(way.exchange), bytes_of(way.routing_key)),
        )


_NO_ROUTE = (None, False, None, None, None)
