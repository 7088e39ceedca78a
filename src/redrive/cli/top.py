"""`redrive top`: all subscriptions at a glance, as they change."""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import options
from redrive.cli.output import Cell, Column, Form, Printer
from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.management import Management
from redrive.topology.flow import Flow, Look, flows, on_the_ladder

if TYPE_CHECKING:
    from rich.console import RenderableType

_RATES = ("in", "done", "retried", "failed", "redriven")
_COLUMNS = (
    Column("subscription", give=True),
    *(Column(title, "right") for title in ("main", "retry", "failed", "consumers")),
    *(Column(f"{title}/s", "right") for title in _RATES),
)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, and leave. Rates are of the second before.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="Seconds between two looks.")] = 1.0,
    management_url: options.ManagementUrl = None,
    url: options.Url = options.DEFAULT_URL,
    output: options.Output = Form.TABLE,
) -> None:
    """Watch all subscriptions: what is in their queues, and what flows through them; q or Ctrl-C ends it.

    It asks the management API, whose counts are up to five seconds old. main, retry and failed count what consumers hold, too. in/s
    has what was sent back among it, done/s what was set aside.

    \b
    Example:
      redrive top --once --output json
    """
    printer = Printer(output)
    connector = Connector(url, default_name("top"))
    with Management(connector.url, management_url) as management:
        if once or printer.as_json:
            _print_once(printer, management, interval)
        elif not sys.stdout.isatty():
            raise ConfigurationError("there is no terminal to draw in", "Give --once.")
        else:
            _watch(management, connector.url.address, interval)


def _look(management: Management) -> Look:
    return Look(time.monotonic(), management.counts())


def _print_once(printer: Printer, management: Management, interval: float) -> None:
    before = _look(management)
    time.sleep(interval)
    now = _look(management)
    found = flows(now, before)
    printer.result({"subscriptions": [asdict(flow) for flow in found], "on_the_ladder": on_the_ladder(now)})
    if printer.as_json:
        return
    printer.table(_COLUMNS, [_row(flow) for flow in found])
    printer.say(_footer(now, found))


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


def _footer(look: Look, found: list[Flow]) -> str:
    return f"{len(found)} subscriptions; {on_the_ladder(look):,} messages on delay ladders"


# --- the live view --------------------------------------------------------------------------------------------------------------------


def _watch(management: Management, address: str, interval: float) -> None:
    from rich.live import Live

    before: Look | None = None
    with _keys() as pressed, Live(screen=True, auto_refresh=False) as live:
        while True:
            problem = ""
            try:
                now = _look(management)
                drawn = _screen(address, now, before)
                before = now
            except BrokerUnavailable as error:
                problem = str(error).partition("\n")[0]
                drawn = _screen(address, before or Look(0.0), None, problem)
            live.update(drawn, refresh=True)
            if pressed(interval):
                return


def _screen(address: str, now: Look, before: Look | None, problem: str = "") -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found = flows(now, before)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column.title, justify=column.align, no_wrap=True, overflow="ellipsis")
    for flow in found:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in _row(flow)]
        table.add_row(*(Text(cell.text, cell.style) for cell in cells))
    state = Text(problem, "bold red") if problem else Text(_footer(now, found))
    return Group(Text(f"redrive top — {address} — {time.strftime('%H:%M:%S')} — q ends it", "bold"), Text(""), table, state)


@contextlib.contextmanager
def _keys() -> Iterator["_Pressed"]:
    """Gives what waits for `q` at the terminal, which is as it was afterwards, however this ends."""
    import termios
    import tty

    terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
    was = termios.tcgetattr(terminal) if terminal is not None else None
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if terminal is not None:
            tty.setcbreak(terminal)
        yield _Pressed(terminal)
    except KeyboardInterrupt:
        pass  # Ctrl-C is a way to end it
    finally:
        signal.signal(signal.SIGTERM, old)
        if terminal is not None and was is not None:
            termios.tcsetattr(terminal, termios.TCSADRAIN, was)


class _Pressed:
    """Waits for some seconds; whether somebody has pressed q by then."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    def __call__(self, seconds: float) -> bool:
        if self._terminal is None:
            time.sleep(seconds)
            return False
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return False
        key = os.read(self._terminal, 64)
        return b"q" in key.lower() or not key
