"""`redrive top`: all subscriptions at a glance, as they change."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import options
from redrive.cli.output import Cell, Column, Form, Printer, count_of, line, paragraph
from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.management import Management
from redrive.redaction import in_one_line
from redrive.topology.flow import Flow, QueueCount, flows, on_the_ladder

if TYPE_CHECKING:
    from rich.text import Text

    from redrive.cli.terminal import Screen

_RATES = ("in", "done", "retried", "failed", "redriven")
_COLUMNS = (
    Column("subscription", give=True),
    *(Column(title, "right") for title in ("main", "retry", "failed", "consumers")),
    *(Column(f"{title}/s", "right") for title in _RATES),
)
_HEAD = 3
"""The lines of the live table's head: its titles take two, so that all numbers have room in 80 columns."""

_WIDE = 100
"""From so many columns on, the table has wider gaps."""

_REDRAW = 0.5
"""Seconds between two drawings; nobody waits longer for what was told."""

_LATE = 2.0
"""Seconds that an answer of the management API may take before the view says so."""

_UP, _DOWN, _PAGE_UP, _PAGE_DOWN = b"\x1b[A", b"\x1b[B", b"\x1b[5~", b"\x1b[6~"


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, and leave.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="Seconds between two looks.")] = 1.0,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Watch all subscriptions: what is in their queues, and what flows through them; q or Ctrl-C ends it, arrow keys scroll.

    It asks the management API, whose counts are up to five seconds old; rates are its averages over the last 15 seconds. main, retry and
    failed count what consumers hold, too. in/s has what was sent back among it, done/s what was set aside.

    \b
    Example:
      redrive top --once --output json
    """
    printer = Printer(output)
    connector = Connector(url, default_name("top"))
    with Management(connector.url, management_url) as management:
        if once or printer.as_json:
            _print_once(printer, management.counts())
        elif not sys.stdout.isatty():
            raise ConfigurationError("there is no terminal to draw in", "Give --once.")
        else:
            _watch(management, connector.url.address, interval)


def _print_once(printer: Printer, queues: Mapping[str, QueueCount]) -> None:
    found = flows(queues)
    printer.result({"subscriptions": [asdict(flow) for flow in found], "on_the_ladder": on_the_ladder(queues)})
    if printer.as_json:
        return
    printer.table(_COLUMNS, [_row(flow) for flow in found])
    printer.say(_footer(queues, found))


def _row(flow: Flow) -> list[str | Cell]:
    rates = (flow.rate_in, flow.rate_done, flow.rate_retried, flow.rate_failed, flow.rate_redriven)
    return [
        flow.queue,
        _depth(flow.main),
        _depth(flow.retry),
        _depth(flow.failed, "bold yellow"),
        Cell(f"{flow.consumers:,}", "" if flow.consumers else "yellow"),
        *("–" if rate is None else f"{rate:,.1f}" for rate in rates),
    ]


def _depth(count: int | None, style: str = "") -> Cell:
    return Cell("not there", "red") if count is None else Cell(f"{count:,}", style if count else "")


def _footer(queues: Mapping[str, QueueCount], found: list[Flow]) -> str:
    return f"{count_of(len(found), 'subscription')}; {count_of(on_the_ladder(queues), 'message')} on delay ladders"


# --- the live view --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the management API has told.

    Args:
        at: when it last answered, or was first asked.
        queues: what it answered then; None as long as it never did.
        problem: why there was no answer since.
    """

    at: float
    queues: Mapping[str, QueueCount] | None = None
    problem: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether asking again is of no use. Once it has answered it will again: a broker that starts may refuse anything."""
        unexpected = not isinstance(self.problem, RedriveError)
        refused = self.queues is None and not isinstance(self.problem, BrokerUnavailable)
        return self.problem is not None and (unexpected or refused)


class _Asking:
    """Asks the management API again and again, beside the view: who waits for a slow answer must still be able to leave."""

    def __init__(self, management: Management, interval: float) -> None:
        self.seen = _Seen(time.monotonic())
        self._management = management
        self._interval = interval
        # A daemon, as nobody waits for the last answer.
        threading.Thread(target=self._ask, name="redrive-top", daemon=True).start()

    def _ask(self) -> None:
        while not self.seen.is_over:
            try:
                self.seen = _Seen(time.monotonic(), self._management.counts())
            except Exception as error:  # noqa: BLE001 — the view says it, or raises it
                self.seen = replace(self.seen, problem=error)
            time.sleep(self._interval)


def _watch(management: Management, address: str, interval: float) -> None:
    from redrive.cli.terminal import drawing

    asking = _Asking(management, interval)
    first, room = 0, 1
    with drawing() as screen:
        while True:
            seen = asking.seen
            if seen.problem is not None and seen.is_over:
                raise seen.problem
            first, room = _draw(screen, address, seen, first, late=interval + _LATE)
            keys = screen.keys(min(interval, _REDRAW))
            if b"q" in keys.lower():
                return
            first += keys.count(_DOWN) - keys.count(_UP) + room * (keys.count(_PAGE_DOWN) - keys.count(_PAGE_UP))


def _draw(screen: "Screen", address: str, seen: _Seen, first: int, late: float) -> tuple[int, int]:
    """Draws it with this subscription at the top, or the nearest that can be; returns which, and for how many there is room."""
    found = flows(seen.queues or {})
    head = screen.lines(paragraph(f"redrive top — {address} — {time.strftime('%H:%M:%S')} — q ends it\n", "bold"))
    state = screen.lines(_state(seen, found, late))
    room = max(1, screen.height - len(head) - len(state) - _HEAD)
    if len(found) > room:
        room = max(1, room - 1)
        first = max(0, min(first, len(found) - room))
        state.append(f"{first + 1}–{first + len(found[first : first + room])} are shown; arrow keys show the others")
    else:
        first = 0
    screen.draw([*head, *_table(screen, found[first : first + room]), *state])
    return first, room


def _table(screen: "Screen", shown: list[Flow]) -> list[str]:
    from rich import box
    from rich.table import Table

    gap = 1 if screen.width >= _WIDE else 0
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column.title.replace("/", "\n/"), justify=column.align, no_wrap=not column.give)
    for flow in shown:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in _row(flow)]
        table.add_row(*(line(cell.text, cell.style) for cell in cells))
    return screen.lines(table)


def _state(seen: _Seen, found: list[Flow], late: float) -> "Text":
    age = time.monotonic() - seen.at
    old = f"what stands here is {age:.0f} s old"
    if seen.problem is not None:
        problem, _, remedy = str(seen.problem).partition("\n")
        if seen.queues is not None:
            # What to do about it is no matter of settings: it has answered before.
            return paragraph(f"{in_one_line(problem)}\nAsking again; {old}.", "bold red")
        return paragraph("\n".join(filter(None, (in_one_line(problem), in_one_line(remedy), "Asking again."))), "bold red")
    if seen.queues is None:
        return paragraph(f"Asking the management API{f', for {age:.0f} s by now' if age >= late else ''}.")
    footer = _footer(seen.queues, found)
    return paragraph(f"{footer}; the management API is slow: {old}", "yellow") if age >= late else paragraph(footer)
