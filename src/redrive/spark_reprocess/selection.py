"""What of a run is sent: all that an expression means, changed or not, and where to."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from redrive.errors import ConfigurationError
from redrive.failures.columns import BY_NAME
from redrive.failures.database import Database
from redrive.failures.direction import Direction
from redrive.failures.edit import patching
from redrive.failures.route import WITHOUT_TOPOLOGY, Judge
from redrive.failures.stored_message import DEAD_LETTER_QUEUE, NEEDED, bytes_of, message_of
from redrive.redaction import text_of
from redrive.spark_reprocess.row_message import SENT_BY, SENT_BY_TYPE
from redrive.spark_reprocess.transform import Transform, of_each, transform_named
from redrive.topology.rewrite import MOST_REDRIVES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_SMALLEST = BY_NAME["size"]
"""What is read where an expression speaks of no column: a task must see how many rows there are."""


def check_filter(expression: str, now: datetime) -> None:
    """Raises ConfigurationError where an expression can't be used; the message says where it is
    wrong."""
    with Database(now) as database:
        database.columns_of(expression)


def is_chosen(expression: str, now: datetime) -> "Column":
    """A column that is true of the messages that an expression means, and never null.

    Only what the expression speaks of goes to the tasks' Python.
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
    # Its kind is read from the annotations, which pyspark's own types don't know; it warns where it
    # is given.
    chosen: Column = arrow_udf(meant, "boolean")(F.struct(*asked))  # type: ignore[call-overload]
    return chosen


CHOSEN = "chosen"
STAYS = "stays"
NO_WAY = "no_way"
WAY = "way"
ROUTE = "route"
_ROUTE_TYPE = (
    f"struct<way: string, goes: boolean, verdict: string, reason: string, parts: {SENT_BY_TYPE}>"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a run is sent, how it is changed, and where to.

    Args:
        where: an expression of the filter language; None for all.
        transform: `module:function`, which changes bodies; None for none.
        now: what `now()` says in the expression.
        force: whether messages go that were requeued too often already.
        patch: the text of a JSON patch or merge patch of the bodies; None for none.
        to: a queue for all of it; None for where each message failed.
        via: whether it is published as it was first, by its exchange and key.
        discards: whether it is marked as not wanted instead of sent.
        unchecked: whether that goes, too, whose way back the broker could not confirm.
        judge: says where what is in dead-letter queues goes; None where there is none, or nobody
            could be asked.
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
    judge: Judge | None = field(default=None, compare=False)

    @property
    def direction(self) -> Direction:
        """Where it is sent."""
        return Direction(self.to, self.via, self.unchecked, self.judge or WITHOUT_TOPOLOGY)

    def change(self) -> Transform | None:
        """Return what changes the bodies; None if they are sent as they are."""
        if self.patch is None:
            return None if self.transform is None else transform_named(self.transform)
        if self.transform is not None:
            raise ConfigurationError("--patch and --transform exclude each other", "Give one.")
        return of_each(patching(self.patch))

    @property
    def changed_by(self) -> str | None:
        """What changes the bodies, in words; None if they are sent as they are."""
        return self.transform if self.patch is None else f"the patch {self.patch}"

    def marked(self, messages: "DataFrame") -> "DataFrame":
        """The messages with further columns: whether each is `chosen`, which is what is sent;
        whether it `stays` although it is meant, because it was requeued too often; whether it has
        `no_way`, and stays for that; the `way` that it goes, in words; and its `route`, which says
        how far that can be relied upon, and why."""
        from pyspark.sql import functions as F

        meant = F.lit(True) if self.where is None else is_chosen(self.where, self.now)
        too_often = F.lit(False) if self.force else F.col("redrive_count") >= MOST_REDRIVES
        has_no_way = F.lit(False) if self.discards else F.col(WAY).isNull()
        return (
            self._routed(messages.withColumn(CHOSEN, meant))
            .withColumn(STAYS, F.col(CHOSEN) & too_often)
            .withColumn(NO_WAY, F.col(CHOSEN) & ~too_often & has_no_way)
            .withColumn(CHOSEN, F.col(CHOSEN) & ~too_often & ~has_no_way)
        )

    def of(self, messages: "DataFrame") -> "DataFrame":
        """Those of the messages that are sent."""
        from pyspark.sql import functions as F

        meant = self._meant_of(messages)
        sent = meant if self.discards else meant.where(F.col(WAY).isNotNull())
        return sent.drop(WAY, ROUTE)

    def without_way_of(self, messages: "DataFrame") -> "DataFrame":
        """Those of the messages that would be sent if it were known where to."""
        from pyspark.sql import functions as F

        return self._meant_of(messages).where(F.col(WAY).isNull()).drop(WAY, ROUTE)

    def with_ways(self, messages: "DataFrame") -> "DataFrame":
        """The messages with the way of each, by which it is sent whatever its body is by then."""
        from pyspark.sql import functions as F

        routed = self._routed(messages)
        return routed.withColumn(SENT_BY, F.col(f"{ROUTE}.parts")).drop(WAY, ROUTE)

    def _meant_of(self, messages: "DataFrame") -> "DataFrame":
        """Those that are meant and were not requeued too often, with the way of each."""
        from pyspark.sql import functions as F

        meant = messages if self.where is None else messages.where(is_chosen(self.where, self.now))
        meant = meant if self.force else meant.where(F.col("redrive_count") < MOST_REDRIVES)
        return self._routed(meant)

    def _routed(self, messages: "DataFrame") -> "DataFrame":
        """The messages with the route of each, and with its way in words: null where it stays."""
        from pyspark.sql import functions as F

        direction = self.direction

        def route_of(*values: object) -> object:
            return _route_of(direction, values)

        if self.to is not None or (self.judge is None and not self.via):
            # All goes to one queue, or nothing but subscriptions' messages is there.
            is_ours = F.col(DEAD_LETTER_QUEUE).isNull()
            way = F.lit(self.to) if self.to is not None else F.when(is_ours, F.col("queue"))
            return messages.withColumns({WAY: way, ROUTE: F.lit(None).cast(_ROUTE_TYPE)})
        made = F.udf(route_of, _ROUTE_TYPE, useArrow=False)
        routed = messages.withColumn(ROUTE, made(*map(F.col, (*NEEDED, DEAD_LETTER_QUEUE))))
        return routed.withColumn(WAY, F.when(F.col(f"{ROUTE}.goes"), F.col(f"{ROUTE}.way")))

    @property
    def key(self) -> str:
        """The same for the same choice made at the same time."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Check that it can be used."""
        _ = self.direction
        if self.where is not None:
            check_filter(self.where, self.now)
        self.change()

    @classmethod
    def from_dict(cls, noted: Mapping[str, str | None]) -> Self:
        """What `to_dict` has given."""
        return cls(
            noted["where"],
            noted["transform"],
            datetime.fromisoformat(noted["now"] or ""),
            noted.get("force") is not None,
            noted.get("patch"),
            noted.get("to"),
            noted.get("via") is not None,
            unchecked=noted.get("unchecked") is not None,
        )

    def to_dict(self) -> dict[str, str | None]:
        """For the archive."""
        # Written only where it is so: what an older version has chosen keeps its key.
        others = {
            "force": "yes" if self.force else None,
            "patch": self.patch,
            "to": self.to,
            "via": "yes" if self.via else None,
            "unchecked": "yes" if self.unchecked else None,
        }
        return {
            "where": self.where,
            "transform": self.transform,
            "now": self.now.isoformat(),
            **{name: value for name, value in others.items() if value is not None},
        }


def _route_of(direction: Direction, values: Iterable[object]) -> tuple[object, ...] | None:
    """The route of the message that is made of these values, as `_ROUTE_TYPE` has it."""
    # Spark passes bytes as bytearrays.
    given = [bytes(one) if isinstance(one, bytearray) else one for one in values]
    try:
        route = direction.route_of(message_of(given))
    except ValueError:  # the task that sends it says so
        return None
    way = route.way
    return (
        None if way is None else text_of(str(way)),
        direction.goes(route),
        route.verdict.value,
        route.reason,
        None if way is None else (bytes_of(way.exchange), bytes_of(way.routing_key)),
    )
