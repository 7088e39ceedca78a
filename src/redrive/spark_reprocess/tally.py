"""Count messages by cause, by what becomes of them, by time and by size, in one pass.

A task counts the rows that it has in hand, whether it drains them or reads them in the archive, and
returns a few rows of counts. The driver adds these up; no message comes to it. `run_plan` turns the
counts into a plan, as often as it is asked.

Each row of counts belongs to a part:

    cell      messages with the same cause, fate, way and state
    time      messages that failed in the same interval
    size      messages whose bodies are about the same size
    example   a message without a sure way back
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from redrive.failures.store.stored_message import DEAD_LETTER_QUEUE
from redrive.spark_reprocess.archived_messages import STATE
from redrive.spark_reprocess.row_message import ID
from redrive.spark_reprocess.selection import (
    FATE,
    REASON,
    VERDICT,
    WAY,
    Fate,
    RowJudge,
    Selection,
)
from redrive.spark_reprocess.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CELL, TIME, SIZE, EXAMPLE = "cell", "time", "size", "example"
PART, AT, WIDTH, COUNT = "part", "at", "width", "count"
_KEYS = (STATE, "group_id", "queue", FATE, WAY, VERDICT, REASON)
_SUMS = {
    "error_type": "first",
    "error_message": "first",
    COUNT: "sum",
    "size": "sum",
    "largest": "max",
    "first": "min",
    "last": "max",
}
_EXAMPLES = (ID, DEAD_LETTER_QUEUE, "error_type", "error_message")
FAILED_AT = "failed_at"
COUNTED = frozenset({STATE, "group_id", "queue", "size", FAILED_AT, *_EXAMPLES})

TALLY = pa.schema(
    [
        (PART, pa.string()),
        *((name, pa.string()) for name in _KEYS),
        *((name, pa.string()) for name in _EXAMPLES),
        *((name, pa.int64()) for name in (AT, WIDTH, COUNT, "size", "largest", "first", "last")),
    ]
)
TALLY_DDL = ", ".join(
    f"`{field.name}` {'string' if field.type == pa.string() else 'bigint'}" for field in TALLY
)
_MOST_CELLS = 20_000
"""Cells that are counted apart. Names and causes are written by others: further ones are counted
together, so that memory stays bounded."""
_MOST_INTERVALS = 4096
_FEW = 20
_ROWS_AT_A_TIME = 50_000
WIDTHS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400)
"""Lengths of an interval, in seconds. Each divides the next, so that counts can be coarsened."""


class Tally:
    """The counts of rows that a task has in hand."""

    def __init__(self, judge: RowJudge) -> None:
        self._judge = judge
        self._counts = TALLY.empty_table()
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Count rows that have an id and a state, besides the columns of the filter language."""
        if rows.num_rows:
            names = {*COUNTED, *self._judge.needed}
            self._waiting.append(
                self._judge.of(rows.select(sorted(names))).drop_columns(sorted(names - COUNTED))
            )
        if sum(one.num_rows for one in self._waiting) >= _ROWS_AT_A_TIME:
            self._count()

    def counts(self) -> pa.Table:
        """Return the counts of all rows so far."""
        self._count()
        return self._counts

    def _count(self) -> None:
        if self._waiting:
            self._counts = added([self._counts, counted(pa.concat_tables(self._waiting))])
            self._waiting = []


def tally_of(messages: "DataFrame", selection: Selection) -> pa.Table:
    """Return the counts of messages that have an id and a state."""
    needed = sorted({*COUNTED, *selection.needed})

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with RowJudge(selection) as judge:
            tally = Tally(judge)
            for batch in batches:
                tally.add(pa.Table.from_batches([batch]))
            yield from tally.counts().to_batches()

    with explained():
        return added([messages.select(*needed).mapInArrow(count, TALLY_DDL).toArrow().cast(TALLY)])


def rows_in(counts: pa.Table) -> int:
    """Return how many rows were counted."""
    cells = counts.filter(pc.equal(counts[PART], CELL))
    return int(pc.sum(cells[COUNT]).as_py() or 0)


def counted(rows: pa.Table) -> pa.Table:
    """Return the counts of judged rows."""
    ones = pa.repeat(1, rows.num_rows)
    seconds = pc.divide(rows[FAILED_AT].cast(pa.int64()), 1_000_000)
    cells = {
        **{name: rows[name] for name in (*_KEYS, "error_type", "error_message")},
        COUNT: ones,
        "size": rows["size"],
        "largest": rows["size"],
        "first": seconds,
        "last": seconds,
    }
    apart = {STATE: rows[STATE], COUNT: ones, WIDTH: ones}
    without_way = _first_few(rows.filter(pc.equal(rows[FATE], Fate.NO_WAY.value)))
    return added(
        [
            _of(CELL, cells),
            _of(TIME, {**apart, AT: seconds}).filter(pc.is_valid(pc.field(AT))),
            _of(SIZE, {**apart, AT: rows["size"]}),
            _of(EXAMPLE, {name: without_way[name] for name in (*_EXAMPLES, STATE)}),
        ]
    )


def added(counts: Iterable[pa.Table]) -> pa.Table:
    """Return the sum of counts."""
    whole = pa.concat_tables(counts).combine_chunks()
    parts = {part: whole.filter(pc.equal(whole[PART], part)) for part in (CELL, TIME, SIZE)}
    return pa.concat_tables(
        [
            _cells(parts[CELL]),
            _intervals(TIME, parts[TIME]),
            _intervals(SIZE, parts[SIZE]),
            _first_few(whole.filter(pc.equal(whole[PART], EXAMPLE))),
        ]
    )


def _first_few(rows: pa.Table) -> pa.Table:
    """Return the rows with the lowest ids. Source: pyarrow 18.0 ends with an error if asked to
    select some of none."""
    if not rows.num_rows:
        return rows
    return rows.take(pc.select_k_unstable(rows, _FEW, [(ID, "ascending")]))


def _of(part: str, columns: dict[str, pa.ChunkedArray | pa.Array]) -> pa.Table:
    """Return rows of a part; columns that are not given are null."""
    rows = len(next(iter(columns.values())))
    return pa.Table.from_arrays(
        [
            pa.repeat(part, rows)
            if field.name == PART
            else columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in TALLY
        ],
        schema=TALLY,
    )


def _cells(cells: pa.Table) -> pa.Table:
    summed = _summed(cells)
    if summed.num_rows <= _MOST_CELLS:
        return summed
    ordered = summed.sort_by([(COUNT, "descending")])
    rest = ordered.slice(_MOST_CELLS)
    empty = pa.repeat("", rest.num_rows)
    for name in ("group_id", "queue", WAY, REASON):
        rest = rest.set_column(rest.schema.get_field_index(name), name, empty)
    for name in ("error_type", "error_message"):
        rest = rest.set_column(
            rest.schema.get_field_index(name), name, pa.nulls(rest.num_rows, pa.string())
        )
    return pa.concat_tables([ordered.slice(0, _MOST_CELLS), _summed(rest)])


def _summed(cells: pa.Table) -> pa.Table:
    found = cells.group_by(list(_KEYS), use_threads=False).aggregate(list(_SUMS.items()))
    return _of(
        CELL,
        {
            **{name: found[name] for name in _KEYS},
            **{name: found[f"{name}_{how}"] for name, how in _SUMS.items()},
        },
    )


def _intervals(part: str, counts: pa.Table) -> pa.Table:
    """Add up counts by interval; the intervals get longer where there would be too many."""
    summed = _by_start(part, counts)
    for width in _coarser():
        if summed.num_rows <= _MOST_INTERVALS:
            break
        summed = _by_start(part, coarsened(summed, width))
    return summed


def _by_start(part: str, counts: pa.Table) -> pa.Table:
    found = counts.group_by([STATE, AT], use_threads=False).aggregate(
        [(COUNT, "sum"), (WIDTH, "max")]
    )
    return _of(
        part,
        {
            STATE: found[STATE],
            AT: found[AT],
            COUNT: found[f"{COUNT}_sum"],
            WIDTH: found[f"{WIDTH}_max"],
        },
    )


def coarsened(counts: pa.Table, width: int) -> pa.Table:
    """Return counts whose intervals start at multiples of a width."""
    parts = pc.floor(pc.divide(pc.cast(counts[AT], pa.float64()), width))
    starts = pc.multiply(pc.cast(parts, pa.int64()), width)
    widths = pc.max_element_wise(counts[WIDTH], width)
    return counts.set_column(counts.schema.get_field_index(AT), AT, starts).set_column(
        counts.schema.get_field_index(WIDTH), WIDTH, widths
    )


def _coarser() -> Iterator[int]:
    yield from WIDTHS[1:]
    width = WIDTHS[-1]
    while True:
        width *= 2
        yield width
