"""The table of `redrive top`: what a narrow terminal shows of it."""

from dataclasses import replace

import pytest

from redrive.cli import top
from redrive.cli.output import Cell, TableColumn, fitting
from redrive.errors import BrokerUnavailable
from redrive.pubsub.admin.management_api import ConsumerReports
from redrive.topology.flow import Flow, QueueCount

LONG = "warehouse-management@inventory-reservations"
FAILING = Flow(LONG, 0, 12, 3456, 0, 1.0, 2.0, 3.0, 4.0, 5.0)
HEALTHY = Flow("shop@orders", 0, 0, 0, 3, 99.9, 1.0, 0.0, 0.0, 0.0)


def fitted(width: int, *flows: Flow) -> tuple[list[TableColumn], list[list[str | Cell]]]:
    """What so wide a terminal shows of the live table."""
    rows = [top._row(flow) for flow in flows]
    return fitting(top._COLUMNS, rows, width, 1, head=top._head)


def text_of(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def titles(width: int, *flows: Flow) -> list[str]:
    """The columns that so wide a terminal shows."""
    return [column.title for column in fitted(width, *flows)[0]]


def test_where_there_is_room_all_columns_are_there() -> None:
    assert titles(200, FAILING) == [column.title for column in top._COLUMNS]


def test_a_short_name_has_all_its_numbers_in_80_columns() -> None:
    assert titles(80, HEALTHY) == [column.title for column in top._COLUMNS]


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120])
def test_a_name_is_whole_at_every_width_and_what_is_wrong_is_said(width: int) -> None:
    columns, shown = fitted(width, FAILING, HEALTHY)
    assert text_of(shown[0][0]) == LONG
    assert {"subscription", "failed", "state"} <= {column.title for column in columns}
    needed = [
        max(len(column.title.partition("/")[0]), *(len(text_of(row[place])) for row in shown))
        for place, column in enumerate(columns)
    ]
    assert sum(needed) + len(needed) - 1 <= width


def test_the_rates_go_before_the_depths() -> None:
    shown = titles(80, FAILING)
    assert "requeued/s" not in shown
    assert {"main", "failed", "consumers"} <= set(shown)


def test_handlers_that_hang_have_a_column_where_a_worker_tells_of_them() -> None:
    columns, rows = top._columns_and_rows([replace(HEALTHY, hung=2), HEALTHY])
    assert [column.title for column in columns[-2:]] == ["hung", "state"]
    assert [[text_of(cell) for cell in row[-2:]] for row in rows] == [["2", "2 hung"], ["–", ""]]


def test_what_is_down_is_the_state_of_a_subscription() -> None:
    state = top._state_of(replace(HEALTHY, down=("billing", "mail")))
    assert state.text == "down: billing, mail"


class WithoutStatistics:
    """A management API that counts messages and lists no consumers."""

    def counts(self) -> dict[str, QueueCount]:
        return {"shop@orders": QueueCount(ready=3), "shop@orders@failed": QueueCount()}

    def reports(self) -> dict[str, ConsumerReports]:
        raise BrokerUnavailable("http://localhost:15672", "it keeps no statistics")


def test_where_consumers_can_not_be_listed_the_queues_are_shown_all_the_same() -> None:
    source = top._Source(WithoutStatistics(), (), None)  # type: ignore[arg-type]
    count = source.counts()["shop@orders"]
    assert (count.ready, count.hung) == (3, None)


def test_a_subscription_that_fails_is_marked_in_a_word_and_a_colour() -> None:
    name, *_, state = top._row(FAILING)
    assert (name, state) == (Cell(LONG, "bold red"), Cell("failing", "bold red"))
    assert text_of(top._row(HEALTHY)[-1]) == ""


def test_a_subscription_that_nobody_consumes_says_so_in_a_word() -> None:
    places = [column.title for column in top._COLUMNS]
    assert text_of(top._row(FAILING)[places.index("consumers")]) == "none"


def test_the_longest_failed_queue_can_be_first() -> None:
    assert top._sorted([HEALTHY, FAILING], top.SortKey.FAILED) == [FAILING, HEALTHY]
    assert top._sorted([HEALTHY, FAILING], top.SortKey.NAME) == [HEALTHY, FAILING]


@pytest.mark.parametrize("room", [10, 20, 33, 60])
def test_of_a_name_longer_than_its_line_both_ends_are_there(room: int) -> None:
    name = f"first-{'x' * 60}-last"
    shown = top._within(name, room)
    assert len(shown) <= room
    assert (shown[:3], shown[-4:]) == ("fir", "last")
