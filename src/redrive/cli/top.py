"""`redrive top`: a live view of all subscriptions."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import completion, dead_letter_output, environment, options
from redrive.cli.output import (
    Cell,
    OutputFormat,
    Printer,
    TableColumn,
    fitting,
    line,
    paragraph,
    width_of,
)
from redrive.errors import BrokerUnavailable, ConfigurationError, RedriveError
from redrive.number_text import count_of
from redrive.pubsub.admin import dead_letter_survey
from redrive.pubsub.admin.dead_letter_survey import CountedQueue
from redrive.pubsub.admin.management_api import ConsumerReports, ManagementAPI
from redrive.pubsub.blocking import control
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.redaction import in_one_line
from redrive.topology import names
from redrive.topology.control import Control
from redrive.topology.flow import Flow, QueueCount, flows, on_the_ladder
from redrive.topology.names import ExchangeFamily

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


_CLEAR = "\x1b[2J"


class Screen:
    """The whole terminal, inside `drawing`."""

    def __init__(self, console: "Console", keyboard: int | None) -> None:
        self._console = console
        self._keyboard = keyboard
        self._size: tuple[int, int] | None = None
        self._drawn: list[str] = []

    @property
    def width(self) -> int:
        """Width in columns."""
        return self._console.width

    @property
    def height(self) -> int:
        """Height in lines."""
        return self._console.height

    def lines(self, what: "RenderableType") -> list[str]:
        """Return the lines that something takes up."""
        with self._console.capture() as captured:
            self._console.print(what)
        return captured.get().splitlines()

    def draw(self, lines: Sequence[str]) -> None:
        """Show exactly these lines. Only lines that changed are written: the link may be slow."""
        size = (self.width, self.height)
        resized = size != self._size
        there = [] if resized else self._drawn
        wanted = [*lines[: size[1]], *[""] * (len(there) - len(lines))]
        written = _CLEAR if resized else ""
        for number, text in enumerate(wanted):
            if number >= len(there) or text != there[number]:
                written += f"\x1b[{number + 1};1H\x1b[2K{text}"
        self._size, self._drawn = size, wanted
        sys.stdout.write(written)
        sys.stdout.flush()

    def keys(self, seconds: float) -> bytes:
        """Wait this many seconds, or until keys are pressed, and return them; return `q` at the end
        of the input."""
        if self._keyboard is None:
            time.sleep(seconds)
            return b""
        ready, _, _ = select.select([self._keyboard], [], [], seconds)
        return (os.read(self._keyboard, 64) or b"q") if ready else b""


@contextlib.contextmanager
def drawing() -> Iterator[Screen]:
    """Yield the terminal to draw on, and restore it at the end, whatever happens. Ctrl-C ends the
    block, and SIGTERM ends the process."""
    import termios
    import tty

    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    keyboard = sys.stdin.fileno() if sys.stdin.isatty() else None
    was = termios.tcgetattr(keyboard) if keyboard is not None else None
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        console.set_alt_screen(True)
        console.show_cursor(False)
        yield Screen(console, keyboard)
    except KeyboardInterrupt:
        pass  # a normal way to end it
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the cleanup
        console.show_cursor(True)
        console.set_alt_screen(False)
        if keyboard is not None and was is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, was)
        signal.signal(signal.SIGTERM, old)


_LONGEST_NAME = 48
"""Width up to which a name may hide columns; a longer one is wrapped or cut in its middle."""

_COLUMNS = (
    TableColumn("subscription", give=True, wrap=True, least=_LONGEST_NAME),
    TableColumn("main", "right", hide=7),
    TableColumn("retry", "right", hide=5),
    TableColumn("failed", "right"),
    TableColumn("consumers", "right", hide=8),
    TableColumn("in/s", "right", hide=4),
    TableColumn("done/s", "right", hide=3),
    TableColumn("retried/s", "right", hide=2),
    TableColumn("failed/s", "right", hide=6),
    TableColumn("requeued/s", "right", hide=1),
    TableColumn("state"),
)

_HUNG = TableColumn("hung", "right", hide=9)
"""Inserted before the last column if a worker reports handlers that hang."""

_HEAD = 3
"""Lines of the live table's header: its titles take two, so that more columns fit."""

_WIDE = 100
"""Number of columns from which the table has wider gaps."""

_REDRAW = 0.5
"""Seconds between redraws, and so the longest delay before a new answer is shown."""

_OTHERS = 10.0
"""Seconds between searches for dead-letter queues that redrive did not make: each lists all
bindings."""

_MOST_OTHERS = 4
"""Maximum number of these queues in the live view."""

_LINES_FOR_ONE = 5
"""Lines that a terminal must have for each of these queues that is shown."""

_OF_OTHERS = "Other queues with failed messages"

_LATE = 2.0
"""Seconds that the management API may take to answer before the view says so."""

_UP, _DOWN, _PAGE_UP, _PAGE_DOWN = b"\x1b[A", b"\x1b[B", b"\x1b[5~", b"\x1b[6~"


class SortKey(StrEnum):
    """The sort order of subscriptions."""

    NAME = "name"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions(options.BrokerOptions):
    """Options that say where the broker is, and name an exchange family if only one is wanted."""

    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange",
            envvar=environment.EXCHANGE_VARIABLE,
            metavar="NAME",
            show_default=False,
            help="Only the subscriptions of this exchange family, by its main exchange. Default: "
            "all.",
        ),
    ] = None
    retry_suffix: options.RetrySuffix = options.DEFAULT_RETRY_SUFFIX
    failed_suffix: options.FailedSuffix = options.DEFAULT_FAILED_SUFFIX

    @property
    def family(self) -> ExchangeFamily | None:
        """Exchange family; None for all."""
        if self.exchange is None:
            return None
        return ExchangeFamily(self.exchange, self.retry_suffix, self.failed_suffix)


@options.expanded
def top(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE",
            help="Main queues or dead-letter queues, or patterns such as 'shop@*'. Default: all.",
            autocompletion=completion.queues,
            show_default=False,
        ),
    ] = None,
    sort: Annotated[
        SortKey,
        typer.Option("--sort", help="Sort by name, or the longest failed queue first."),
    ] = SortKey.NAME,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.2, help="Seconds between two updates."),
    ] = 1.0,
    *,
    broker: TopOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Watch all subscriptions live.

    It shows how many messages are in their queues and how many pass through them. Below are the
    dead-letter queues that redrive did not make, updated every ten seconds. q or Ctrl-C ends it,
    and the arrow keys scroll. A narrow terminal hides the least important columns.

    The numbers are the management API's: counts are up to five seconds old, and rates are averages
    over the last 15 seconds. Messages that consumers hold or that the broker is dead-lettering
    count too. in/s includes requeued messages, done/s includes those that were given up. hung
    counts handlers that are still running after their time is up, if workers report them. The state
    "down: NAME" means that workers take few messages or none until NAME answers again, and "paused"
    that somebody has paused the subscription (redrive pause).

    \b
    Example:
      redrive top --once --output json
    """
    printer = Printer(output)
    connector = Connector(broker.url, default_name("top"))
    family = broker.family
    with ManagementAPI(connector.url, broker.management_url) as management:
        source = _Source(management, tuple(queues or ()), family, connector)
        if once or printer.for_programs:
            _print_once(printer, source.counts(), source.others(), sort)
        elif not sys.stdout.isatty():
            raise ConfigurationError("there is no terminal to draw in", "Give --once.")
        else:
            _watch(source, connector.url.address, interval, sort)


@dataclass(frozen=True, slots=True)
class _Others:
    """The dead-letter queues that redrive did not make.

    Args:
        found: the queues, the fullest first; None if they can't be listed.
        problem: why they can't be listed.
    """

    found: Sequence[CountedQueue] | None
    problem: str = ""

    @property
    def title(self) -> str:
        """Heading of their list; empty if there is nothing to say."""
        if self.found is None:
            return f"{_OF_OTHERS} can't be listed: {self.problem.rstrip('.')}."
        return f"{_OF_OTHERS}:" if self.found else ""


class _Source:
    """The management API's counts for the subscriptions that were asked for."""

    def __init__(
        self,
        management: ManagementAPI,
        patterns: tuple[str, ...],
        family: ExchangeFamily | None,
        connector: Connector | None = None,
    ) -> None:
        self._connector = connector
        self._controls: Mapping[str, Control] = {}
        self._controls_at = -_OTHERS
        self._management = management
        self._patterns = patterns
        self._family = family
        self._others = _Others(())
        self._looked_at = -_OTHERS

    def counts(self) -> Mapping[str, QueueCount]:
        """Return the counts of the queues of these subscriptions, and of their delay ladders."""
        counts, reports, controls = self._management.counts(), self._reports(), self._paused()
        wanted = {main for main in names.main_queues(counts) if self._is_named(main)}
        if self._family is not None:
            wanted &= self._of_the_family(wanted)
        queues = {queue for main in wanted for queue in _queues_of(main)}
        return {
            name: _with_reports(count, reports.get(name), controls.get(name))
            for name, count in counts.items()
            if name in queues or (names.is_of_a_ladder(name) and self._is_of_its_ladder(name))
        }

    def _reports(self) -> Mapping[str, ConsumerReports]:
        """Return what consumers report, by queue; nothing if they can't be listed. A broker without
        statistics refuses to list them, and its queues are shown anyway."""
        try:
            return self._management.reports()
        except RedriveError:
            return {}

    def _paused(self) -> Mapping[str, Control]:
        """Return what is paused, up to ten seconds old; nothing if that can't be read."""
        if self._connector is None:
            return {}
        if time.monotonic() - self._controls_at >= _OTHERS:
            self._controls_at = time.monotonic()
            try:
                self._controls = control.read(self._connector, self._family or ExchangeFamily())
            except RedriveError:
                self._controls = {}
        now = datetime.now(UTC)
        return {queue: one for queue, one in self._controls.items() if one.holds(now)}

    def others(self) -> "_Others":
        """Return the dead-letter queues that redrive did not make, up to ten seconds old; none if
        an exchange family was named."""
        if self._family is None and time.monotonic() - self._looked_at >= _OTHERS:
            try:
                found = dead_letter_survey.over_management(self._management)
            except RedriveError as error:  # what can be counted is shown anyway
                self._others = _Others(None, in_one_line(str(error).partition("\n")[0]))
            else:
                named = [one for one in found if self._is_named(one.queue.name)]
                self._others = _Others(dead_letter_output.fullest_first(named))
            self._looked_at = time.monotonic()
        return self._others

    def _is_named(self, main: str) -> bool:
        return not self._patterns or any(fnmatchcase(main, one) for one in self._patterns)

    def _of_the_family(self, mains: set[str]) -> set[str]:
        """Return the subscriptions that have a queue bound to an exchange of the family."""
        family = self._family
        assert family is not None
        exchanges = {family.main, family.retry, family.failed}
        bound = {one.destination for one in self._management.bindings() if one.source in exchanges}
        return {main for main in mains if not bound.isdisjoint(_queues_of(main))}

    def _is_of_its_ladder(self, queue: str) -> bool:
        return self._family is None or queue.startswith(f"{self._family.main}.")


def _with_reports(
    count: QueueCount, found: ConsumerReports | None, control: Control | None
) -> QueueCount:
    if found is not None:
        count = replace(count, hung=found.hung, down=tuple(sorted(found.down)))
    return count if control is None else replace(count, paused=str(control))


def _queues_of(main: str) -> tuple[str, str, str]:
    return main, names.retry_queue(main), names.failed_queue(main)


def _print_once(
    printer: Printer,
    queues: Mapping[str, QueueCount],
    others: _Others,
    sort: SortKey,
) -> None:
    found = _sorted(flows(queues), sort)
    printer.result(
        {
            "subscriptions": [asdict(flow) for flow in found],
            "on_the_ladder": on_the_ladder(queues),
            "dead_letter_queues": None
            if others.found is None
            else [dead_letter_output.json_of(one) for one in others.found],
        }
    )
    if printer.for_programs:
        return
    printer.table(*_columns_and_rows(found))
    for flow in found:
        if flow.paused:
            printer.say(f"{flow.queue} is {flow.paused}.", "yellow")
    printer.say(_footer(queues, found))
    if others.title:
        printer.say(f"\n{others.title}", "bold")
    if others.found:
        printer.table_of(others.found, dead_letter_output.columns())


def _sorted(found: list[Flow], sort: SortKey) -> list[Flow]:
    if sort is SortKey.NAME:
        return found
    return sorted(found, key=lambda flow: -(flow.failed or 0))


def _columns_and_rows(
    found: Sequence[Flow],
) -> tuple[Sequence[TableColumn], list[list[str | Cell]]]:
    rows = [_row(flow) for flow in found]
    if all(flow.hung is None for flow in found):
        return _COLUMNS, rows
    for flow, row in zip(found, rows, strict=True):
        row.insert(-1, Cell("–") if flow.hung is None else Cell(f"{flow.hung:,}", "yellow"))
    return (*_COLUMNS[:-1], _HUNG, _COLUMNS[-1]), rows


def _row(flow: Flow) -> list[str | Cell]:
    rates = (flow.rate_in, flow.rate_done, flow.rate_retried, flow.rate_failed, flow.rate_redriven)
    state = _state_of(flow)
    return [
        Cell(flow.queue, state.style),
        _depth(flow, "main"),
        _depth(flow, "retry"),
        _depth(flow, "failed", "bold yellow"),
        _consumers(flow.consumers),
        *(Cell("–" if rate is None else f"{rate:,.1f}") for rate in rates),
        state,
    ]


def _state_of(flow: Flow) -> Cell:
    """Return in a word and a colour whether a subscription is failing, is paused, waits for
    something that is down, has handlers that hang, or has messages that the broker is
    dead-lettering; otherwise an empty cell."""
    if flow.rate_failed:
        return Cell("failing", "bold red")
    if flow.paused:
        return Cell(flow.paused.partition(" by ")[0], "yellow")
    if flow.down:
        return Cell(f"down: {', '.join(flow.down)}", "bold red")
    if flow.hung:
        return Cell(f"{flow.hung:,} hung", "yellow")
    moving = flow.dead_lettering
    return Cell(f"dead-lettering {moving:,}", "yellow") if moving else Cell("")


def _depth(flow: Flow, place: str, style: str = "") -> Cell:
    count = getattr(flow, place)
    if place in flow.missing:
        return Cell("missing", "red")
    return Cell("–") if count is None else Cell(f"{count:,}", style if count else "")


def _consumers(count: int | None) -> Cell:
    if count is None:
        return Cell("–")
    return Cell(f"{count:,}") if count else Cell("none", "yellow")


def _footer(queues: Mapping[str, QueueCount], found: list[Flow]) -> str:
    waiting = on_the_ladder(queues)
    many = "an unknown number of messages" if waiting is None else count_of(waiting, "message")
    uncounted = sum(count.total is None for count in queues.values())
    # A new queue has no counts for a few seconds.
    unknown = f"; {count_of(uncounted, 'queue')} not counted by the broker" if uncounted else ""
    return f"{count_of(len(found), 'subscription')}; {many} on delay ladders{unknown}"


# --- the live view --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the management API has answered.

    Args:
        at: when it last answered, or was first asked.
        queues: what it answered then; None before the first answer.
        problem: why there has been no answer since.
        others: the dead-letter queues that redrive did not make.
    """

    at: float
    queues: Mapping[str, QueueCount] | None = None
    problem: Exception | None = None
    others: _Others = _Others(())

    @property
    def is_over(self) -> bool:
        """Whether asking again is pointless. If the API has answered before, it will again: a
        broker that is starting may refuse anything."""
        unexpected = not isinstance(self.problem, RedriveError)
        refused = self.queues is None and not isinstance(self.problem, BrokerUnavailable)
        return self.problem is not None and (unexpected or refused)


class _Asking:
    """A thread that keeps asking the management API, so that a slow answer can't keep the user from
    quitting."""

    def __init__(self, source: _Source, interval: float) -> None:
        self.seen = _Seen(time.monotonic())
        self._source = source
        self._interval = interval
        # A daemon, as nobody waits for the last answer.
        threading.Thread(target=self._ask, name="redrive-top", daemon=True).start()

    def _ask(self) -> None:
        while not self.seen.is_over:
            try:
                counts, others = self._source.counts(), self._source.others()
                self.seen = _Seen(time.monotonic(), counts, others=others)
            except Exception as error:  # noqa: BLE001 — the view shows it, or raises it
                self.seen = replace(self.seen, problem=error)
            time.sleep(self._interval)


def _watch(source: _Source, address: str, interval: float, sort: SortKey) -> None:

    asking = _Asking(source, interval)
    first, room = 0, 1
    with drawing() as screen:
        while True:
            seen = asking.seen
            if seen.problem is not None and seen.is_over:
                raise seen.problem
            first, room = _draw(screen, address, seen, first, sort=sort, late=interval + _LATE)
            keys = screen.keys(min(interval, _REDRAW))
            if b"q" in keys.lower():
                return
            first += (
                keys.count(_DOWN)
                - keys.count(_UP)
                + room * (keys.count(_PAGE_DOWN) - keys.count(_PAGE_UP))
            )


def _draw(
    screen: "Screen", address: str, seen: _Seen, first: int, *, sort: SortKey, late: float
) -> tuple[int, int]:
    """Draw the view with this subscription at the top, or the nearest possible; return which one is
    at the top, and how many fit."""
    found = _sorted(flows(seen.queues or {}), sort)
    head = screen.lines(
        paragraph(f"redrive top — {address} — {time.strftime('%H:%M:%S')} — q quits\n", "bold")
    )
    state = screen.lines(_state(seen, found, late)) + _lines_of_others(screen, seen.others)
    room = max(1, screen.height - len(head) - len(state) - _HEAD)
    if len(found) > room:
        room = max(1, room - 1)
        first = max(0, min(first, len(found) - room))
        state.append(
            f"showing {first + 1}–{first + len(found[first : first + room])}; arrow keys scroll"
        )
    else:
        first = 0
    screen.draw([*head, *_table(screen, found[first : first + room]), *state])
    return first, room


def _lines_of_others(screen: "Screen", others: _Others) -> list[str]:
    """Return a line for each of the fullest dead-letter queues that redrive did not make, as many
    as fit."""
    from rich.table import Table

    room = min(_MOST_OTHERS, screen.height // _LINES_FOR_ONE)
    if not others.title or not room:
        return []
    found = others.found or ()
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for one in found[:room]:
        depth = dead_letter_output.depth_cell(one.messages)
        table.add_row(line(depth.text, depth.style), line(one.queue.name))
    more = f"{len(found) - room:,} more: redrive dlq scan" if len(found) > room else ""
    return [
        "",
        *screen.lines(line(others.title)),
        *(screen.lines(table) if found else ()),
        *(screen.lines(line(more)) if more else ()),
    ]


def _table(screen: "Screen", shown: list[Flow]) -> list[str]:
    from rich import box
    from rich.table import Table

    gap = 1 if screen.width >= _WIDE else 0
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    columns, rows = fitting(*_columns_and_rows(shown), screen.width, gap + 1, head=_head)
    others = [width_of(columns, rows, place, head=_head) for place in range(1, len(columns))]
    room = screen.width - sum(others) - (gap + 1) * len(others)
    for column in columns:
        table.add_column(
            column.title.replace("/", "\n/"), justify=column.align, no_wrap=not column.give
        )
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        cells[0] = Cell(_within(cells[0].text, room), cells[0].style)
        table.add_row(*(line(cell.text, cell.style) for cell in cells))
    return screen.lines(table)


def _head(title: str) -> int:
    """Return the width of a title, whose unit has its own line."""
    return max(map(len, title.replace("/", "\n/").split("\n")))


def _within(name: str, room: int) -> str:
    """Return a name shortened to one line. The start and the end are kept, which tell long names
    apart."""
    half = max(1, min(room, _LONGEST_NAME) // 2)
    return name if len(name) <= 2 * half else f"{name[: half - 1]}…{name[-half:]}"


def _state(seen: _Seen, found: list[Flow], late: float) -> "Text":
    age = time.monotonic() - seen.at
    old = f"these numbers are {age:.0f} s old"
    if seen.problem is not None:
        problem, _, remedy = str(seen.problem).partition("\n")
        if seen.queues is not None:
            # Without the remedy: it has answered before, so no setting is wrong.
            return paragraph(f"{in_one_line(problem)}\nAsking again; {old}.", "bold red")
        return paragraph(
            "\n".join(filter(None, (in_one_line(problem), in_one_line(remedy), "Asking again."))),
            "bold red",
        )
    if seen.queues is None:
        return paragraph(
            f"Asking the management API{f', for {age:.0f} s so far' if age >= late else ''}."
        )
    footer = _footer(seen.queues, found)
    return (
        paragraph(f"{footer}; the management API is slow: {old}", "yellow")
        if age >= late
        else paragraph(footer)
    )
